"""Headers belong to one record (P12): none vanish in a hop, none stick to the next record."""

from typing import Any

import pytest

from streamcore import (
    INT64,
    STR,
    Consumed,
    Grouped,
    Materialized,
    Processor,
    Produced,
    StreamsBuilder,
    Topology,
)
from streamcore.model import Headers
from streamcore.testing.driver import TopologyTestDriver

TRACE: Headers = (("trace", b"1"),)
SEVERAL: Headers = (("k", b"1"), ("k", b"2"), ("n", None))
ADDED: Headers = (("added", b"x"),)
LINES: list[tuple[str, Headers]] = [("a b", TRACE), ("c", ()), ("d", SEVERAL)]
EXPECTED = {"a": TRACE + ADDED, "b": TRACE, "c": (), "d": SEVERAL}


class AddToA(Processor):
    def process(self, key: Any, value: Any) -> None:
        own = self.context.headers
        self.context.forward(key, value, headers=own + ADDED if value == "a" else own)


class Pass(Processor):
    def process(self, key: Any, value: Any) -> None:
        self.context.forward(key, value)


def words(after: type[Processor] = Pass) -> Topology:
    builder = StreamsBuilder()
    (
        builder.stream("lines", Consumed(key=STR, value=STR))
        .flat_map_values(str.split)
        .process(AddToA)
        .select_key(lambda _key, word: word)
        .to_table(Materialized("words", key=STR, value=STR))
        .to_stream()
        .process(after)
        .to("out", Produced(key=STR, value=STR))
    )
    return builder.build()


@pytest.mark.parametrize("batch_rows", [1, 2, 100])
@pytest.mark.parametrize("partitions", [1, 3])
def test_headers_stay_with_their_record_through_a_repartition_topic(
    batch_rows: int, partitions: int
) -> None:
    with TopologyTestDriver(words(), batch_rows=batch_rows, partitions=partitions) as driver:
        driver.auto_run = False
        for line, headers in LINES:
            driver.input("lines").pipe("k", line, at_ms=1, headers=headers)
        driver.run()
        driver.commit()
        assert {r.value: r.headers for r in driver.output("out").read()} == EXPECTED
        changelog = driver.log("app-words-changelog")
        assert {entry.headers for entries in changelog.values() for entry in entries} == {()}


def test_a_clock_that_travelled_in_a_header_is_seen_by_nobody() -> None:
    """Out of order, with a processor behind the topic: the clock travels with every such row."""
    with TopologyTestDriver(words()) as driver:
        driver.auto_run = False
        for at_ms, headers in ((50, ()), (10, TRACE), (20, ())):
            driver.input("lines").pipe("k", str(at_ms), at_ms=at_ms, headers=headers)
        driver.run()
        driver.commit()
        (topic,) = driver.topology.sub_topologies[0].repartition_sinks
        travelled = [
            name
            for entry in driver.log(driver.names.internal(topic))[0]
            for name, _ in entry.headers
            if entry.key is not None
        ]
        assert travelled == ["trace", "sc-clock", "sc-clock"]
        found = {r.value: r.headers for r in driver.output("out").read()}
        assert found == {"50": (), "10": TRACE, "20": ()}


def test_an_aggregate_carries_the_headers_of_its_last_record() -> None:
    builder = StreamsBuilder()
    grouped = builder.stream("in", Consumed(key=STR, value=STR)).group_by(
        lambda _key, value: value, Grouped(key=STR)
    )
    grouped.count(Materialized("counts")).to_stream().to("out", Produced(key=STR, value=INT64))
    grouped.reduce(lambda _old, new: new, Materialized("last")).to_stream().to("last-out")
    with TopologyTestDriver(builder.build()) as driver:
        pipe = driver.input("in").pipe
        for word, headers in [("x", TRACE), ("y", ADDED), ("x", ()), ("z", ()), ("y", SEVERAL)]:
            pipe("k", word, at_ms=1, headers=headers)
        driver.commit()
        expected = {"x": (), "y": SEVERAL, "z": ()}
        assert {r.key: r.headers for r in driver.output("out").read()} == expected
        assert {r.key: r.headers for r in driver.output("last-out").read()} == expected
