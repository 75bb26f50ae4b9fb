"""Topics: what is missing at a start is told at once, and no right but to see topics is needed."""

from collections.abc import Mapping

import pytest
from structlog.testing import capture_logs
from tests.unit.runtime.simulated import CHANGELOG, REPARTITION, START_MS, settings, word_count

from streamcore import (
    INT64,
    STR,
    Consumed,
    Grouped,
    Materialized,
    Produced,
    StreamsBuilder,
    Topology,
    tumbling,
)
from streamcore.errors import (
    MisfitTopicsError,
    MissingGroupError,
    MissingTopicsError,
    RetriableError,
    TopicError,
    TopologyError,
)
from streamcore.runtime import internal_topics, outer_topics
from streamcore.runtime.topics import Topics
from streamcore.testing.broker import InMemoryBroker
from streamcore.testing.clock import ManualClock
from streamcore.testing.producer import MemoryAdmin
from streamcore.topology.naming import Names

PREFIX = "columbia-1."
NAMES = Names(PREFIX, "app")
DAY_MS = 86_400_000
HOUR_MS = 3_600_000


def broker(**counts: int) -> InMemoryBroker:
    """A shared cluster: nobody may create, look at settings, or delete."""
    made = InMemoryBroker(ManualClock(START_MS))
    made.refused |= {"create", "settings", "delete_records"}
    for bare, count in counts.items():
        made.create(PREFIX + bare.replace("_", "-"), count)
    return made


def prepare(
    made: InMemoryBroker, topology: Topology | None = None, dead_letters: str | None = None
) -> None:
    task = {} if dead_letters is None else {"dead_letter_topic": NAMES.topic(dead_letters)}
    Topics(topology or word_count(), NAMES, MemoryAdmin(made), settings(task=task)).prepare()


def missing(made: InMemoryBroker, topology: Topology | None = None) -> MissingTopicsError:
    with pytest.raises(MissingTopicsError) as caught:
        prepare(made, topology)
    return caught.value


def partitions(error: MissingTopicsError) -> dict[str, int]:
    return {topic.name: topic.partitions for topic in error.topics}


# -- everything at once ------------------------------------------------------------------------


def test_all_that_is_missing_is_told_in_one_error_by_bare_names() -> None:
    made = broker()
    made.refused_groups.add(NAMES.group)
    with pytest.raises(MissingTopicsError) as caught:
        prepare(made, dead_letters="dead")
    error = caught.value
    assert partitions(error) == dict.fromkeys(
        ["words", "windowed-counts", "dead", REPARTITION, CHANGELOG], outer_topics.PARTITIONS
    )
    assert error.group == "app"
    assert PREFIX not in str(error)
    assert "the broker refuses the consumer group app" in str(error)
    by_name = {topic.name: topic for topic in error.topics}
    assert by_name[CHANGELOG].settings["cleanup.policy"] == "compact"
    assert by_name[CHANGELOG].keep_ms == 49 * HOUR_MS  # twice a day and ten seconds
    assert by_name[REPARTITION].settings["cleanup.policy"] == "delete"
    assert by_name[REPARTITION].keep_ms == DAY_MS
    assert by_name["words"].settings["cleanup.policy"] == "delete"
    assert by_name["dead"].keep_ms == 7 * DAY_MS
    assert not made.topics, "nothing was created"


def test_what_is_made_by_what_it_said_is_enough_for_the_next_start() -> None:
    made = broker(words=6)
    error = missing(made)
    assert partitions(error) == dict.fromkeys(["windowed-counts", REPARTITION, CHANGELOG], 6)
    for topic in error.topics:
        made.create(PREFIX + topic.name, topic.partitions, topic.settings)
    prepare(made)


def test_internal_topics_that_may_be_created_are_made_when_all_others_are_there() -> None:
    made = broker(windowed_counts=3)
    made.refused.clear()
    assert partitions(missing(made)) == {"words": outer_topics.PARTITIONS}
    assert set(made.topics) == {PREFIX + "windowed-counts"}
    made.create(PREFIX + "words", 5)
    prepare(made)
    assert len(made.topics[PREFIX + CHANGELOG].partitions) == 5


def test_what_all_services_need_is_told_where_it_is_said() -> None:
    """One service alone cannot know how wide the topics of another are."""
    assert "python -m streamcore plan" in str(missing(broker()))


def test_our_topics_with_other_partitions_are_named_with_those_that_they_must_have() -> None:
    made = broker(words=2, windowed_counts=2)
    made.create(PREFIX + REPARTITION, 2)
    made.create(PREFIX + CHANGELOG, 3)
    with pytest.raises(MisfitTopicsError) as caught:
        prepare(made)
    (topic,) = caught.value.topics
    assert (topic.name, topic.partitions, topic.keep_ms) == (CHANGELOG, 2, 49 * HOUR_MS)


def test_only_the_internal_topics_may_be_missing() -> None:
    made = broker(words=2, windowed_counts=2)
    assert partitions(missing(made)) == {REPARTITION: 2, CHANGELOG: 2}
    made.create(PREFIX + REPARTITION, 2)
    assert partitions(missing(made)) == {CHANGELOG: 2}


def test_only_the_group_may_be_refused() -> None:
    made = broker(words=2, windowed_counts=2)
    made.refused_groups.add(NAMES.group)
    made.refused.clear()
    with pytest.raises(MissingGroupError) as caught:
        prepare(made)
    assert caught.value.group == "app"
    made.refused_groups.clear()
    prepare(made)


def test_a_coordinator_that_is_silent_is_no_refusal() -> None:
    made = broker(words=2, windowed_counts=2)
    made.faults.next("admin.group", False)
    with pytest.raises(RetriableError, match="coordinator"):
        prepare(made)


# -- partitions that fit -----------------------------------------------------------------------


def meeting() -> Topology:
    """Two sources that fill one store."""
    builder = StreamsBuilder()
    one, two = (builder.stream(topic, Consumed(key=STR, value=STR)) for topic in ("one", "two"))
    counts = one.merge(two).group_by_key(Grouped(key=STR, value=STR)).count(Materialized("n"))
    counts.to_stream().to("out", Produced(key=STR, value=INT64))
    return builder.build()


def test_a_missing_topic_gets_the_partitions_of_the_one_it_meets() -> None:
    made = broker(two=7)
    assert partitions(missing(made, meeting())) == {"one": 7, "out": 7, "app-n-changelog": 7}


def test_topics_that_meet_and_do_not_fit_are_told_before_anything_else() -> None:
    made = broker(one=3, two=4)
    made.refused_groups.add(NAMES.group)
    with pytest.raises(TopologyError, match=r"'one' \(3 partitions\) and 'two' \(4 partitions\)"):
        prepare(made, meeting())


# -- topics that also delete by time -----------------------------------------------------------


def warnings(topology: Topology, store: str, found: Mapping[str, str]) -> list[str]:
    name = NAMES.internal(f"{store}-changelog")
    return list(internal_topics.setting_warnings(topology, NAMES, {name: found}))


def windowed(size_ms: int, grace_ms: int) -> Topology:
    builder = StreamsBuilder()
    grouped = builder.stream("words", Consumed(key=STR, value=STR)).group_by_key()
    windows = tumbling(size_ms=size_ms, grace_ms=grace_ms)
    grouped.windowed_by(windows).count(Materialized("counts"))
    return builder.build()


def mixed(retention_ms: int) -> dict[str, str]:
    return {"cleanup.policy": "compact,delete", "retention.ms": str(retention_ms)}


def test_a_retention_that_is_shorter_than_the_windows_is_told_with_its_numbers() -> None:
    topology = windowed(20 * HOUR_MS, 6 * HOUR_MS)
    (store,) = topology.sub_topologies[0].changelogged
    needed_ms = internal_topics.needed_for_ms(store)
    assert needed_ms == 76 * HOUR_MS  # 26 h, and the store keeps windows a day longer than that
    assert internal_topics.changelog_keep_ms(store) == 152 * HOUR_MS
    (open_windows,) = warnings(topology, "counts", mixed(25 * HOUR_MS))
    assert "retention.ms=90000000 (25 h) is shorter than window + grace, 93600000 ms (26 h)" in (
        open_windows
    )
    assert "set it to 547200000 at least" in open_windows
    (old_windows,) = warnings(topology, "counts", mixed(26 * HOUR_MS))
    assert "still open" not in old_windows
    assert "273600000 ms (76 h)" in old_windows
    (enough,) = warnings(topology, "counts", mixed(needed_ms))
    assert "set it to" not in enough
    assert "replay" in enough


def test_a_store_without_windows_on_such_a_topic_has_a_warning_of_its_own() -> None:
    topology = meeting()
    (store,) = topology.sub_topologies[0].changelogged
    assert internal_topics.changelog_keep_ms(store) is None
    (warning,) = warnings(topology, "n", mixed(DAY_MS))
    assert "no windows" in warning
    assert "retention.ms=86400000 (24 h)" in warning


@pytest.mark.parametrize(
    "found",
    [
        {"cleanup.policy": "compact", "retention.ms": "1"},
        {"cleanup.policy": "delete,compact", "retention.ms": "-1"},
        {},
    ],
)
def test_nothing_is_said_where_nothing_is_deleted_by_time(found: dict[str, str]) -> None:
    assert warnings(meeting(), "n", found) == []


def test_a_changelog_that_deletes_by_time_is_no_failure() -> None:
    made = broker(words=1, windowed_counts=1)
    made.refused.clear()
    made.create(PREFIX + CHANGELOG, 1, mixed(1))
    with capture_logs() as logs:
        prepare(made)
    assert [entry["log_level"] for entry in logs if "compact,delete" in entry["event"]] == [
        "warning"
    ]


def test_settings_that_may_not_be_seen_are_told_with_what_they_must_be() -> None:
    made = broker(words=1, windowed_counts=1)
    made.create(PREFIX + CHANGELOG, 1, {"cleanup.policy": "delete"})  # wrong, and nobody can see it
    made.create(PREFIX + REPARTITION, 1)
    with capture_logs() as logs:
        prepare(made)
    (told,) = [entry for entry in logs if "may not be seen" in entry["event"]]
    assert told["topics"] == [PREFIX + REPARTITION, PREFIX + CHANGELOG]
    assert told["changelogs_need"] == {"windowed-counts-changelog": "49 h"}
    made.refused.remove("settings")
    with pytest.raises(TopicError, match="must have 'compact'"):
        prepare(made)
