"""The plans' limits, and whether topics fit into them."""

from dataclasses import fields

import pytest

from streamcore.errors import ConfigError
from streamcore.heroku import PLANS, Plan, Topic, budget, plan_named

DAY_MS = 86_400_000


def test_the_published_figures_of_the_basic_plans() -> None:
    figures = [
        (plan.produce_bytes_per_s, plan.consume_bytes_per_s, plan.capacity_bytes, plan.replicas_max)
        for plan in PLANS.values()
        if plan.shared
    ]
    kb, gb = 1024, 1024**3
    assert figures == [
        (64 * kb, 256 * kb, 4 * gb, 240),
        (512 * kb, 2_048 * kb, 32 * gb, 480),
        (4_096 * kb, 16_384 * kb, 64 * gb, 960),
    ]


def test_plans_grow_from_the_first_to_the_last() -> None:
    assert list(PLANS) == [
        f"{family}-{number}" for family in ("basic", "standard", "extended") for number in range(3)
    ]
    rooms = [plan.replicas_max for plan in PLANS.values()]
    assert rooms == sorted(rooms)


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_what_is_marked_as_unverified_is_a_figure_of_the_plan(plan: Plan) -> None:
    assert plan.unverified < {field.name for field in fields(Plan)}
    assert plan.retention_min_ms <= plan.retention_default_ms <= plan.retention_max_ms
    assert plan.shared == (plan.produce_bytes_per_s is not None)


def test_partitions_are_counted_with_their_replicas() -> None:
    fits = budget([Topic("a", 40), Topic("b", 40)], PLANS["basic-0"])
    assert (fits.partitions, fits.replicas, fits.fits) == (80, 240, True)
    too_many = budget([Topic("a", 40), Topic("b", 41)], PLANS["basic-0"])
    assert not too_many.fits
    assert too_many.problems == ("81 partitions are 243 replicas; basic-0 has room for 240",)
    assert budget([Topic("a", 40), Topic("b", 41)], PLANS["basic-0"], replication=1).fits
    assert budget([Topic("a", 40), Topic("b", 41)], PLANS["basic-1"]).fits


def test_a_topic_may_be_too_wide_or_kept_too_long() -> None:
    wide = budget([Topic("a", 257)], PLANS["standard-0"])
    assert wide.problems == ("a has 257 partitions; standard-0 allows 256 per topic",)
    long = budget([Topic("a", 1, retention_ms=15 * DAY_MS)], PLANS["standard-0"])
    assert long.problems == ("a is to be kept for 360 h; standard-0 keeps 336 h at most",)
    assert budget([Topic("a", 1, retention_ms=15 * DAY_MS)], PLANS["extended-0"]).fits


@pytest.mark.parametrize(
    ("name", "plan"),
    [
        ("basic-0", "basic-0"),
        ("heroku-kafka:standard-1", "standard-1"),
        ("private-extended-2", "extended-2"),
        ("heroku-kafka:private-standard-0", "standard-0"),
        ("shield-standard-0", "standard-0"),
        ("private-shield-standard-0", "standard-0"),
    ],
)
def test_a_plan_has_its_name_and_its_neighbours_limits(name: str, plan: str) -> None:
    assert plan_named(name) is PLANS[plan]


@pytest.mark.parametrize("name", ["", "basic", "basic-3", "private-basic-0", "standard-9"])
def test_a_plan_that_is_none_is_told_with_those_that_are(name: str) -> None:
    with pytest.raises(ConfigError, match="there is basic-0, basic-1"):
        plan_named(name)
