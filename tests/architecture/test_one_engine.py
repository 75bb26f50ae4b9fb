"""One engine: the test driver and a worker on a broker do the same with the same records.

Commits fall where they fall, so what is compared is what they may not change: the newest result of
each key with its timestamp, the newest entry of each key in the changelog, both in their
partitions; the rows of the repartition topic; the group's offsets and clocks; the drops.
"""

from collections.abc import Iterable
from typing import Any, Protocol

import pytest

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
from streamcore.model import TopicPartition
from streamcore.runtime.settings import WorkerSettings
from streamcore.runtime.worker import create_worker
from streamcore.task import TaskConfig
from streamcore.task.metadata import decode
from streamcore.testing.broker import InMemoryBroker
from streamcore.testing.clock import ManualClock
from streamcore.testing.driver import TopologyTestDriver
from streamcore.topology.naming import Names

NAMES = Names("", "app")
PARTITIONS = 3
NOW_MS = 1_700_000_000_000
REPARTITION, CHANGELOG = "app-counts-repartition", "app-counts-changelog"

RECORDS = [
    (row // 3 % PARTITIONS, f"word-{row % 7}" if row % 31 else None, NOW_MS + row * 97 % 25_000)
    for row in range(400)
]


def topology(final: bool) -> Topology:
    builder = StreamsBuilder()
    table = (
        builder.stream("words", Consumed(key=STR, value=STR))
        .group_by(lambda _key, word: word, Grouped(key=STR, value=STR))
        .windowed_by(tumbling(size_ms=1_000, grace_ms=7_000))
        .count(Materialized("counts"))
    )
    table = table.suppress() if final else table
    table.to_stream().to("out", Produced(key=windowed_serde(STR, size_ms=1_000), value=INT64))
    return builder.build()


class Row(Protocol):
    """A record as the driver and as the broker keep it."""

    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def stamp_ms(self) -> int: ...
    @property
    def headers(self) -> Any: ...


def newest(rows: Iterable[Row]) -> dict[bytes | None, Any]:
    return {row.key: (row.value, row.stamp_ms, tuple(row.headers)) for row in rows}


def in_any_order(rows: Iterable[Row]) -> list[Any]:
    return sorted((row.key, row.value, row.stamp_ms) for row in rows if row.key is not None)


Seen = dict[str, Any]


def seen(read: Any, committed: Any, drops: dict[str, int]) -> Seen:
    every = range(PARTITIONS)
    return {
        "out": [newest(read("out", p)) for p in every],
        "changelog": [newest(read(CHANGELOG, p)) for p in every],
        "repartition": [in_any_order(read(REPARTITION, p)) for p in every],
        "offsets": [(at.offset, decode(at.metadata).clock_ms) for at in map(committed, every)],
        "drops": drops,
    }


def by_the_driver(final: bool, exactly_once: bool) -> Seen:
    with TopologyTestDriver(
        topology(final), partitions=PARTITIONS, exactly_once=exactly_once, batch_rows=50
    ) as driver:
        for partition, word, at_ms in RECORDS:
            driver.input("words").pipe(None, word, at_ms=at_ms, partition=partition)
        driver.commit()
        return seen(
            lambda topic, partition: driver.log(topic).get(partition, []),
            lambda partition: driver.committed("words", partition),
            driver.dropped(),
        )


def by_a_worker(final: bool, exactly_once: bool) -> Seen:
    clock = ManualClock(NOW_MS)
    broker = InMemoryBroker(clock)
    for topic in ("words", "out"):
        broker.create(topic, PARTITIONS)
    for partition, word, at_ms in RECORDS:
        broker.write("words", None, None if word is None else word.encode(), at_ms, partition)
    world = broker.world(NAMES.group)
    settings = WorkerSettings(
        task=TaskConfig(markers_in_cut=exactly_once),
        guarantee="exactly_once_v2" if exactly_once else "at_least_once",
    )
    worker = create_worker(topology(final), NAMES, settings, world)
    worker.start(NOW_MS)
    for _ in range(100):
        worker.turn(clock.now_ms())
        clock.advance(200)
    tasks = worker._tasks.running.values()
    drops: dict[str, int] = {}
    for task in tasks:
        for reason, count in task.counters.items():
            drops[reason] = drops.get(reason, 0) + count
    offsets = broker.group(NAMES.group).offsets
    found = seen(broker.read, lambda partition: offsets[TopicPartition("words", partition)], drops)
    worker.close()
    return found


@pytest.mark.parametrize("exactly_once", [False, True])
@pytest.mark.parametrize("final", [False, True])
def test_the_driver_and_a_worker_give_the_same(final: bool, exactly_once: bool) -> None:
    driven, worked = by_the_driver(final, exactly_once), by_a_worker(final, exactly_once)
    for what, expected in driven.items():
        assert worked[what] == expected, what
    assert driven["drops"]["late"] > 0
    assert driven["drops"]["null_key"] > 0
    assert sum(map(bool, driven["out"])) > 1
