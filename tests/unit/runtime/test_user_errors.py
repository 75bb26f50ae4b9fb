"""What user code raises with a class of the engine's own, or where no record is processed."""

from collections.abc import Callable
from typing import Any

import pytest
from structlog.testing import capture_logs
from tests.unit.runtime.simulated import START_MS, Cluster

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
    tumbling,
    windowed_serde,
)
from streamcore.errors import RetriableError, UserCodeError
from streamcore.runtime.lifecycle import WorkerState

OLD_MS = START_MS - 100_000
GUARANTEES = ("at_least_once", "exactly_once_v2")
PLACES = ("map", "process", "timer", "behind the count", "init")


class Trouble:
    """Raises once in one place, when armed."""

    def __init__(self, place: str) -> None:
        self._place = place
        self.armed = False
        self.raised = 0

    def at(self, place: str) -> None:
        if self.armed and place == self._place:
            self.armed = False
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
        trouble.armed = True
    worker = cluster.worker(topology=topology(trouble), commit_interval_ms=1_000)
    cluster.run(worker)
    for turn in range(12):
        cluster.feed(["to", "be"] * 5, OLD_MS + turn * 10_000)
        trouble.armed |= turn == 5 and place != "init"
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


def failing(place: str) -> type[Processor]:
    class Failing(Processor):
        def init(self, context: ProcessorContext) -> None:
            self._context = context
            self._fail("init")

        def process(self, key: Any, value: Any) -> None:
            self._context.forward(key, value)

        def close(self) -> None:
            self._fail("close")

        def _fail(self, at: str) -> None:
            if at == place:
                raise ValueError("no database")

    return Failing


def passing_through(processor: type[Processor]) -> Topology:
    builder = StreamsBuilder()
    words = builder.stream("words", Consumed(key=STR, value=STR)).process(processor)
    words.to("windowed-counts", Produced(key=STR, value=STR))
    return builder.build()


def test_an_init_that_fails_ends_the_worker_with_the_task_and_the_place() -> None:
    cluster = Cluster(partitions=1)
    worker = cluster.worker(topology=passing_through(failing("init")))
    with pytest.raises(
        UserCodeError, match=r"task 0_0: .* in a processor's init: ValueError: no database"
    ):
        cluster.run(worker)
    assert worker.state is WorkerState.ERROR
    worker.close()


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
