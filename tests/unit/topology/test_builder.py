"""What the builder makes of what was said, and what it refuses to build."""

from collections.abc import Callable
from typing import Any

import pytest

from streamcore import (
    BYTES,
    INT64,
    JSON,
    STR,
    Consumed,
    ExternalStore,
    Grouped,
    KStream,
    KTable,
    Materialized,
    Processor,
    Produced,
    StreamsBuilder,
    Topology,
    TopologyError,
    key_value_store,
    tumbling,
    window_store,
    windowed_serde,
)
from streamcore.topology.nodes import (
    Aggregate,
    Branch,
    Process,
    RowOp,
    Sink,
    Source,
    Stateless,
    StoreSpec,
    TableStore,
)

DAY_MS = 86_400_000
GROUPED = Grouped(key=STR, value=STR)
TEXT = Produced(key=STR, value=STR)


class Passing(Processor):
    def process(self, key: Any, value: Any) -> None:
        self.context.forward(key, value)


def no_store() -> ExternalStore:
    raise NotImplementedError


def take_value(_key: Any, value: Any) -> Any:
    return value


def add(_key: Any, value: Any, old: Any) -> Any:
    return old + value


def yes(_key: Any, _value: Any) -> bool:
    return True


def read(builder: StreamsBuilder, topic: str = "in") -> KStream:
    return builder.stream(topic, Consumed(key=STR, value=STR))


def windowed_counts(builder: StreamsBuilder, retention_ms: int | None = None) -> KTable[KStream]:
    by = read(builder).group_by(take_value, GROUPED)
    windows = tumbling(size_ms=10_000, grace_ms=5_000)
    return by.windowed_by(windows).count(Materialized("counts", retention_ms=retention_ms))


def store(topology: Topology, name: str) -> StoreSpec:
    return next(s for sub in topology.sub_topologies for s in sub.stores if s.name == name)


# --- serdes -----------------------------------------------------------------------------------


def test_serdes_are_inherited_down_to_the_sink() -> None:
    builder = StreamsBuilder()
    read(builder).filter(yes).peek(yes).split().branch(yes).default_branch()
    read(builder).filter_not(yes).to("out")
    sink = builder.build().nodes["KSTREAM-SINK-0000000008"]
    assert isinstance(sink, Sink)
    assert (sink.key, sink.value) == (STR, STR)


def test_a_windowed_table_has_windowed_keys_that_can_be_read_again() -> None:
    builder = StreamsBuilder()
    windowed_counts(builder).to_stream().to("out")
    sink = builder.build().nodes["KSTREAM-SINK-0000000007"]
    assert isinstance(sink, Sink)
    assert sink.key.inner is STR
    assert sink.key.readable
    assert sink.value is INT64


def test_grouping_keeps_the_value_serde() -> None:
    builder = StreamsBuilder()
    read(builder).group_by(take_value, Grouped(key=JSON)).count(Materialized("counts"))
    source = builder.build().nodes["counts-repartition-source"]
    assert isinstance(source, Source)
    assert (source.key, source.value, source.internal) == (JSON, STR, True)


def test_a_merge_keeps_the_serdes_that_both_share() -> None:
    builder = StreamsBuilder()
    other = builder.stream("other", Consumed(key=STR, value=JSON))
    merged = read(builder).merge(other)
    merged.to("out", Produced(value=BYTES))
    with pytest.raises(TopologyError, match="no value serde"):
        merged.to("out")


MISSING: list[tuple[str, Callable[[KStream], object]]] = [
    ("KSTREAM-SINK-0000000002' has no key serde", lambda s: s.map(lambda k, v: (k, v)).to("out")),
    ("KSTREAM-SINK-0000000002' has no value serde", lambda s: s.map_values(str).to("out")),
    ("no key serde; give it with Materialized", lambda s: s.group_by(take_value).count()),
    (
        "counts-repartition-sink' has no key serde; give it with Grouped",
        lambda s: s.group_by(take_value).count(Materialized("counts", key=STR)),
    ),
    (
        "no value serde; give it with Materialized",
        lambda s: s.group_by_key().aggregate(str, lambda k, v, a: a),
    ),
    ("can only write", lambda s: s.group_by_key(Grouped(key=windowed_serde(STR))).count()),
    ("no key serde", lambda s: s.select_key(take_value).to_table()),
    ("no key serde", lambda s: s.process(Passing).to("out")),
]


@pytest.mark.parametrize(("message", "make"), MISSING, ids=[message for message, _ in MISSING])
def test_a_missing_serde_is_refused_where_it_is_needed(
    message: str, make: Callable[[KStream], object]
) -> None:
    with pytest.raises(TopologyError, match=message):
        make(read(StreamsBuilder()))


def test_a_source_cannot_read_windowed_keys_without_their_size() -> None:
    with pytest.raises(TopologyError, match="size_ms"):
        StreamsBuilder().stream("in", Consumed(key=windowed_serde(STR), value=STR))


# --- repartition topics -----------------------------------------------------------------------


KEPT: list[Callable[[KStream], KStream]] = [
    lambda s: s,
    lambda s: s.filter(yes),
    lambda s: s.map_values(str),
    lambda s: s.flat_map_values(list),
    lambda s: s.peek(yes),
    lambda s: s.split().default_branch()["KSTREAM-BRANCH-00000000010"],
]
CHANGED: list[Callable[[KStream], KStream]] = [
    lambda s: s.map(lambda k, v: (k, v)),
    lambda s: s.flat_map(lambda k, v: []),
    lambda s: s.select_key(take_value),
    lambda s: s.select_key(take_value).filter(yes),
    lambda s: s.merge(s.select_key(take_value)),
    lambda s: s.process(Passing),
]


@pytest.mark.parametrize(
    ("change", "moved"), [(op, False) for op in KEPT] + [(op, True) for op in CHANGED]
)
def test_only_a_key_that_may_have_changed_goes_through_a_repartition_topic(
    change: Callable[[KStream], KStream], moved: bool
) -> None:
    for end in ("count", "to_table"):
        builder = StreamsBuilder()
        stream = change(read(builder))
        if end == "count":
            stream.group_by_key(GROUPED).count(Materialized("kept"))
        else:
            stream.to_table(Materialized("kept", key=STR, value=STR))
        topology = builder.build()
        assert len(topology.sub_topologies) == (2 if moved else 1)
        assert any(sub.repartition_sinks for sub in topology.sub_topologies) is moved


def test_null_keys_are_dropped_in_front_of_a_repartition_topic() -> None:
    builder = StreamsBuilder()
    windowed_counts(builder)
    topology = builder.build()
    node = topology.nodes["counts-repartition-filter"]
    assert isinstance(node, Stateless)
    assert node.op is RowOp.DROP_NULL_KEYS
    assert topology.children(node.name) == ("counts-repartition-sink",)
    first, second = topology.sub_topologies
    assert (first.source_topics, first.repartition_sinks) == (("in",), ("counts-repartition",))
    assert (second.source_topics, second.repartition_sources) == ((), ("counts-repartition",))
    assert [s.changelog for s in second.changelogged] == ["counts-changelog"]


# --- stores -----------------------------------------------------------------------------------


def test_windows_of_a_table_of_updates_stay_a_day_longer() -> None:
    builder = StreamsBuilder()
    windowed_counts(builder).to_stream().to("out")
    assert store(builder.build(), "counts").retention_ms == 15_000 + DAY_MS


FINAL: list[Callable[[KTable[KStream]], KTable[KStream]]] = [
    lambda table: table.suppress(),
    lambda table: table.filter(yes).map_values(str).suppress(),
]


@pytest.mark.parametrize("final", FINAL)
def test_windows_of_a_table_of_finals_stay_until_they_close(
    final: Callable[[KTable[KStream]], KTable[KStream]],
) -> None:
    builder = StreamsBuilder()
    final(windowed_counts(builder)).to_stream().to("out", Produced(value=INT64))
    assert store(builder.build(), "counts").retention_ms == 15_000


def test_one_reader_of_updates_is_enough_to_keep_windows_longer() -> None:
    builder = StreamsBuilder()
    table = windowed_counts(builder)
    table.suppress().to_stream().to("finals")
    table.filter(yes).to_stream().to("updates")
    assert store(builder.build(), "counts").retention_ms == 15_000 + DAY_MS


def test_a_processor_that_reads_the_store_keeps_windows_longer_and_sees_the_same_store() -> None:
    builder = StreamsBuilder()
    windowed_counts(builder).suppress().to_stream().process(Passing, ["counts"], name="reader")
    topology = builder.build()
    reader = topology.nodes["reader"]
    assert isinstance(reader, Process)
    assert reader.stores == (store(topology, "counts"),)
    assert reader.stores[0].retention_ms == 15_000 + DAY_MS


def test_a_retention_of_ones_own_counts_if_it_is_long_enough() -> None:
    builder = StreamsBuilder()
    windowed_counts(builder, retention_ms=15_000)
    assert store(builder.build(), "counts").retention_ms == 15_000
    with pytest.raises(TopologyError, match="at least size_ms"):
        windowed_counts(StreamsBuilder(), retention_ms=14_999)


def test_a_retention_without_windows_is_refused() -> None:
    with pytest.raises(TopologyError, match="for windows only"):
        read(StreamsBuilder()).group_by_key().count(Materialized("counts", retention_ms=1))


def test_what_materialized_says_reaches_the_store() -> None:
    builder = StreamsBuilder()
    settings = {"segment.bytes": "1000"}
    wanted = Materialized(
        "kept",
        JSON,
        JSON,
        logged=False,
        persistent=False,
        cached=False,
        changelog_settings=settings,
    )
    read(builder).to_table(wanted)
    topology = builder.build()
    assert store(topology, "kept") == StoreSpec(
        name="kept",
        key=JSON,
        value=JSON,
        logged=False,
        persistent=False,
        cached=False,
        changelog_settings=settings,
    )
    assert topology.sub_topologies[0].changelogged == ()


def test_the_topic_of_a_table_is_its_changelog() -> None:
    builder = StreamsBuilder()
    builder.table("compacted", Consumed(key=STR, value=STR), Materialized("known"))
    topology = builder.build()
    (sub,) = topology.sub_topologies
    assert sub.table_sources == {"known": "compacted"}
    assert sub.changelogged == ()
    table = topology.nodes["KTABLE-SOURCE-0000000001"]
    assert isinstance(table, TableStore)
    assert table.source_topic == "compacted"


def test_processors_share_a_store_and_so_a_sub_topology() -> None:
    builder = StreamsBuilder()
    shared = key_value_store("shared", key=STR, value=INT64)
    read(builder, "a").process(Passing, [shared])
    read(builder, "b").process(Passing, [shared])
    read(builder, "c").process(Passing)
    topology = builder.build()
    assert [sub.source_topics for sub in topology.sub_topologies] == [("a", "b"), ("c",)]
    assert topology.sub_topologies[0].stores == (shared,)


# --- sharing and naming -----------------------------------------------------------------------


def test_the_same_topic_is_read_once() -> None:
    builder = StreamsBuilder()
    read(builder).to("one")
    read(builder).to("two")
    topology = builder.build()
    assert topology.source_topics == ("in",)
    assert topology.sink_topics == ("one", "two")
    assert topology.children("KSTREAM-SOURCE-0000000000") == (
        "KSTREAM-SINK-0000000001",
        "KSTREAM-SINK-0000000003",
    )


def test_a_named_grouping_shares_one_repartition_topic() -> None:
    builder = StreamsBuilder()
    by = read(builder).group_by(take_value, Grouped(key=STR, value=STR, name="by-word"))
    by.count(Materialized("counts"))
    by.windowed_by(tumbling(size_ms=10)).count(Materialized("windows"))
    topology = builder.build()
    assert topology.sub_topologies[0].repartition_sinks == ("by-word-repartition",)
    assert len(topology.sub_topologies) == 2


def test_a_topology_built_twice_is_the_same() -> None:
    builder = StreamsBuilder()
    windowed_counts(builder).to_stream().to("out")
    assert builder.build() == builder.build()


def test_a_built_topology_does_not_change() -> None:
    builder = StreamsBuilder()
    read(builder).to("out")
    topology = builder.build()
    text = topology.describe()
    read(builder).to("another")
    assert topology.describe() == text
    with pytest.raises(TypeError):
        topology.nodes["x"] = topology.nodes["KSTREAM-SOURCE-0000000000"]  # type: ignore[index]


def test_branches_come_in_the_order_in_which_they_were_written() -> None:
    builder = StreamsBuilder()
    split = read(builder).split("by-").branch(yes, "small").branch(take_value)
    assert list(split.default_branch("rest")) == ["by-small", "by-2", "by-rest"]
    node = builder.build().nodes["by-"]
    assert isinstance(node, Branch)
    assert node.predicates == (yes, take_value)
    assert node.outputs == ("by-small", "by-2", "by-rest")


def test_the_rest_of_a_split_without_default_is_dropped() -> None:
    builder = StreamsBuilder()
    split = read(builder).split()
    assert len(split.branch(yes).no_default_branch()) == 1
    node = builder.build().nodes["KSTREAM-BRANCH-0000000001"]
    assert isinstance(node, Branch)
    assert len(node.outputs) == len(node.predicates) == 1


def test_what_a_reducer_does_is_in_its_node() -> None:
    builder = StreamsBuilder()
    read(builder).group_by_key().aggregate(int, add, Materialized("sum", value=INT64))
    node = builder.build().nodes["KSTREAM-AGGREGATE-0000000001"]
    assert isinstance(node, Aggregate)
    assert (node.kind.value, node.initializer, node.adder) == ("aggregate", int, add)


# --- refusals ---------------------------------------------------------------------------------


def two_sinks(b: StreamsBuilder) -> None:
    read(b).to("one", Produced(name="sink"))
    read(b).to("two", Produced(name="sink"))


def two_stores(b: StreamsBuilder) -> None:
    read(b).group_by_key().count(Materialized("counts"))
    read(b).group_by_key().count(Materialized("counts"))


def two_groupings(b: StreamsBuilder) -> None:
    for store_name in ("one", "two"):
        by = read(b).group_by(take_value, Grouped(key=STR, value=STR, name="by"))
        by.count(Materialized(store_name))


def overlapping(b: StreamsBuilder) -> None:
    read(b, "a").to("out")
    b.stream(["a", "b"], Consumed(key=STR, value=STR)).to("out")


def table_and_stream(b: StreamsBuilder) -> None:
    read(b, "a").to("out")
    b.table("a", Consumed(key=STR, value=STR))


def other_serde(b: StreamsBuilder) -> None:
    read(b, "a").to("out")
    b.stream("a", Consumed(key=STR, value=JSON)).to("out")


def suppress_twice(b: StreamsBuilder) -> None:
    windowed_counts(b).suppress().suppress()


def shared_store_twice(b: StreamsBuilder) -> None:
    read(b).process(Passing, [key_value_store("s", key=STR, value=STR)])
    read(b).process(Passing, [key_value_store("s", key=STR, value=JSON)])


REFUSED: list[tuple[str, Callable[[StreamsBuilder], object]]] = [
    ("empty", lambda b: None),
    ("two nodes are called 'sink'", two_sinks),
    ("two stores are called 'counts'", two_stores),
    ("two nodes are called 'by'", two_groupings),
    ("both read topic 'a'", overlapping),
    ("both read topic 'a'", table_and_stream),
    ("with other serdes", other_serde),
    ("several different ones", lambda b: b.stream([], Consumed(key=STR, value=STR))),
    ("several different ones", lambda b: b.stream(["a", "a"], Consumed(key=STR, value=STR))),
    ("unknown store 'gone'", lambda b: read(b).process(Passing, ["gone"])),
    ("write stores=", lambda b: read(b).process(Passing, "gone")),
    ("used by nobody", lambda b: b.add_store(key_value_store("s", key=STR, value=STR))),
    ("two stores are called 's'", shared_store_twice),
    ("hold_ms", lambda b: read(b).process(Passing, hold_ms=-1)),
    ("retention_ms is 0", lambda b: window_store("s", key=STR, value=STR, retention_ms=0)),
    ("only a windowed table", lambda b: read(b).group_by_key().count().suppress()),
    ("only a windowed table", lambda b: read(b).to_table().suppress()),
    ("only once", suppress_twice),
    ("topic 'a b'", lambda b: read(b, "a b")),
    ("topic ''", lambda b: read(b, "")),
    ("topic '..'", lambda b: read(b).to("..")),
    ("store 'a/b'", lambda b: read(b).to_table(Materialized("a/b"))),
    ("node 'a b'", lambda b: read(b).filter(yes, "a b")),
    ("topic 'aaaa", lambda b: read(b).group_by(take_value, GROUPED).count(Materialized("a" * 240))),
    ("default branch already", lambda b: (s := read(b).split()).default_branch() and s.branch(yes)),
    ("not both", lambda b: Produced(partitioner=lambda t, k, v, n: 0, same_partition=True)),
    ("two builders", lambda b: read(b).merge(read(StreamsBuilder()))),
    ("endless loop", lambda b: read(b).to("in")),
    ("endless loop", lambda b: read(b).map_values(str).peek(yes).to("in", TEXT)),
    ("no offset of their own", lambda b: windowed_counts(b).to_stream().to_store(no_store)),
]


def finish(builder: StreamsBuilder, make: Callable[[StreamsBuilder], object]) -> None:
    make(builder)
    builder.build()


@pytest.mark.parametrize(("message", "make"), REFUSED)
def test_what_cannot_work_is_refused(
    message: str, make: Callable[[StreamsBuilder], object]
) -> None:
    builder = StreamsBuilder()
    if message != "empty":
        read(builder, "fine").to("fine-out")
    with pytest.raises(TopologyError, match=message):
        finish(builder, make)


def through(b: StreamsBuilder) -> None:
    read(b).to("through")
    read(b, "through").to("out")


ALLOWED: list[Callable[[StreamsBuilder], object]] = [
    lambda b: read(b).filter(yes).to("in"),  # it may end
    lambda b: read(b).process(Passing).to("in", TEXT),
    through,
    lambda b: read(b).filter(yes).to_store(no_store),
    lambda b: read(b).process(Passing, [window_store("s", key=STR, value=STR, retention_ms=9)]),
]


@pytest.mark.parametrize("make", ALLOWED)
def test_what_looks_odd_but_can_work_is_built(make: Callable[[StreamsBuilder], object]) -> None:
    builder = StreamsBuilder()
    make(builder)
    assert builder.build().nodes
