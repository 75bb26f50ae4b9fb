"""Input that is gone while the state made of it is not: never counted again, never left out."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

import pytest
from structlog.testing import capture_logs
from tests.unit.runtime.simulated import (
    CHANGELOG,
    NAMES,
    REPARTITION,
    START_MS,
    Cluster,
    settings,
    word_count,
)

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
    windowed_serde,
)
from streamcore.errors import (
    FetchPositionGoneError,
    MissingRecordsError,
    RetriableError,
    TransactionAbortedError,
)
from streamcore.model import OffsetAndMetadata, TaskId, TopicPartition
from streamcore.runtime.beginnings import Beginnings
from streamcore.runtime.blueprint import Blueprint
from streamcore.runtime.lifecycle import WorkerState
from streamcore.runtime.worker import Worker
from streamcore.task.metadata import decode, encode
from streamcore.testing.broker import MemoryStateDir
from streamcore.testing.consumer import MemoryConsumer
from streamcore.testing.producer import MemoryAdmin
from streamcore.topology.graph import partition_counts

WORDS = TopicPartition("words", 0)
WINDOW_MS = START_MS // 10_000 * 10_000
GUARANTEES = ["at_least_once", "exactly_once_v2"]


def keyed_count() -> Topology:
    """One sub-topology: the source itself is the input of the task with the counts."""
    builder = StreamsBuilder()
    (
        builder.stream("words", Consumed(key=STR, value=STR))
        .group_by_key(Grouped(key=STR, value=STR))
        .count(Materialized("totals"))
        .to_stream()
        .to("totals", Produced(key=STR, value=INT64))
    )
    return builder.build()


def keyed_cluster(guarantee: str = "at_least_once") -> Cluster:
    cluster = Cluster(partitions=1, guarantee=guarantee)
    cluster.broker.create("totals", 1)
    return cluster


def write(cluster: Cluster, words: Iterable[str]) -> None:
    for word in words:
        cluster.broker.write("words", word.encode(), word.encode(), START_MS, 0)


def totals(cluster: Cluster) -> dict[str, int]:
    return {
        (record.key or b"").decode(): INT64.deserialize(record.value or b"")
        for record in cluster.broker.read("totals")
    }


def die(cluster: Cluster) -> None:
    """All members are gone without a word."""
    group = cluster.broker.group(NAMES.group)
    for member in list(group.members):
        group.leave(member)
    cluster.clock.advance(20_000)
    cluster.broker.expire_transactions()


def forget_offsets(cluster: Cluster) -> None:
    """What a broker does a week after the last member has left."""
    cluster.broker.group(NAMES.group).offsets.clear()


def stops(cluster: Cluster, worker: Worker) -> MissingRecordsError:
    with pytest.raises(MissingRecordsError) as caught:
        cluster.run(worker)
    assert worker.state is WorkerState.ERROR
    return caught.value


# -- offsets that are gone ---------------------------------------------------------------------


@pytest.mark.parametrize("guarantee", GUARANTEES)
@pytest.mark.parametrize("keep_disk", [True, False])
def test_a_crash_before_the_first_commit_is_no_lost_offset(guarantee: str, keep_disk: bool) -> None:
    cluster = keyed_cluster(guarantee)
    disk = MemoryStateDir()
    worker = cluster.worker("a", keyed_count(), disk)
    cluster.run(worker, turns=3, step_ms=1)
    assert worker.state is WorkerState.RUNNING
    call, error = "consumer.commit", RetriableError("no answer")
    if guarantee == "exactly_once_v2":
        call, error = "producer.commit_transaction", TransactionAbortedError("no")  # type: ignore[assignment]
    cluster.broker.faults.next(call, error, times=1_000)
    write(cluster, "aab")
    cluster.run(worker, turns=8)
    log = cluster.broker.log(TopicPartition("app-totals-changelog", 0))
    assert log.end > log.start, "the changelog must hold what was not committed"
    assert cluster.broker.group(NAMES.group).offsets[WORDS].offset == 0
    cluster.broker.faults.clear()
    die(cluster)
    again = cluster.worker("a", keyed_count(), disk if keep_disk else None)
    cluster.settle(again)
    counts = totals(cluster)
    assert counts.keys() == {"a", "b"}
    assert counts["a"] >= 2
    if guarantee == "exactly_once_v2":
        assert counts == {"a": 2, "b": 1}


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_forgotten_offsets_stop_the_worker_with_the_number_of_records(guarantee: str) -> None:
    cluster = Cluster(partitions=1, guarantee=guarantee)
    first = cluster.worker()
    cluster.feed(["a"] * 7, START_MS)
    cluster.settle(first)
    assert first.stop(cluster.clock.now_ms())
    before = cluster.counts()
    forget_offsets(cluster)
    error = stops(cluster, cluster.worker("b"))
    assert error.records[WORDS] == 7
    assert "words-0: 7 are counted again" in str(error)
    assert f"{CHANGELOG}-0" in str(error)
    assert "missing_records to 'continue'" in str(error)
    assert cluster.counts() == before
    assert cluster.broker.group(NAMES.group).offsets == {}


def test_forgotten_offsets_under_latest_say_how_many_would_be_left_out() -> None:
    cluster = keyed_cluster()
    first = cluster.worker("a", keyed_count())
    write(cluster, "aab")
    cluster.settle(first)
    first.stop(cluster.clock.now_ms())
    forget_offsets(cluster)
    error = stops(cluster, cluster.worker("b", keyed_count(), offset_reset="latest"))
    assert "words-0: 3 are left out" in str(error)


@pytest.mark.parametrize(("reset", "a"), [("earliest", 4), ("latest", 2)])
def test_forgotten_offsets_may_be_gone_on_without(reset: str, a: int) -> None:
    cluster = keyed_cluster()
    first = cluster.worker("a", keyed_count())
    write(cluster, "aab")
    cluster.settle(first)
    first.stop(cluster.clock.now_ms())
    forget_offsets(cluster)
    with capture_logs() as lines:
        second = cluster.worker("b", keyed_count(), offset_reset=reset, missing_records="continue")
        cluster.settle(second)
    told = [line for line in lines if line["event"].startswith("committed offsets are gone")]
    assert len(told) == 1
    assert told[0]["log_level"] == "warning"
    assert told[0]["inputs"] == "words-0"
    assert totals(cluster)["a"] == a


def test_a_changelog_that_is_empty_makes_no_offset_a_lost_one() -> None:
    cluster = keyed_cluster()
    first = cluster.worker("a", keyed_count())
    cluster.settle(first)
    first.stop(cluster.clock.now_ms())
    forget_offsets(cluster)
    second = cluster.worker("b", keyed_count())
    write(cluster, "aab")
    cluster.settle(second)
    assert totals(cluster) == {"a": 2, "b": 1}


# -- offsets of inputs from which state is built behind a repartition topic ----------------------


def blueprint_of(topology: Topology, **counts: int) -> Blueprint:
    found = partition_counts(topology, {"words": 2, "windowed-counts": 2, **counts})
    return Blueprint(topology, NAMES, found, settings())


class Accepted(MemoryConsumer):
    """Commits as if it were a member."""

    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], timeout_ms: int) -> None:
        self._group.offsets.update(offsets)


def find(
    cluster: Cluster,
    task: TaskId,
    committed: Mapping[TopicPartition, OffsetAndMetadata],
    topology: Topology | None = None,
    meanwhile: Callable[[], None] = lambda: None,
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Ask for the beginning of one task alone, as if others were at other workers."""
    blueprint = blueprint_of(topology or word_count(), **({} if topology is None else {"more": 2}))
    beginnings = Beginnings(blueprint, Slow(cluster, meanwhile))
    group = cluster.broker.group(NAMES.group)
    group.offsets.clear()
    group.offsets.update(committed)
    consumer = Accepted(cluster.broker, group)
    inputs = blueprint.tasks()[task]
    return beginnings.find([task], consumer.committed(inputs, 1_000), consumer)


def counted_in_two_partitions(guarantee: str = "at_least_once") -> Cluster:
    """Three of six are read from each partition of the words."""
    cluster = Cluster(partitions=2, guarantee=guarantee)
    first = cluster.worker()
    cluster.feed(["a"] * 6, START_MS)
    cluster.settle(first)
    assert first.stop(cluster.clock.now_ms())
    assert cluster.counts() == {("a", WINDOW_MS): 6}
    return cluster


def known(cluster: Cluster) -> dict[TopicPartition, OffsetAndMetadata]:
    return dict(cluster.broker.group(NAMES.group).offsets)


@pytest.mark.parametrize("guarantee", GUARANTEES)
@pytest.mark.parametrize("forgotten", [[0, 1], [0], [1]])
def test_forgotten_offsets_of_what_feeds_a_state_stop_the_worker(
    guarantee: str, forgotten: list[int]
) -> None:
    cluster = counted_in_two_partitions(guarantee)
    for partition in forgotten:
        del cluster.broker.group(NAMES.group).offsets[TopicPartition("words", partition)]
    error = stops(cluster, cluster.worker("b"))
    assert error.records == {TopicPartition("words", partition): 3 for partition in forgotten}
    assert f"words-{forgotten[0]}: 3 are counted again" in str(error)
    assert f"{CHANGELOG}-" in str(error)
    assert cluster.counts() == {("a", WINDOW_MS): 6}


@pytest.mark.parametrize("forgotten", [[0, 1], [0]])
def test_forgotten_offsets_of_a_feeder_may_be_gone_on_without(forgotten: list[int]) -> None:
    cluster = counted_in_two_partitions()
    for partition in forgotten:
        del cluster.broker.group(NAMES.group).offsets[TopicPartition("words", partition)]
    with capture_logs() as lines:
        cluster.settle(cluster.worker("b", missing_records="continue"))
    told = [line for line in lines if line["event"].startswith("committed offsets are gone")]
    assert [line["inputs"] for line in told] == [", ".join(f"words-{n}" for n in forgotten)]
    assert cluster.counts() == {("a", WINDOW_MS): 6 + 3 * len(forgotten)}


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_feeder_commits_where_it_begins_before_it_writes(guarantee: str) -> None:
    cluster = Cluster(partitions=2, guarantee=guarantee)
    cluster.feed(["a"] * 6, START_MS)
    worker = cluster.worker(commit_interval_ms=1_000_000)
    cluster.broker.faults.next("consumer.commit", RetriableError("no answer"), times=3)
    cluster.run(worker, turns=2, step_ms=1)
    assert cluster.broker.read(REPARTITION) == []
    cluster.run(worker, turns=60)
    assert {known(cluster)[TopicPartition("words", n)].offset for n in (0, 1)} == {0}
    die(cluster)
    again = cluster.worker("b")
    cluster.settle(again)
    if guarantee == "exactly_once_v2":
        assert cluster.counts() == {("a", WINDOW_MS): 6}


def test_a_feeder_stops_when_the_whole_group_is_forgotten() -> None:
    """Another worker has the task with the counts; this one must not send it everything again."""
    with pytest.raises(MissingRecordsError, match="words-1: 3 are counted again"):
        find(counted_in_two_partitions(), TaskId(0, 1), {})


def test_what_lies_unread_in_a_repartition_topic_is_counted_too() -> None:
    """All offsets are forgotten, and the changelogs are empty: nothing was counted yet."""
    cluster = counted_in_two_partitions()
    for log in cluster.broker.topics[CHANGELOG].partitions:
        log.delete_before(log.end)
    with pytest.raises(MissingRecordsError, match="words-1: 3 are counted again"):
        find(cluster, TaskId(0, 1), {})
    for log in cluster.broker.topics[REPARTITION].partitions:
        log.delete_before(log.end)
    assert find(cluster, TaskId(0, 1), {}) == {TopicPartition("words", 1): OffsetAndMetadata(0)}


def test_a_slow_worker_in_a_first_generation_takes_nothing_for_missing() -> None:
    """The other one has begun with its partition, and its words are counted already."""
    cluster = Cluster(partitions=2)
    first = cluster.worker()
    cluster.broker.write("words", None, b"a", START_MS, 0)
    cluster.settle(first)
    first.stop(cluster.clock.now_ms())
    offsets = known(cluster)
    here = TopicPartition("words", 1)
    begins = {here: OffsetAndMetadata(0)}
    cluster.broker.write("words", None, b"a", START_MS, 1)
    only_begun = {WORDS: OffsetAndMetadata(0)}
    assert find(cluster, TaskId(0, 1), only_begun) == begins
    for number in (0, 1):  # and the task with the counts has heard of the other one alone
        at = TopicPartition(REPARTITION, number)
        state = decode(offsets[at].metadata)
        assert state.upstream_ms[0] >= START_MS
        offsets[at] = OffsetAndMetadata(1, encode(replace(state, upstream_ms=(START_MS, -1))))
    del offsets[here]
    assert find(cluster, TaskId(0, 1), offsets) == begins


def test_a_first_generation_that_comes_to_life_meanwhile_takes_nothing_for_missing() -> None:
    """Nobody had begun when this worker asked for its offsets; another one has, since."""
    cluster = Cluster(partitions=2)
    for topic in (REPARTITION, CHANGELOG):
        cluster.broker.create(topic, 2)

    def other_begins() -> None:
        cluster.broker.group(NAMES.group).offsets[WORDS] = OffsetAndMetadata(0)
        for topic in (REPARTITION, CHANGELOG):
            cluster.broker.write(topic, b"a", b"1", START_MS, 0)

    begins = find(cluster, TaskId(0, 1), {}, meanwhile=other_begins)
    assert begins == {TopicPartition("words", 1): OffsetAndMetadata(0)}


def test_a_state_that_others_have_filled_makes_no_offset_a_lost_one() -> None:
    """These inputs never wrote into their repartition topic: they are new, or only slower."""
    cluster = Cluster(partitions=2)
    for topic in (REPARTITION, CHANGELOG):
        cluster.broker.create(topic, 2)
    cluster.broker.write(CHANGELOG, b"a", b"1", START_MS, 0)
    begins = find(cluster, TaskId(0, 1), {})
    assert begins == {TopicPartition("words", 1): OffsetAndMetadata(0)}


def with_more() -> Topology:
    """The word count with one more topic in front of the same repartition topic."""
    builder = StreamsBuilder()
    source = Consumed(key=STR, value=STR)
    (
        builder.stream("words", source)
        .merge(builder.stream("more", source))
        .group_by(lambda _key, word: word, Grouped(key=STR, value=STR))
        .windowed_by(tumbling(size_ms=10_000))
        .count(Materialized("windowed-counts"))
        .to_stream()
        .to("windowed-counts", Produced(key=windowed_serde(STR), value=INT64))
    )
    return builder.build()


def test_a_topic_that_is_new_beside_another_is_no_forgotten_one() -> None:
    cluster = counted_in_two_partitions()
    cluster.broker.create("more", 2)
    begins = find(cluster, TaskId(0, 1), known(cluster), with_more())
    assert begins[TopicPartition("more", 1)] == OffsetAndMetadata(0)
    assert begins[TopicPartition("words", 1)].offset == 3


def test_who_feeds_a_state_through_how_many_repartition_topics() -> None:
    builder = StreamsBuilder()
    source = Consumed(key=STR, value=STR)
    builder.stream("words", source).filter(lambda _key, _word: True).to("copies")
    (
        builder.stream("more", source)
        .group_by(lambda _key, word: word, Grouped(key=STR, value=STR))
        .count(Materialized("by-word"))
        .to_stream()
        .group_by(lambda _word, count: str(count), Grouped(key=STR, value=INT64))
        .count(Materialized("by-count"))
    )
    blueprint = blueprint_of(builder.build(), copies=2, more=1)
    changelogs = {name: TopicPartition(f"app-by-{name}-changelog", 0) for name in ("word", "count")}
    assert blueprint.keepers() == {TaskId(2, 0), TaskId(3, 0)}
    assert blueprint.feeders() == {
        TaskId(1, 0): set(changelogs.values()),
        TaskId(2, 0): {changelogs["count"]},
    }
    assert blueprint.outlets(TaskId(1, 0)) == (TopicPartition("app-by-word-repartition", 0),)
    assert blueprint.outlets(TaskId(3, 0)) == ()


# -- records that are gone ---------------------------------------------------------------------


def stopped_in_front_of_deleted_records(cluster: Cluster) -> None:
    """Three are counted; of five more three are deleted before anybody reads them."""
    first = cluster.worker("a", keyed_count())
    write(cluster, "aab")
    cluster.settle(first)
    assert first.stop(cluster.clock.now_ms())
    write(cluster, "aaaaa")
    cluster.broker.log(WORDS).delete_before(6)


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_records_deleted_before_they_were_counted_stop_the_worker(guarantee: str) -> None:
    cluster = keyed_cluster(guarantee)
    stopped_in_front_of_deleted_records(cluster)
    error = stops(cluster, cluster.worker("b", keyed_count()))
    assert error.records == {WORDS: 3}
    assert str(error).startswith("3 records of words-0 are missing")
    assert "offset 3, and the log begins at 6" in str(error)
    assert totals(cluster) == {"a": 2, "b": 1}


@pytest.mark.parametrize(("reset", "a"), [("earliest", 4), ("latest", 2)])
def test_deleted_records_may_be_gone_on_without(reset: str, a: int) -> None:
    cluster = keyed_cluster()
    stopped_in_front_of_deleted_records(cluster)
    with capture_logs() as lines:
        second = cluster.worker("b", keyed_count(), offset_reset=reset, missing_records="continue")
        cluster.settle(second)
    told = [line for line in lines if line["event"].startswith("records were deleted")]
    assert [line["records_missing"] for line in told] == [3]
    assert totals(cluster)["a"] == a
    assert second.metrics.value("streamcore_rebuilds_total") == 0
    second.stop(cluster.clock.now_ms())
    with capture_logs() as lines:
        cluster.settle(cluster.worker("c", keyed_count(), missing_records="continue"))
    assert not [line for line in lines if line["event"].startswith("records were deleted")]


def test_deleted_records_and_a_reset_policy_of_error_stop_the_worker_in_any_case() -> None:
    cluster = keyed_cluster()
    stopped_in_front_of_deleted_records(cluster)
    worker = cluster.worker("b", keyed_count(), offset_reset="error", missing_records="continue")
    stops(cluster, worker)


@pytest.mark.parametrize("missing_records", ["stop", "continue"])
def test_a_log_cut_off_in_front_of_a_running_task(missing_records: str) -> None:
    cluster = keyed_cluster()
    worker = cluster.worker("a", keyed_count(), missing_records=missing_records)
    write(cluster, "aab")
    cluster.settle(worker)
    write(cluster, "aaaaa")
    cluster.broker.log(WORDS).delete_before(6)
    if missing_records == "stop":
        assert stops(cluster, worker).records == {WORDS: 3}
    else:
        cluster.settle(worker)
        assert totals(cluster) == {"a": 4, "b": 1}


def test_a_log_made_anew_behind_the_committed_offset_stops_the_worker() -> None:
    cluster = keyed_cluster()
    worker = cluster.worker("a", keyed_count())
    write(cluster, "aab")
    cluster.settle(worker)
    worker.stop(cluster.clock.now_ms())
    cluster.broker.delete("words")
    cluster.broker.create("words", 1)
    write(cluster, "a")
    error = stops(cluster, cluster.worker("b", keyed_count()))
    assert "words-0 ends at offset 1, and reading should go on at 3" in str(error)


def test_a_repartition_topic_that_was_purged_misses_nothing() -> None:
    cluster = Cluster(partitions=1)
    first = cluster.worker(repartition_purge_interval_ms=2_000)
    cluster.feed(["a", "b"] * 20, START_MS)
    cluster.settle(first)
    log = cluster.broker.log(TopicPartition(REPARTITION, 0))
    assert log.start > 40
    first.stop(cluster.clock.now_ms())
    cluster.feed(["a", "b"], START_MS)
    cluster.settle(cluster.worker("b"))
    assert cluster.counts() == {("a", WINDOW_MS): 21, ("b", WINDOW_MS): 21}


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_records_deleted_before_a_feeder_read_them_stop_the_worker(guarantee: str) -> None:
    cluster = counted_in_two_partitions(guarantee)
    cluster.feed(["a"] * 10, START_MS)
    cluster.broker.log(WORDS).delete_before(6)
    second = cluster.worker("b")
    error = stops(cluster, second)
    assert error.records == {WORDS: 3}
    assert second.metrics.value("streamcore_rebuilds_total") == 0, "it must stop before it reads"
    assert str(error).startswith("3 records of words-0 are missing")
    assert cluster.counts() == {("a", WINDOW_MS): 6}


@pytest.mark.parametrize("missing_records", ["stop", "continue"])
def test_a_log_cut_off_in_front_of_a_running_feeder(missing_records: str) -> None:
    cluster = Cluster(partitions=2)
    worker = cluster.worker(missing_records=missing_records)
    cluster.feed(["a"] * 6, START_MS)
    cluster.settle(worker)
    cluster.feed(["a"] * 10, START_MS)
    cluster.broker.log(WORDS).delete_before(6)
    if missing_records == "stop":
        assert stops(cluster, worker).records == {WORDS: 3}
    else:
        cluster.settle(worker)
        assert cluster.counts() == {("a", WINDOW_MS): 13}


def copying() -> Topology:
    builder = StreamsBuilder()
    (
        builder.stream("words", Consumed(key=STR, value=STR))
        .filter(lambda _key, _word: True)
        .to("copies", Produced(key=STR, value=STR))
    )
    return builder.build()


@pytest.mark.parametrize("gone", ["offsets", "records"])
def test_a_task_from_which_no_state_is_built_begins_by_the_reset_policy(gone: str) -> None:
    cluster = Cluster(partitions=1)
    cluster.broker.create("copies", 1)
    first = cluster.worker("a", copying())
    cluster.feed("abc", START_MS)
    cluster.settle(first)
    first.stop(cluster.clock.now_ms())
    cluster.feed("defgh", START_MS)
    if gone == "offsets":
        forget_offsets(cluster)
    else:
        cluster.broker.log(WORDS).delete_before(6)
    with capture_logs() as lines:
        cluster.settle(cluster.worker("b", copying()))
    copies = b"".join(record.value or b"" for record in cluster.broker.read("copies"))
    assert copies == (b"abcabcdefgh" if gone == "offsets" else b"abcgh")
    told = [line["log_holds"] for line in lines if "log_holds" in line]
    assert told == ([] if gone == "offsets" else ["offsets 6 to 8"])


class Slow(MemoryAdmin):
    """While it is asked, something happens."""

    def __init__(self, cluster: Cluster, meanwhile: Callable[[], None]) -> None:
        super().__init__(cluster.broker)
        self.meanwhile: Callable[[], None] | None = meanwhile

    def offsets(
        self, partitions: Iterable[TopicPartition], where: str, timeout_ms: int
    ) -> dict[TopicPartition, int]:
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
        return super().offsets(partitions, where, timeout_ms)


@pytest.mark.parametrize("known", [None, OffsetAndMetadata(2)])
def test_a_worker_that_is_behind_takes_nothing_for_missing(known: OffsetAndMetadata | None) -> None:
    """It stood still between two questions; another one has read on, and purged."""
    cluster = keyed_cluster()
    cluster.broker.create("app-totals-changelog", 1)
    write(cluster, "aaaaa")
    group = cluster.broker.group(NAMES.group)
    if known is not None:
        group.offsets[WORDS] = known

    def other_goes_on() -> None:
        cluster.broker.write("app-totals-changelog", b"a", b"4", START_MS, 0)
        group.offsets[WORDS] = OffsetAndMetadata(4)
        cluster.broker.log(WORDS).delete_before(4)

    topology = keyed_count()
    counts = partition_counts(topology, {"words": 1, "totals": 1})
    blueprint = Blueprint(topology, NAMES, counts, settings())
    beginnings = Beginnings(blueprint, Slow(cluster, other_goes_on))
    consumer = MemoryConsumer(cluster.broker, group)
    with pytest.raises(RetriableError, match="have just changed"):
        beginnings.find([TaskId(0, 0)], consumer.committed([WORDS], 1_000), consumer)
    begins = beginnings.find([TaskId(0, 0)], consumer.committed([WORDS], 1_000), consumer)
    assert begins == {WORDS: OffsetAndMetadata(4)}


def test_a_running_worker_that_is_behind_takes_nothing_for_missing() -> None:
    cluster = keyed_cluster()
    worker = cluster.worker("a", keyed_count())
    write(cluster, "aab")
    cluster.settle(worker)
    write(cluster, "aaaaa")
    cluster.broker.group(NAMES.group).offsets[WORDS] = OffsetAndMetadata(6)  # of the other one
    cluster.broker.log(WORDS).delete_before(6)
    cluster.settle(worker)
    assert totals(cluster) == {"a": 4, "b": 1}


def test_an_unanswered_question_about_a_lost_position_names_no_number() -> None:
    cluster = keyed_cluster()
    topology = keyed_count()
    counts = partition_counts(topology, {"words": 1, "totals": 1})
    beginnings = Beginnings(
        Blueprint(topology, NAMES, counts, settings()), MemoryAdmin(cluster.broker)
    )
    cluster.broker.away = True
    assert beginnings.lost(FetchPositionGoneError(WORDS, 3)), "its last commit is looked at first"
    with pytest.raises(MissingRecordsError, match="does not hold offset 3") as caught:
        beginnings.lost(FetchPositionGoneError(WORDS, 3))
    assert caught.value.records == {}
