"""A processor that reads the store of a table or of an aggregation sees what came before."""

from typing import Any

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
    tumbling,
)
from streamcore.testing.driver import TopologyTestDriver


class Lookup(Processor):
    """Forwards what the store holds for each record's key."""

    def __init__(self, store: str) -> None:
        self._name = store

    def init(self, context: ProcessorContext) -> None:
        self._context = context
        self._store = context.store(self._name)

    def process(self, key: Any, value: Any) -> None:
        found = self._store.get(key, 0) if self._name == "counts" else self._store.get(key)
        self._context.forward(key, found)


def test_a_lookup_in_a_table_does_not_wait_for_a_commit() -> None:
    builder = StreamsBuilder()
    builder.table("names", Consumed(key=STR, value=STR), Materialized("names"))
    (
        builder.stream("events", Consumed(key=STR, value=STR))
        .process(lambda: Lookup("names"), stores=("names",))
        .to("found", Produced(key=STR, value=STR))
    )
    with TopologyTestDriver(builder.build()) as driver:
        driver.input("names").pipe("k", "one", at_ms=1)
        driver.input("events").pipe("k", "", at_ms=2)
        driver.input("names").pipe("k", "two", at_ms=3)
        driver.input("events").pipe("k", "", at_ms=4)
        assert [row.value for row in driver.output("found").read()] == ["one", "two"]


def test_a_lookup_in_counts_does_not_wait_for_a_commit() -> None:
    builder = StreamsBuilder()
    (
        builder.stream("words", Consumed(key=STR, value=STR))
        .group_by_key(Grouped(key=STR, value=STR))
        .windowed_by(tumbling(size_ms=10))
        .count(Materialized("counts"))
    )
    (
        builder.stream("events", Consumed(key=STR, value=STR))
        .process(lambda: Lookup("counts"), stores=("counts",))
        .to("found", Produced(key=STR, value=INT64))
    )
    with TopologyTestDriver(builder.build()) as driver:
        driver.input("words").pipe("k", "", at_ms=1)
        driver.input("words").pipe("k", "", at_ms=2)
        driver.input("events").pipe("k", "", at_ms=3)
        assert [row.value for row in driver.output("found").read()] == [2]
