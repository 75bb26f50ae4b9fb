"""A plan beside the facts of a cluster."""

from collections.abc import Mapping

import pytest
from tests.unit.plan.services import HOUR_MS, count, service, split

from streamcore import heroku
from streamcore.cluster import Answer, BrokerFacts, ClusterFacts, TopicFacts
from streamcore.plan.difference import Difference, differences, fitting_plan
from streamcore.plan.lines import Target

SERVICES = [
    service("split", split(), prefix="mill-1."),
    service("count", count(), prefix="mill-1."),
]
CHANGELOG = "mill-1.count-counted-changelog"
BASIC = Target("heroku", heroku.PLANS["basic-0"], "sushi")
KAFKA = Target("kafka", heroku.PLANS["basic-0"])
GRANTED = {"mill-1.split": Answer(True), "mill-1.count": Answer(True)}
TOPICS = {
    f"mill-1.{name}": 4
    for name in ("lines", "words", "counts", "count-counted-repartition", "count-counted-changelog")
}


def facts(
    topics: Mapping[str, int] | None = None,
    settings: Mapping[str, Mapping[str, str]] | None = None,
    groups: Mapping[str, Answer] | None = None,
    hidden: frozenset[str] = frozenset(),
) -> ClusterFacts:
    """Return a cluster as planned, but for what is said."""
    as_planned = {topic.wire: topic.settings for topic in fitting_plan(SERVICES, empty(), 4).topics}
    shown = {
        name: TopicFacts(
            name, count, 3, {**as_planned.get(name, {}), **(settings or {}).get(name, {})}
        )
        for name, count in (TOPICS if topics is None else topics).items()
        if name not in hidden
    }
    broker = (BrokerFacts("one:9096", "answers"),)
    return ClusterFacts(broker, shown, hidden, groups=GRANTED if groups is None else groups)


def empty() -> ClusterFacts:
    return ClusterFacts((BrokerFacts("one:9096", "answers"),))


def found(seen: ClusterFacts, target: Target = BASIC) -> tuple[Difference, ...]:
    return differences(SERVICES, fitting_plan(SERVICES, seen, 4), seen, target)


@pytest.mark.parametrize("target", [BASIC, KAFKA])
def test_a_cluster_as_planned_has_no_difference(target: Target) -> None:
    assert found(facts(), target) == ()


def test_of_an_empty_cluster_everything_is_missing_with_its_command() -> None:
    missing = found(facts({}, groups={name: Answer(False) for name in GRANTED}))
    assert {one.what for one in missing} == {"missing"}
    assert len(missing) == 7
    commands = [one.command or "" for one in missing]
    assert commands[0] == (
        "heroku kafka:topics:create lines --partitions 4 --retention-time 24h --app sushi"
    )
    assert commands[-1] == "heroku kafka:consumer-groups:create count --app sushi"


def test_outer_topics_are_kept_as_they_are_and_ours_must_follow() -> None:
    six = dict.fromkeys(("mill-1.lines", "mill-1.words"), 6)
    told = {one.name: one for one in found(facts({**TOPICS, **six}))}
    assert told.keys() == {"count-counted-repartition", "count-counted-changelog"}
    assert {one.what for one in told.values()} == {"other"}
    assert told["count-counted-changelog"].detail == "4 partitions, planned 6"


def test_outer_topics_that_do_not_fit_are_a_difference_too() -> None:
    (one,) = found(facts({**TOPICS, "mill-1.words": 6}))
    assert (one.what, one.name, one.detail) == ("other", "words", "6 partitions, planned 4")


@pytest.mark.parametrize(
    ("topic", "settings", "detail"),
    [
        (CHANGELOG, {"cleanup.policy": "delete"}, "cleanup.policy=delete, planned with compact"),
        (
            "mill-1.words",
            {"cleanup.policy": "compact"},
            "cleanup.policy=compact, planned without compact",
        ),
        (
            CHANGELOG,
            {"cleanup.policy": "compact,delete", "retention.ms": str(48 * HOUR_MS)},
            "kept 48 h, planned 49 h",
        ),
        ("mill-1.words", {"retention.ms": str(HOUR_MS // 2)}, "kept 0.5 h, planned 24 h"),
    ],
)
def test_what_would_be_forgotten_is_a_difference(
    topic: str, settings: dict[str, str], detail: str
) -> None:
    (one,) = found(facts(settings={topic: settings}))
    assert (one.what, one.name, one.detail) == ("other", topic.removeprefix("mill-1."), detail)


@pytest.mark.parametrize(
    ("topic", "settings"),
    [
        (CHANGELOG, {"cleanup.policy": "compact,delete", "retention.ms": str(49 * HOUR_MS)}),
        ("mill-1.words", {"retention.ms": "-1"}),
        ("mill-1.words", {"retention.ms": str(100 * HOUR_MS)}),
    ],
)
def test_longer_than_planned_is_no_difference(topic: str, settings: dict[str, str]) -> None:
    assert found(facts(settings={topic: settings})) == ()


def test_in_kafkas_form_longer_is_no_difference_and_shorter_is_one() -> None:
    def told(kept: str) -> list[str]:
        seen = facts(settings={"mill-1.words": {"retention.ms": kept}})
        return [one.detail for one in found(seen, KAFKA)]

    assert told("-1") == told(str(200 * HOUR_MS)) == []
    assert told(str(100 * HOUR_MS)) == ["retention.ms=360000000, planned 604800000"]


def test_in_kafkas_form_each_setting_counts() -> None:
    seen = facts(settings={CHANGELOG: {"segment.bytes": "1", "cleanup.policy": "compact,delete"}})
    assert [one.detail for one in found(seen, KAFKA)] == [
        "cleanup.policy=compact,delete, planned compact",
        "segment.bytes=1, planned 16777216",
    ]


def test_settings_that_may_not_be_asked_for_are_unknown_where_they_matter() -> None:
    topics = {name: TopicFacts(name, count, 3) for name, count in TOPICS.items()}
    seen = ClusterFacts(facts().brokers, topics, groups=GRANTED)
    told = found(seen)
    assert {one.what for one in told} == {"unknown"}
    assert {one.name for one in told} == {"count-counted-repartition", "count-counted-changelog"}


def test_a_topic_that_the_broker_hides_is_unknown() -> None:
    (one,) = found(facts(hidden=frozenset({"mill-1.counts"})))
    assert (one.what, one.name) == ("unknown", "counts")


def test_groups_are_missing_or_unknown() -> None:
    told = found(facts(groups={"mill-1.split": Answer(None, "no answer")}))
    assert [(one.what, one.name) for one in told] == [("unknown", "split"), ("unknown", "count")]
    assert "no answer" in told[0].detail


def test_internal_topics_that_nobody_needs_are_extra_and_those_of_others_are_not() -> None:
    extra = {
        "mill-1.count-old-changelog": 3,
        "mill-1.count-notes": 1,
        "mill-1.counter-old-changelog": 1,
        "other": 1,
    }
    (one,) = found(facts({**TOPICS, **extra}))
    assert (one.what, one.name) == ("extra", "count-old-changelog")
    assert one.command is None
