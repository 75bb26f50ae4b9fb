"""Our describe() and Java's, byte for byte.

`describe.txt` is what `Describe.java` printed with Kafka Streams 4.3.1; each topology there has its
twin here. `test_recorder.py` runs it again (marker java).
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from streamcore import (
    INT64,
    STR,
    Consumed,
    Grouped,
    KStream,
    Materialized,
    Processor,
    Produced,
    StreamsBuilder,
    key_value_store,
    tumbling,
    windowed_serde,
)

Build = Callable[[StreamsBuilder], object]

TEXT = Produced(key=STR, value=STR)
GROUPED = Grouped(key=STR, value=STR)
# What Java (Kafka Streams 4.1.1) printed for the article's topology; see also test_aggregator.py.
ARTICLE = """\
Topologies:
   Sub-topology: 0
    Source: KSTREAM-SOURCE-0000000000 (topics: [rec-words])
      --> KSTREAM-KEY-SELECT-0000000001
    Processor: KSTREAM-KEY-SELECT-0000000001 (stores: [])
      --> windowed-counts-repartition-filter
      <-- KSTREAM-SOURCE-0000000000
    Processor: windowed-counts-repartition-filter (stores: [])
      --> windowed-counts-repartition-sink
      <-- KSTREAM-KEY-SELECT-0000000001
    Sink: windowed-counts-repartition-sink (topic: windowed-counts-repartition)
      <-- windowed-counts-repartition-filter

  Sub-topology: 1
    Source: windowed-counts-repartition-source (topics: [windowed-counts-repartition])
      --> KSTREAM-AGGREGATE-0000000002
    Processor: KSTREAM-AGGREGATE-0000000002 (stores: [windowed-counts])
      --> KTABLE-TOSTREAM-0000000006
      <-- windowed-counts-repartition-source
    Processor: KTABLE-TOSTREAM-0000000006 (stores: [])
      --> KSTREAM-SINK-0000000007
      <-- KSTREAM-AGGREGATE-0000000002
    Sink: KSTREAM-SINK-0000000007 (topic: rec-out2)
      <-- KTABLE-TOSTREAM-0000000006

"""


class Passing(Processor):
    def process(self, key: Any, value: Any) -> None:
        self.context.forward(key, value)


def same(value: Any) -> Any:
    return value


def pair(key: Any, value: Any) -> tuple[Any, Any]:
    return key, value


def take_value(_key: Any, value: Any) -> Any:
    return value


def yes(_key: Any, _value: Any) -> bool:
    return True


def newer(_old: Any, value: Any) -> Any:
    return value


def read(builder: StreamsBuilder, *topics: str) -> KStream:
    return builder.stream(topics, Consumed(key=STR, value=STR))


def stateless(b: StreamsBuilder) -> None:
    stream = read(b, "in").map(pair).filter(yes).filter_not(yes)
    stream = stream.flat_map(lambda k, v: [(k, v)]).flat_map_values(list).map_values(same)
    stream.peek(yes).select_key(take_value).to("out", TEXT)


def split(b: StreamsBuilder) -> None:
    branches = read(b, "in").split().branch(yes).branch(yes, "-second").default_branch()
    for i, branch in enumerate(branches.values()):
        for _ in range(i):
            branch = branch.map_values(same)  # noqa: PLW2901
        branch.to(f"out{i}", TEXT)


def split_named(b: StreamsBuilder) -> None:
    read(b, "in").split("by-").branch(yes, "small").no_default_branch()["by-small"].to("out", TEXT)


def merge(b: StreamsBuilder) -> None:
    merged = read(b, "a").merge(read(b, "b"))
    merged.select_key(take_value).group_by_key(GROUPED).count().to_stream().to("out")


def unnamed(b: StreamsBuilder) -> None:
    by = read(b, "in").group_by_key(GROUPED)
    by.count(Materialized(key=STR, value=INT64))
    by.reduce(newer).filter(yes).map_values(same).to_stream().to("out", TEXT)
    by.aggregate(str, lambda k, v, a: a, Materialized("third", key=STR, value=STR))


def shared_grouping(b: StreamsBuilder) -> None:
    by = read(b, "in").group_by(take_value, Grouped(key=STR, value=STR, name="by-word"))
    by.count(Materialized("counts"), name="counting")
    latest = by.reduce(newer, Materialized("latest")).to_stream(name="flow")
    latest.to("out", Produced(name="ending"))


def two_groupings(b: StreamsBuilder) -> None:
    by = read(b, "in").group_by(take_value, GROUPED)
    by.count()
    by.windowed_by(tumbling(size_ms=10_000)).count()


def sources(b: StreamsBuilder) -> None:
    read(b, "words", "lines", "a", "topic-4", "b").to("all")
    read(b, "again").to("one")
    read(b, "again").map_values(same).to("two", TEXT)


def tables(b: StreamsBuilder) -> None:
    table = b.table("compacted", Consumed(key=STR, value=STR), Materialized("known"))
    table.filter_not(yes).to_stream().to("out")
    kept = Materialized("kept", key=STR, value=STR)
    read(b, "in").select_key(take_value).to_table(kept, name="newest")
    read(b, "other").map(pair).to_table(Materialized("moved", key=STR, value=STR))


def table_named(b: StreamsBuilder) -> None:
    them = Consumed(key=STR, value=STR, name="them")
    b.table("compacted", them, Materialized("known")).to_stream().to("out")


def processors(b: StreamsBuilder) -> None:
    b.add_store(key_value_store("beta", key=STR, value=STR))
    b.add_store(key_value_store("alpha", key=STR, value=STR))
    first = read(b, "in").process(Passing, ["beta", "alpha"])
    first.process(Passing, name="mine").to("out", TEXT)
    read(b, "separate").process(Passing, ["alpha"])
    read(b, "alone").process(Passing)


def wide(b: StreamsBuilder) -> None:
    stream = read(b, "in")
    for i in range(3):
        branch = stream
        for _ in range(3 - i):
            branch = branch.peek(yes)
        branch.to(f"out{i}")


def windowed(b: StreamsBuilder) -> None:
    by = read(b, "in").group_by(take_value, GROUPED).windowed_by(tumbling(size_ms=10_000))
    final = by.reduce(newer, Materialized("latest")).suppress().filter(yes)
    final.to_stream().select_key(lambda k, v: k.key).to("out", TEXT)


TWINS: dict[str, Build] = {
    "stateless": stateless,
    "split": split,
    "split-named": split_named,
    "merge": merge,
    "unnamed": unnamed,
    "shared-grouping": shared_grouping,
    "two-groupings": two_groupings,
    "sources": sources,
    "tables": tables,
    "table-named": table_named,
    "processors": processors,
    "wide": wide,
    "windowed": windowed,
}


def recorded() -> dict[str, str]:
    text = Path(__file__).with_name("describe.txt").read_text(encoding="utf-8")
    parts = re.split(r"^== (.*)\n", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_the_article_is_described_as_by_java() -> None:
    builder = StreamsBuilder()
    counts = (
        builder.stream("rec-words", Consumed(key=STR, value=STR))
        .group_by(take_value, GROUPED)
        .windowed_by(tumbling(size_ms=10_000, grace_ms=5_000))
        .count(Materialized("windowed-counts"))
    )
    counts.to_stream().to("rec-out2", Produced(key=windowed_serde(STR), value=INT64))
    assert builder.build().describe() == ARTICLE


@pytest.mark.parametrize("name", list(TWINS))
def test_a_topology_is_described_as_by_java(name: str) -> None:
    builder = StreamsBuilder()
    TWINS[name](builder)
    java = recorded()[name]
    # The one difference that is meant: our suppress needs no buffer beside the window store.
    java = re.sub(r"KTABLE-SUPPRESS-STATE-STORE-\d+", "", java)
    assert builder.build().describe() == java


def test_every_recorded_topology_has_its_twin() -> None:
    assert list(recorded()) == list(TWINS)
