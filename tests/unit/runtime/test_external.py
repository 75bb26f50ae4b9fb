"""A worker whose stream ends in an external store: away, behind the log, or refusing a row."""

from collections.abc import Iterable
from itertools import pairwise

import pytest
from structlog.testing import capture_logs
from tests.unit.runtime.simulated import NAMES, START_MS, Cluster

from streamcore import STR, Consumed, StreamsBuilder, Topology
from streamcore.errors import FetchPositionGoneError, ProcessingError
from streamcore.model import OffsetAndMetadata, Position, TopicPartition
from streamcore.runtime.lifecycle import WorkerState
from streamcore.runtime.worker import Worker
from streamcore.testing.external import Shelf, ShelfStore
from streamcore.topology.external import ExternalBatch, ExternalStore

WORDS = TopicPartition("words", 0)
OLD_MS = START_MS - 86_400_000


class PickyStore(ShelfStore):
    """Never takes the word "bad"."""

    def write(self, batch: ExternalBatch) -> None:
        for offset, value in zip(batch.offsets, batch.values, strict=True):
            if value == "bad":
                raise ProcessingError(batch.source, offset, "the table takes no such word")
        super().write(batch)


def ending_in(shelf: Shelf, *, picky: bool = False) -> Topology:
    def store() -> ExternalStore:
        return PickyStore(shelf) if picky else shelf.store()

    builder = StreamsBuilder()
    builder.stream("words", Consumed(key=STR, value=STR)).to_store(store)
    return builder.build()


def write(cluster: Cluster, words: Iterable[str]) -> None:
    for word in words:
        cluster.broker.write("words", word.encode(), word.encode(), OLD_MS, partition=0)


def committed(cluster: Cluster) -> int:
    at = cluster.broker.group(NAMES.group).offsets.get(WORDS)
    return -1 if at is None else at.offset


def run_until_it_stops(cluster: Cluster, worker: Worker) -> ProcessingError:
    with pytest.raises(ProcessingError) as caught:
        cluster.run(worker, turns=40)
    return caught.value


# -- away --------------------------------------------------------------------------------------


def test_a_store_that_is_away_is_asked_less_and_less_often_and_told_of_rarely() -> None:
    cluster, shelf = Cluster(partitions=1), Shelf()
    worker = cluster.worker(topology=ending_in(shelf))
    write(cluster, "ab")
    cluster.settle(worker)
    shelf.away = True
    tries: list[int] = []
    ask = ShelfStore._answer

    def counting(store: ShelfStore) -> None:
        tries.append(cluster.clock.now_ms())
        ask(store)

    write(cluster, "cd")
    with pytest.MonkeyPatch.context() as patch, capture_logs() as lines:
        patch.setattr(ShelfStore, "_answer", counting)
        cluster.run(worker, turns=1_200, step_ms=50)  # a minute
    assert 12 <= len(tries) <= 20
    assert 5_000 <= max(after - before for before, after in pairwise(tries)) <= 5_200
    assert len(lines) <= 7
    assert {line["event"] for line in lines} == {"waiting, it is tried again"}
    assert worker._paused == {WORDS}
    assert cluster.broker.group(NAMES.group).generation == 1
    shelf.away = False
    with capture_logs() as lines:
        cluster.run(worker, turns=120, step_ms=50)
    assert [line["event"] for line in lines] == ["going on"]
    assert shelf.contents() == {word: word for word in "abcd"}
    assert committed(cluster) == 4
    assert worker._paused == set()


def test_stopping_while_the_store_is_away_says_so_twice_and_keeps_to_its_budget() -> None:
    cluster, shelf = Cluster(partitions=1), Shelf()
    worker = cluster.worker(
        topology=ending_in(shelf), stop_budget_ms=3_000, commit_interval_ms=9_000
    )
    cluster.settle(worker)
    write(cluster, "ab")
    cluster.run(worker, turns=2, step_ms=10)
    shelf.away = True
    began_ms = cluster.clock.now_ms()
    # Time stands in the broker in memory while a consumer waits; here it goes on.
    wait = worker._wait

    def waiting() -> None:
        wait()
        cluster.clock.advance(50)

    worker._wait = waiting  # type: ignore[method-assign]
    with capture_logs() as lines:
        assert not worker.stop(began_ms)
    assert 3_000 <= cluster.clock.now_ms() - began_ms <= 3_200
    told = [line["event"] for line in lines if line["log_level"] == "warning"]
    assert told == [
        "waiting, it is tried again",
        "the last commit did not end in time; what it held is done again",
    ]


# -- its position is not in the log ------------------------------------------------------------


@pytest.mark.parametrize(("kept", "held"), [(1, "3 to 5"), (9, "3 to 5")])
def test_a_position_that_the_log_does_not_hold_begins_by_the_reset_policy(
    kept: int, held: str
) -> None:
    cluster, shelf = Cluster(partitions=1), Shelf()
    write(cluster, "abcde")
    cluster.broker.log(WORDS).delete_before(3)
    shelf.positions[WORDS] = Position(kept, cluster.broker.topics["words"].id)
    worker = cluster.worker(topology=ending_in(shelf))
    with capture_logs() as lines:
        cluster.settle(worker)
    assert shelf.contents() == {"d": "d", "e": "e"}
    assert committed(cluster) == 5
    (told,) = [line for line in lines if "does not hold" in line["event"]]
    assert (told["partition"], told["position"]) == ("words-0", kept)
    assert told["log_holds"] == f"offsets {held}"
    assert worker.metrics.value("streamcore_rebuilds_total") == 1
    write(cluster, "f")
    cluster.settle(worker)
    assert shelf.positions[WORDS].offset == 6


def test_a_position_that_the_log_does_not_hold_stops_where_the_policy_says_error() -> None:
    cluster, shelf = Cluster(partitions=1), Shelf()
    write(cluster, "abc")
    cluster.broker.log(WORDS).delete_before(3)
    shelf.positions[WORDS] = Position(1, cluster.broker.topics["words"].id)
    cluster.broker.group(NAMES.group).offsets[WORDS] = OffsetAndMetadata(3)
    worker = cluster.worker(topology=ending_in(shelf), offset_reset="error")
    with pytest.raises(FetchPositionGoneError, match="words-0 has no offset 1"):
        cluster.run(worker)
    assert worker.state is WorkerState.ERROR


def test_many_partitions_that_lost_their_positions_do_not_look_like_a_loop() -> None:
    cluster, shelf = Cluster(partitions=30), Shelf()
    for partition in range(30):
        for word in "abc":
            cluster.broker.write("words", word.encode(), b"x", OLD_MS, partition)
        at = TopicPartition("words", partition)
        cluster.broker.log(at).delete_before(2)
        shelf.positions[at] = Position(0, cluster.broker.topics["words"].id)
    worker = cluster.worker(topology=ending_in(shelf))
    cluster.run(worker, turns=80)
    assert worker.state is WorkerState.RUNNING
    assert {at.offset for at in shelf.positions.values()} == {3}


# -- a row that it never takes -----------------------------------------------------------------


def test_a_row_that_the_store_refuses_is_skipped_and_counted() -> None:
    cluster, shelf = Cluster(partitions=1), Shelf()
    write(cluster, ["a", "b", "bad", "c", "bad", "d"])
    worker = cluster.worker(
        topology=ending_in(shelf, picky=True), task={"processing_error": "continue"}
    )
    cluster.settle(worker)
    assert shelf.contents() == {word: word for word in "abcd"}
    assert committed(cluster) == 6
    dropped = worker.metrics.value("streamcore_rows_dropped_total", task="0_0", reason="processing")
    assert dropped == 2


def test_a_row_that_the_store_refuses_is_dead_lettered_byte_for_byte() -> None:
    cluster, shelf = Cluster(partitions=1), Shelf()
    cluster.broker.create("dead", 1)
    write(cluster, ["a", "bad", "b"])
    policy = {"processing_error": "dead-letter", "dead_letter_topic": "dead"}
    worker = cluster.worker(topology=ending_in(shelf, picky=True), task=policy)
    cluster.settle(worker)
    (dead,) = cluster.broker.read("dead")
    assert (dead.key, dead.value, dead.stamp_ms) == (b"bad", b"bad", OLD_MS)
    headers = dict(dead.headers)
    assert headers["sc-dead-offset"] == b"1"
    assert b"the table takes no such word" in (headers["sc-dead-reason"] or b"")
    assert shelf.contents() == {"a": "a", "b": "b"}


def test_a_row_that_the_store_refuses_stops_the_worker_behind_all_in_front_of_it() -> None:
    cluster, shelf = Cluster(partitions=1), Shelf()
    write(cluster, ["a", "b", "bad", "c"])
    worker = cluster.worker(topology=ending_in(shelf, picky=True))
    error = run_until_it_stops(cluster, worker)
    assert (error.partition, error.offset) == (WORDS, 2)
    assert worker.state is WorkerState.ERROR
    worker.close()
    assert shelf.contents() == {"a": "a", "b": "b"}
    assert committed(cluster) == 2
    again = cluster.worker(topology=ending_in(shelf, picky=True))
    assert run_until_it_stops(cluster, again).offset == 2


def test_a_refused_row_met_in_a_rebalance_is_left_to_the_next_owner() -> None:
    cluster, shelf = Cluster(partitions=1), Shelf()
    topology = ending_in(shelf, picky=True)
    policy = {"processing_error": "continue"}
    one = cluster.worker("one", topology, commit_interval_ms=1_000_000, task=policy)
    cluster.run(one, turns=2, step_ms=10)
    write(cluster, ["a", "bad", "b"])
    cluster.run(one, turns=2, step_ms=10)
    two = cluster.worker("two", topology, task=policy)
    cluster.run(two, one, turns=1, step_ms=10)
    one.stop(cluster.clock.now_ms())
    cluster.settle(two)
    assert shelf.contents() == {"a": "a", "b": "b"}
    assert committed(cluster) == 3


def test_the_stop_policy_waits_until_what_is_in_front_is_durable() -> None:
    cluster, shelf = Cluster(partitions=1), Shelf()
    write(cluster, ["a", "b"])
    cluster.broker.write("words", b"k", b"\xff\xfe", OLD_MS, partition=0)
    worker = cluster.worker(topology=ending_in(shelf), commit_budget_ms=100)
    shelf_commit = ShelfStore.commit
    away = [True]

    def commit(store: ShelfStore, positions: dict[TopicPartition, Position]) -> None:
        shelf.away = away[0]
        shelf_commit(store, positions)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ShelfStore, "commit", commit)
        cluster.run(worker, turns=10)
        assert worker.state is not WorkerState.ERROR
        away[0] = shelf.away = False
        with pytest.raises(Exception, match="offset 2"):
            cluster.run(worker, turns=60)
    assert committed(cluster) == 2
