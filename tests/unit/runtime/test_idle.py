"""Idle partitions behind a repartition topic, in running workers."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest
from tests.unit.runtime.simulated import REPARTITION, START_MS, Cluster, word_count

from streamcore.errors import RetriableError
from streamcore.model import Fetched, Send, TopicPartition
from streamcore.operators.marker import read_marker
from streamcore.runtime.worker import Worker
from streamcore.testing.consumer import MemoryConsumer
from streamcore.testing.producer import MemoryProducer


@pytest.mark.parametrize("commit_interval_ms", [1_000, 200_000])
@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_windows_close_over_an_idle_partition_however_rare_commits_are(
    guarantee: str, commit_interval_ms: int
) -> None:
    cluster = Cluster(partitions=2, guarantee=guarantee)
    worker = cluster.worker(topology=word_count(final=True), commit_interval_ms=commit_interval_ms)
    cluster.broker.write("words", None, b"to", START_MS - 100_000, 0)
    cluster.broker.write("words", None, b"end", START_MS - 50_000, 0)
    cluster.run(worker, turns=1_200, step_ms=1_000)
    assert cluster.counts() == {("to", START_MS - 100_000): 1}


@contextmanager
def no_words_come(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let the broker answer everything else."""
    fetch = MemoryConsumer.fetch

    def fetch_others(self: MemoryConsumer, rows_max: int) -> list[Fetched]:
        paused = set(self._paused)
        self._paused |= {at for at in self._positions if at.topic == "words"}
        found = fetch(self, rows_max)
        self._paused = paused
        return found

    with monkeypatch.context() as patched:
        patched.setattr(MemoryConsumer, "fetch", fetch_others)
        yield


def leave_one_unread(cluster: Cluster, worker: Worker, first_ms: int, idle_after_ms: int) -> None:
    """Let the broker go away for longer than that, with a word in partition 1 that nobody read."""
    cluster.feed(["a", "b"], first_ms)
    cluster.settle(worker)
    for word in (b"end", b"ending"):  # the one is committed in its turn, the other not yet
        cluster.broker.write("words", None, word, first_ms + 50_000, 0)
        cluster.run(worker, turns=1, step_ms=0)
    cluster.broker.away = True
    began_ms = cluster.clock.now_ms()
    cluster.broker.write("words", None, b"unread", first_ms + 1, 1)  # by one who is nearer
    while cluster.clock.now_ms() < began_ms + 2 * idle_after_ms:
        cluster.run(worker, turns=1)
    assert worker.metrics.value("streamcore_commits_failed_total") > 1


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_a_partition_that_an_outage_kept_unread_is_not_idle_when_commits_come_back_first(
    guarantee: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first_ms, idle_after_ms = START_MS - 100_000, 20_000
    cluster = Cluster(partitions=2, guarantee=guarantee)
    worker = cluster.worker(topology=word_count(final=True), task={"idle_after_ms": idle_after_ms})
    leave_one_unread(cluster, worker, first_ms, idle_after_ms)
    cluster.broker.away = False
    with no_words_come(monkeypatch):
        cluster.run(worker, turns=60)  # the waits between tries are 5 s at most
        assert not worker._recovery.backoff.failing, "commits have not come back"
    cluster.run(worker, turns=3 * idle_after_ms // 200)
    assert cluster.counts() == {(word, first_ms): 1 for word in ("a", "b", "unread")}


def test_nor_is_it_idle_when_the_commit_that_comes_through_waited_long_for_its_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first_ms, idle_after_ms = START_MS - 100_000, 4_000
    cluster = Cluster(partitions=2)
    worker = cluster.worker(topology=word_count(final=True), task={"idle_after_ms": idle_after_ms})
    cluster.feed(["a", "b"], first_ms)
    cluster.run(worker, turns=7)
    for word in (b"end", b"ending"):
        cluster.broker.write("words", None, word, first_ms + 50_000, 0)
        cluster.run(worker, turns=1, step_ms=0)
    cluster.broker.write("words", None, b"unread", first_ms + 1, 1)
    with no_words_come(monkeypatch):
        cluster.broker.faults.next("producer.flush", False, times=9)  # a second each; 5 a commit
        while cluster.broker.faults.left:
            cluster.run(worker, turns=1)
        cluster.run(worker, turns=10)
    assert worker.metrics.value("streamcore_commits_failed_total") == 1
    cluster.run(worker, turns=200)
    assert cluster.counts() == {(word, first_ms): 1 for word in ("a", "b", "unread")}


def test_nor_is_it_idle_right_after_polls_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    first_ms, idle_after_ms = START_MS - 100_000, 4_000
    cluster = Cluster(partitions=2)
    worker = cluster.worker(topology=word_count(final=True), task={"idle_after_ms": idle_after_ms})
    cluster.feed(["a", "b"], first_ms)
    cluster.run(worker, turns=7)
    cluster.broker.write("words", None, b"end", first_ms + 50_000, 0)
    cluster.run(worker, turns=7)
    cluster.broker.write("words", None, b"unread", first_ms + 1, 1)
    cluster.broker.faults.next("consumer.poll", RetriableError("no answer"), times=50)
    cluster.run(worker, turns=50)
    with no_words_come(monkeypatch):
        while worker._recovery.backoff.failing:
            cluster.run(worker, turns=1)
        cluster.run(worker, turns=10)
    assert cluster.broker.faults.left == []
    cluster.run(worker, turns=200)
    assert cluster.counts() == {(word, first_ms): 1 for word in ("a", "b", "unread")}


def test_markers_behind_the_last_commit_are_written_before_a_revocation_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One that said "idle" must not arrive behind the first record that the next owner reads."""

    def send(self: MemoryProducer, send: Send) -> None:  # as one that lingers
        self._queue.append(send)

    monkeypatch.setattr(MemoryProducer, "send", send)
    cluster = Cluster(partitions=2)
    first = cluster.worker("a")
    cluster.feed(["a"] * 4, START_MS - 100_000)
    cluster.run(first, turns=12)
    cluster.feed(["a"] * 4, START_MS - 50_000)
    cluster.run(first, turns=1)
    before, callbacks = markers(cluster), first._member._callbacks
    revoked, waiting = callbacks.on_revoked, []

    def on_revoked(shares: Sequence[TopicPartition]) -> None:
        producer = first._outbound._producer
        assert isinstance(producer, MemoryProducer)
        revoked(shares)
        waiting.append(len(producer._queue))

    monkeypatch.setattr(callbacks, "on_revoked", on_revoked)
    cluster.clock.advance(2_000)  # a round of markers is due at the next commit
    second = cluster.worker("b")
    second.turn(cluster.clock.now_ms())
    first.turn(cluster.clock.now_ms())
    assert waiting == [0]
    assert markers(cluster) > before


def markers(cluster: Cluster) -> int:
    return sum(read_marker(row.headers) is not None for row in cluster.broker.read(REPARTITION))


@pytest.mark.parametrize("by_ms", [31_000, 61_000, 3_600_000])
def test_no_input_is_idle_because_the_clock_was_set_forward_or_the_process_stood_still(
    by_ms: int,
) -> None:
    first_ms = START_MS - 100_000
    cluster = Cluster(partitions=2)
    worker = cluster.worker(topology=word_count(final=True))
    behind_ms = 25_000  # the one partition is always that far behind the other
    fed: Counter[int] = Counter()
    for step in range(60):
        for partition, stamp_ms in enumerate((first_ms + behind_ms, first_ms)):
            cluster.broker.write("words", None, b"to", stamp_ms + step * 500, partition)
            fed[(stamp_ms + step * 500) // 10_000 * 10_000] += 1
        cluster.run(worker, turns=2)
        if step in (20, 40):
            cluster.clock.advance(by_ms)
            cluster.run(worker, turns=1)
    for partition in (0, 1):
        cluster.broker.write("words", None, b"end", first_ms + 90_000, partition)
    cluster.run(worker, turns=60)
    counts = {start_ms: n for (word, start_ms), n in cluster.counts().items() if word == "to"}
    assert counts == fed


@pytest.mark.parametrize(("idle_after_ms", "turn_ms"), [(60_000, 31_000), (2_000, 1_100)])
def test_slow_turns_add_up_to_the_silence_of_an_input(idle_after_ms: int, turn_ms: int) -> None:
    cluster = Cluster(partitions=2)
    worker = cluster.worker(
        topology=word_count(final=True),
        task={"idle_after_ms": idle_after_ms},
    )
    cluster.feed(["a", "b"], START_MS - 100_000)
    cluster.run(worker)
    for turn in range(12):  # the other partition is silent for as long
        cluster.broker.write("words", None, b"a", START_MS - 90_000 + turn * 10_000, 0)
        cluster.run(worker, turns=1, step_ms=turn_ms)
    assert len(cluster.counts()) >= 5
