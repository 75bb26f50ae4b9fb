"""A table whose source topic is its changelog: restoring ends where the group has committed."""

from typing import Any

from tests.unit.runtime.simulated import START_MS, Cluster

from streamcore import (
    STR,
    Consumed,
    Materialized,
    Processor,
    ProcessorContext,
    Produced,
    StreamsBuilder,
    Topology,
)


class Lookup(Processor):
    def init(self, context: ProcessorContext) -> None:
        self._context = context
        self._store = context.store("names")

    def process(self, key: Any, value: Any) -> None:
        self._context.forward(key, f"{value} {self._store.get(key)}")


def lookup() -> Topology:
    builder = StreamsBuilder()
    builder.table("names", Consumed(key=STR, value=STR), Materialized("names"))
    (
        builder.stream("events", Consumed(key=STR, value=STR))
        .process(Lookup, stores=("names",))
        .to("found", Produced(key=STR, value=STR))
    )
    return builder.build()


def test_a_restored_table_holds_nothing_that_was_not_yet_consumed() -> None:
    """Both wait behind the commit, in one batch of the reader with what lies in front of it."""
    cluster = Cluster(partitions=1)
    broker = cluster.broker
    for topic in ("names", "events", "found"):
        broker.create(topic, 1)
    broker.write("names", b"k", b"old", START_MS, 0)
    broker.write("events", b"k", b"first", START_MS + 1, 0)
    first = cluster.worker("a", lookup())
    cluster.run(first, turns=20)
    assert first.stop(cluster.clock.now_ms())
    broker.write("events", b"k", b"second", START_MS + 2, 0)
    broker.write("names", b"k", b"new", START_MS + 100, 0)
    second = cluster.worker("b", lookup())
    cluster.run(second, turns=20)
    assert [row.value for row in broker.read("found")] == [b"first old", b"second old"]
