"""What services need together: each topic once, with counts and times that follow from them."""

import pytest
from tests.unit.plan.services import HOUR_MS, count, passed_on, service, split, total

from streamcore.app import worker_settings
from streamcore.errors import MissingTopic, MissingTopicsError, TopologyError
from streamcore.plan.lines import lines, target_for
from streamcore.plan.services import readers_last
from streamcore.plan.topics import DAY_MS, Plan, PlannedTopic, make_plan
from streamcore.remedies import mending_commands
from streamcore.runtime import internal_topics
from streamcore.runtime.topics import Topics
from streamcore.testing.broker import InMemoryBroker
from streamcore.testing.clock import ManualClock
from streamcore.testing.producer import MemoryAdmin
from streamcore.topology.graph import partition_counts

WORD_COUNT = (service("split", split()), service("count", count()))


def named(plan: Plan) -> dict[str, PlannedTopic]:
    assert len({topic.wire for topic in plan.topics}) == len(plan.topics)
    return {topic.name: topic for topic in plan.topics}


def test_all_topics_of_all_services_each_once() -> None:
    topics = named(make_plan(WORD_COUNT))
    assert {name: topic.kind for name, topic in topics.items()} == {
        "lines": "outer",
        "words": "outer",
        "counts": "outer",
        "count-counted-repartition": "repartition",
        "count-counted-changelog": "changelog",
    }
    assert {topic.partitions for topic in topics.values()} == {4}
    assert (topics["words"].writers, topics["words"].readers) == (("split",), ("count",))
    assert topics["lines"].writers == topics["counts"].readers == ()


def test_internal_topics_are_those_that_the_worker_makes() -> None:
    """There is one truth: what the plan prints is what a worker with the right to would create."""
    one = service("count", count(), prefix="mill-1.")
    planned = make_plan([one], partitions=3)
    counts = partition_counts(one.topology, {"words": 3, "counts": 3})
    made = internal_topics.plan(one.topology, one.names, counts)
    ours = [topic for topic in planned.topics if topic.kind != "outer"]
    assert [(t.wire, t.partitions, t.settings) for t in ours] == [
        (spec.name, spec.partitions, spec.settings) for spec in made
    ]


def test_the_prefix_is_on_the_broker_and_never_in_the_bare_name() -> None:
    plan = make_plan([service("mill-1.count", count("mill-1.words"), prefix="mill-1.")])
    pairs = [(one.wire, one.name) for one in plan.topics]
    pairs += [(one.wire, one.name) for one in plan.groups]
    for wire, bare in pairs:
        assert wire == f"mill-1.{bare}"
        assert "mill-1." not in bare
    assert [group.name for group in plan.groups] == ["count"]


def test_partitions_that_are_there_decide_what_follows() -> None:
    topics = named(make_plan(WORD_COUNT, existing={"lines": 6, "counts": 2, "foreign": 9}))
    assert {name: topic.partitions for name, topic in topics.items()} == {
        "lines": 6,
        "words": 6,  # written by partition number
        "counts": 2,
        "count-counted-repartition": 6,
        "count-counted-changelog": 6,
    }


def test_what_is_written_is_as_wide_as_what_is_read() -> None:
    topics = named(make_plan(WORD_COUNT, existing={"lines": 6}))
    assert {topic.partitions for topic in topics.values()} == {6}


@pytest.mark.parametrize("existing", [{}, {"words": 6}, {"words": 6, "counts": 3}, {"counts": 3}])
def test_a_worker_that_misses_topics_prints_what_the_plan_prints(existing: dict[str, int]) -> None:
    """Its own start on a broker where it may create nothing, against the plan."""
    one = service("count", count(), prefix="mill-1.", dead_letter_topic="bad")
    wire = {one.names.topic(name): partitions for name, partitions in existing.items()}
    broker = InMemoryBroker(ManualClock(0))
    broker.refused |= {"create", "settings"}
    for name, partitions in wire.items():
        broker.create(name, partitions)
    worker = Topics(
        one.topology, one.names, MemoryAdmin(broker), worker_settings(one.config, one.names)
    )
    with pytest.raises(MissingTopicsError) as caught:
        worker.prepare()
    printed = mending_commands(caught.value, one.config, {})

    plan = make_plan([one], existing=wire)
    missing = [topic for topic in plan.topics if topic.wire not in wire]
    planned = lines(missing, (), target_for(one.config, {}))
    assert sorted(planned) == sorted(line for line in printed if "topics:create" in line)


def test_a_store_without_windows_is_told_the_same_by_both() -> None:
    one = service("total", total(), prefix="mill-1.")
    plan = make_plan([one])
    planned = lines(plan.topics, (), target_for(one.config, {}))
    assert planned[-1].endswith("--retention-time 7d --compaction")
    missing = [
        MissingTopic(topic.name, topic.partitions, topic.settings, topic.retention_ms)
        for topic in plan.topics
    ]
    assert mending_commands(MissingTopicsError(missing), one.config, {}) == planned


def test_a_topic_behind_decides_for_the_one_in_front() -> None:
    topics = named(make_plan(WORD_COUNT, existing={"words": 6}))
    assert topics["lines"].partitions == topics["words"].partitions == 6


def test_internal_topics_that_are_there_decide_nothing() -> None:
    topics = named(make_plan(WORD_COUNT, existing={"count-counted-changelog": 9}))
    assert topics["count-counted-changelog"].partitions == 4


def test_counts_that_cannot_work_are_refused() -> None:
    with pytest.raises(TopologyError, match="must have equally many"):
        make_plan(WORD_COUNT, existing={"lines": 6, "words": 4})


def test_writers_stand_before_readers_whatever_the_order() -> None:
    ordered = readers_last(tuple(reversed(WORD_COUNT)))
    assert [one.name for one in ordered] == ["split", "count"]


def test_services_in_a_circle_are_planned_all_the_same() -> None:
    circle = [service("there", passed_on("a", "b")), service("back", passed_on("b", "a"))]
    assert len(readers_last(circle)) == 2
    assert [topic.name for topic in make_plan(readers_last(circle)).topics] == ["a", "b"]


@pytest.mark.parametrize(
    ("size_h", "grace_h", "retention_h", "source_h", "changelog_h"),
    [
        (1, 0, 1, 24, 24),  # a day at least
        (12, 3, 15, 30, 60),  # twice window + grace; and the store's own time with them
        (48, 0, 72, 96, 240),
    ],
)
def test_times_cover_windows_and_grace(
    size_h: int, grace_h: int, retention_h: int, source_h: int, changelog_h: int
) -> None:
    topology = count(
        size_ms=size_h * HOUR_MS, grace_ms=grace_h * HOUR_MS, retention_ms=retention_h * HOUR_MS
    )
    topics = named(make_plan([service("count", topology)]))
    kept = {name: (topic.retention_ms or 0) / HOUR_MS for name, topic in topics.items()}
    assert kept == {
        "words": source_h,
        "counts": 24,
        "count-counted-repartition": 24,
        "count-counted-changelog": changelog_h,
    }
    assert [t.name for t in topics.values() if t.compaction] == ["count-counted-changelog"]
    assert int(topics["words"].settings["retention.ms"]) >= source_h * HOUR_MS


def test_a_topic_of_two_readers_is_kept_for_the_one_that_needs_longer() -> None:
    readers = [
        service("short", count(target="a")),
        service("long", count(target="b", size_ms=100 * HOUR_MS)),
    ]
    for order in (readers, readers[::-1]):
        words = named(make_plan(order))["words"]
        assert words.retention_ms == 200 * HOUR_MS
        assert set(words.readers) == {"short", "long"}


def test_a_store_that_never_forgets_is_warned_of_and_given_no_time() -> None:
    plan = make_plan([service("total", total())])
    changelog = named(plan)["total-total-changelog"]
    assert (changelog.compaction, changelog.retention_ms) == (True, None)
    (warning,) = plan.warnings
    assert "store total of total" in warning
    assert make_plan(WORD_COUNT).warnings == ()


def test_the_dead_letter_topic_is_planned_once_for_all() -> None:
    both = [
        service(name, topology, dead_letter_topic="bad", prefix="mill-1.")
        for name, topology in (("split", split()), ("count", count()))
    ]
    bad = named(make_plan(both))["bad"]
    assert (bad.kind, bad.wire, bad.retention_ms) == ("dead-letter", "mill-1.bad", 7 * DAY_MS)
    assert bad.writers == ("split", "count")


def test_a_changelog_is_read_all_day_only_by_standbys() -> None:
    def readers(standbys: int) -> tuple[str, ...]:
        one = service("count", count(), num_standby_replicas=standbys)
        return named(make_plan([one]))["count-counted-changelog"].readers

    assert readers(0) == ()
    assert readers(1) == ("count",)
