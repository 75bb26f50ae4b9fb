"""The plans' limits, and whether topics fit into them."""

from dataclasses import fields

import pytest

import devstack.heroku.plans
from streamcore.errors import ConfigError
from streamcore.heroku import PLANS, Plan, Topic, budget, plan_named, topic_on

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


def test_topics_are_counted_too() -> None:
    topics = [Topic(f"t{number}", 1) for number in range(41)]
    assert budget(topics[:40], PLANS["basic-0"]).fits
    assert budget(topics, PLANS["basic-0"]).problems == ("41 topics; basic-0 has room for 40",)
    assert budget(topics, PLANS["standard-0"]).fits
    assert all("topics_max" in plan.unverified for plan in PLANS.values() if plan.topics_max)


@pytest.mark.parametrize("stand_in", devstack.heroku.plans.PLANS.values(), ids=lambda one: one.name)
def test_the_stand_in_refuses_what_the_budget_has_no_room_for(
    stand_in: devstack.heroku.plans.Plan,
) -> None:
    """Its figures are written down apart, so that they may be compared."""
    plan = PLANS[stand_in.name]
    assert (plan.shared, plan.replicas_max, plan.topics_max) == (
        stand_in.shared,
        stand_in.max_replicas,
        stand_in.max_topics,
    )
    assert (plan.retention_min_ms, plan.retention_max_ms) == (
        stand_in.min_retention_ms,
        stand_in.max_retention_ms,
    )
    assert (plan.produce_bytes_per_s, plan.consume_bytes_per_s) == (
        stand_in.produce_bytes_per_s,
        stand_in.consume_bytes_per_s,
    )


def test_what_is_kept_for_ever_gets_the_longest_time_where_all_is_deleted_by_time() -> None:
    def told(plan: str, keep_ms: int | None, *, compaction: bool = True) -> int | None:
        topic = topic_on(PLANS[plan], "a", 1, compaction=compaction, keep_ms=keep_ms)
        return topic.retention_ms

    assert told("basic-0", None) == 7 * DAY_MS
    assert told("basic-0", 2 * DAY_MS) == 2 * DAY_MS
    assert told("basic-0", 14 * DAY_MS) == 7 * DAY_MS  # half of it is needed
    assert told("basic-0", 15 * DAY_MS) == 15 * DAY_MS  # which has no room
    assert told("standard-0", None) is told("standard-0", 2 * DAY_MS) is None
    assert told("standard-0", DAY_MS, compaction=False) == DAY_MS


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
