"""What user code raises with a class of the engine's own, or where no record is processed."""

from collections.abc import Callable
from typing import Any

import pytest
from structlog.testing import capture_logs
from tests.unit.runtime.simulated import NAMES, START_MS, Cluster, settings, word_count

from streamcore import (
    INT64,
    STR,
    Consumed,
    Grouped,
    Materialized,
    Processor,
    ProcessorContext,
    Produced,
    StreamsBuilder,
    Topology,
    serde_of,
    tumbling,
    windowed_serde,
)
from streamcore.errors import RetriableError, TransactionAbortedError, UserCodeError
from streamcore.runtime.lifecycle import WorkerState
from streamcore.runtime.worker import create_worker

OLD_MS = START_MS - 100_000
NO_DATABASE = ValueError("no database")
GUARANTEES = ("at_least_once", "exactly_once_v2")
PLACES = ("map", "process", "timer", "behind the count", "init")


class Trouble:
    """Raises in one place, as often as it is armed for."""

    def __init__(self, place: str) -> None:
        self._place = place
        self.armed = 0
        self.raised = 0

    def at(self, place: str) -> None:
        if self.armed and place == self._place:
            self.armed -= 1
            self.raised += 1
            raise RetriableError("the service of somebody else is away")


class Lookup(Processor):
    """Asks somebody else about each word."""

    trouble: Trouble

    def init(self, context: ProcessorContext) -> None:
        self.trouble.at("init")
        self._context = context
        context.schedule(1, "wall", lambda _now_ms: self.trouble.at("timer"))

    def process(self, key: Any, value: Any) -> None:
        self._context.forward(key, value)
        self.trouble.at("process")


def topology(trouble: Trouble) -> Topology:
    def told(place: str) -> Callable[[Any], Any]:
        def pass_through(value: Any) -> Any:
            trouble.at(place)
            return value

        return pass_through

    lookup = type("Lookup", (Lookup,), {"trouble": trouble})
    builder = StreamsBuilder()
    (
        builder.stream("words", Consumed(key=STR, value=STR))
        .map_values(told("map"))
        .process(lookup)
        .group_by(lambda _key, word: word, Grouped(key=STR, value=STR))
        .windowed_by(tumbling(size_ms=10_000))
        .count(Materialized("windowed-counts"))
        .to_stream()
        .map_values(told("behind the count"))
        .to("windowed-counts", Produced(key=windowed_serde(STR), value=INT64))
    )
    return builder.build()


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_what_user_code_wants_tried_again_is_done_again_from_the_last_commit(
    guarantee: str, place: str
) -> None:
    trouble = Trouble(place)
    cluster = Cluster(partitions=1, guarantee=guarantee)
    if place == "init":
        trouble.armed = 1
    worker = cluster.worker(topology=topology(trouble), commit_interval_ms=1_000)
    cluster.run(worker)
    for turn in range(12):
        cluster.feed(["to", "be"] * 5, OLD_MS + turn * 10_000)
        trouble.armed += turn == 5 and place != "init"
        cluster.run(worker, turns=1)
    cluster.settle(worker)
    assert trouble.raised == 1
    assert cluster.lag() == 0
    counts, fed = cluster.counts(), dict(cluster.fed)
    assert counts.keys() == fed.keys()
    if guarantee == "exactly_once_v2":
        assert counts == fed
    else:
        assert all(counts[key] >= count for key, count in fed.items())


@pytest.mark.parametrize("place", ["serde", "timestamp"])
def test_no_record_is_skipped_because_a_service_behind_a_serde_is_away(place: str) -> None:
    trouble = Trouble(place)

    def text(data: bytes) -> str:
        trouble.at("serde")
        return data.decode()

    def stamp_ms(_key: object, _value: object, record_ms: int) -> int:
        trouble.at("timestamp")
        return record_ms

    serde = serde_of("text", str.encode, text)
    builder = StreamsBuilder()
    words = builder.stream("words", Consumed(key=STR, value=serde, timestamp=stamp_ms))
    words.to("windowed-counts", Produced(key=STR, value=STR))
    cluster = Cluster(partitions=1)
    policies = {"deserialization_error": "continue", "timestamp_error": "continue"}
    worker = cluster.worker(topology=builder.build(), task=policies)
    cluster.run(worker)
    trouble.armed = 2  # for the batch, and for a row of it
    for word in (b"to", b"be"):
        cluster.broker.write("words", None, word, OLD_MS, 0)
    cluster.run(worker, turns=60)
    assert trouble.raised == 2
    assert [record.value for record in cluster.broker.read("windowed-counts")] == [b"to", b"be"]


class Away(Processor):
    """Its service is away for two minutes, and then no more."""

    left = 0

    def init(self, context: ProcessorContext) -> None:
        self._context = context

    def process(self, key: Any, value: Any) -> None:
        if Away.left:
            Away.left -= 1
            raise RetriableError("the service of somebody else is away")
        self._context.forward(key, value)


def test_a_service_that_is_away_for_long_ends_no_worker() -> None:
    cluster = Cluster(partitions=1, guarantee="exactly_once_v2")
    worker = cluster.worker(topology=passing_through(Away))
    cluster.run(worker)
    Away.left = 40
    cluster.feed(["to", "be"], OLD_MS)
    cluster.run(worker, turns=500)
    assert Away.left > 10, "it is left alone for longer and longer"
    fault = TransactionAbortedError("nor does the next trouble, which is another's")
    cluster.broker.faults.next("producer.commit_transaction", fault)
    cluster.run(worker, turns=700)
    assert Away.left == 0
    assert [record.value for record in cluster.broker.read("windowed-counts")] == [b"to", b"be"]


class Refused(Processor):
    """One partition's service is away for good."""

    def init(self, context: ProcessorContext) -> None:
        self._context = context
        if context.task_id.partition == 1:
            raise RetriableError("the service of somebody else is away")

    def process(self, key: Any, value: Any) -> None:
        self._context.forward(key, value)


def test_an_init_that_wants_another_try_stops_no_other_task() -> None:
    cluster = Cluster(partitions=4)
    worker = cluster.worker(topology=passing_through(Refused))
    cluster.feed(["to", "be", "or", "not"], OLD_MS)
    cluster.run(worker, turns=600)
    assert {task.partition for task in worker._tasks.running} == {0, 2, 3}
    sent = {record.value for record in cluster.broker.read("windowed-counts")}
    assert sent == {b"to", b"or", b"not"}


def test_a_state_listener_that_fails_keeps_nobody_from_the_last_commit() -> None:
    def listen(_before: WorkerState, after: WorkerState) -> None:
        if after is WorkerState.PENDING_SHUTDOWN:
            raise ValueError("no screen")

    cluster = Cluster(partitions=1)
    world = cluster.broker.world(NAMES.group, slot="a")
    worker = create_worker(word_count(), NAMES, settings(), world, [listen])
    worker.start(cluster.clock.now_ms())
    cluster.feed(["to"], OLD_MS)
    cluster.run(worker)
    with capture_logs() as logs:
        assert worker.stop(cluster.clock.now_ms())
    assert "a state listener failed" in {entry["event"] for entry in logs}


def failing(place: str, error: Exception = NO_DATABASE) -> type[Processor]:
    """Return a processor that raises this there, and passes everything on."""

    class Failing(Processor):
        def __init__(self) -> None:
            self._fail("constructor")

        def init(self, context: ProcessorContext) -> None:
            self._context = context
            self._fail("init")

        def process(self, key: Any, value: Any) -> None:
            self._context.forward(key, value)

        def close(self) -> None:
            self._fail("close")

        def _fail(self, at: str) -> None:
            if at == place:
                raise error

    return Failing


def passing_through(processor: type[Processor]) -> Topology:
    builder = StreamsBuilder()
    words = builder.stream("words", Consumed(key=STR, value=STR)).process(processor)
    words.to("windowed-counts", Produced(key=STR, value=STR))
    return builder.build()


@pytest.mark.parametrize("place", ["constructor", "init"])
def test_a_beginning_that_fails_ends_the_worker_with_the_task_and_the_place(place: str) -> None:
    cluster = Cluster(partitions=1)
    worker = cluster.worker(topology=passing_through(failing(place)))
    with pytest.raises(
        UserCodeError, match=rf"task 0_0: .* in a processor's {place}: ValueError: no database"
    ):
        cluster.run(worker)
    assert worker.state is WorkerState.ERROR
    worker.close()


def test_a_close_that_wants_another_try_gets_none() -> None:
    error = RetriableError("the service of somebody else is away")
    cluster = Cluster(partitions=2)
    worker = cluster.worker(topology=passing_through(failing("close", error)))
    cluster.feed(["to", "be"], OLD_MS)
    cluster.run(worker)
    assert worker.stop(cluster.clock.now_ms())
    assert worker.state is WorkerState.NOT_RUNNING


def test_a_close_that_fails_is_told_and_keeps_nobody_from_taking_over() -> None:
    cluster = Cluster(partitions=2)
    cluster.feed(["to", "be"], OLD_MS)
    one = cluster.worker("one", topology=passing_through(failing("close")))
    cluster.run(one)
    with capture_logs() as logs:
        two = cluster.worker("two", topology=passing_through(failing("close")))
        cluster.settle(one, two)
        assert one.stop(cluster.clock.now_ms())
    told = [entry for entry in logs if entry["event"] == "a task did not close as it should"]
    assert len(told) == 3  # both of them at the rebalance, and one at the stop
    assert all("failed in a processor's close: ValueError" in entry["reason"] for entry in told)
    cluster.settle(two)
    assert len(two._tasks.running) == 2
