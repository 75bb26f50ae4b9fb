"""Rows that fail in user code, in a running worker: what else was counted stays as it was."""

from typing import Any

import pytest
from tests.unit.runtime.simulated import START_MS, Cluster, word_count

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

GUARANTEES = ("at_least_once", "exactly_once_v2")
OLD_MS = START_MS - 100_000


def picky(_key: object, word: str) -> str:
    if word == "bad":
        raise ValueError("no such word")
    return word


class Picky(Processor):
    """Fails as late as it can: after it has forwarded."""

    def init(self, context: ProcessorContext) -> None:
        self._context = context

    def process(self, key: Any, value: Any) -> None:
        self._context.forward(key, value)
        picky(key, value)


def with_a_processor(processor: type[Processor] = Picky) -> Topology:
    builder = StreamsBuilder()
    (
        builder.stream("words", Consumed(key=STR, value=STR))
        .process(processor)
        .group_by(picky, Grouped(key=STR, value=STR))
        .windowed_by(tumbling(size_ms=10_000))
        .count(Materialized("windowed-counts"))
        .to_stream()
        .to("windowed-counts", Produced(key=windowed_serde(STR), value=INT64))
    )
    return builder.build()


def run(guarantee: str, topology: Topology) -> Cluster:
    """Bad words among good ones, and always some good ones sent since the last commit."""
    cluster = Cluster(partitions=1, guarantee=guarantee)
    worker = cluster.worker(topology=topology, task={"processing_error": "continue"})
    cluster.run(worker)
    for turn in range(30):
        cluster.feed(["to"] * 10, OLD_MS)
        if turn % 7 == 3:
            cluster.broker.write("words", None, b"bad", OLD_MS, 0)
        cluster.run(worker, turns=1)
    cluster.settle(worker)
    assert cluster.lag() == 0
    dropped = worker.metrics.value("streamcore_rows_dropped_total", task="0_0", reason="processing")
    assert dropped == 4
    return cluster


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_row_that_fails_in_a_stateless_step_makes_nothing_be_counted_twice(
    guarantee: str,
) -> None:
    cluster = run(guarantee, word_count(picky))
    assert cluster.counts() == dict(cluster.fed)


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_row_that_fails_in_a_processor_is_found_by_rebuilding(guarantee: str) -> None:
    cluster = run(guarantee, with_a_processor())
    if guarantee == "exactly_once_v2":
        assert cluster.counts() == dict(cluster.fed)
    else:  # what was sent since the last commit is sent again
        assert cluster.counts().keys() == cluster.fed.keys()
        assert all(cluster.counts()[key] >= count for key, count in cluster.fed.items())
