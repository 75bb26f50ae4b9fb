"""How many partitions everything gets, and which counts cannot work together."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamcore import (
    STR,
    Consumed,
    Grouped,
    KStream,
    Materialized,
    Processor,
    Produced,
    StreamsBuilder,
    TopologyError,
    key_value_store,
)
from streamcore.topology.graph import partition_counts

GROUPED = Grouped(key=STR, value=STR)
TEXT = Produced(key=STR, value=STR)


class Passing(Processor):
    def process(self, key: Any, value: Any) -> None:
        self.context.forward(key, value)


def take_value(_key: Any, value: Any) -> Any:
    return value


def read(builder: StreamsBuilder, *topics: str) -> KStream:
    return builder.stream(topics, Consumed(key=STR, value=STR))


@given(st.integers(1, 50), st.integers(1, 50))
def test_a_repartition_topic_is_as_wide_as_its_writers_widest_source(a: int, b: int) -> None:
    builder = StreamsBuilder()
    merged = read(builder, "a").merge(read(builder, "b"))
    merged.group_by(take_value, GROUPED).count(Materialized("counts"))
    found = partition_counts(builder.build(), {"a": a, "b": b, "unrelated": 3})
    widest = max(a, b)
    assert found.tasks == {0: widest, 1: widest}
    assert found.repartitions == {"counts-repartition": widest}
    assert found.changelogs == {"counts-changelog": widest}
    assert [found.of(topic) for topic in ("a", "b", "counts-changelog")] == [a, b, widest]


def test_a_chain_of_repartition_topics_keeps_the_width() -> None:
    builder = StreamsBuilder()
    first = read(builder, "in").group_by(take_value, GROUPED).count(Materialized("one", value=STR))
    second = first.to_stream().group_by(take_value, GROUPED).count(Materialized("two"))
    second.to_stream().group_by(take_value, Grouped(key=STR)).count(Materialized("three"))
    found = partition_counts(builder.build(), {"in": 5})
    assert found.tasks == {0: 5, 1: 5, 2: 5, 3: 5}
    assert set(found.repartitions.values()) == set(found.changelogs.values()) == {5}


def test_sources_that_fill_one_store_must_be_equal_and_the_message_has_both() -> None:
    builder = StreamsBuilder()
    read(builder, "a", "b").group_by_key().count()
    topology = builder.build()
    assert partition_counts(topology, {"a": 4, "b": 4}).tasks == {0: 4}
    with pytest.raises(TopologyError, match=r"'a' \(4 partitions\) and 'b' \(3 partitions\)"):
        partition_counts(topology, {"a": 4, "b": 3})


def test_a_store_that_processors_share_makes_their_sources_equal() -> None:
    builder = StreamsBuilder()
    shared = key_value_store("shared", key=STR, value=STR)
    read(builder, "a").process(Passing, [shared])
    read(builder, "b").process(Passing, [shared])
    with pytest.raises(TopologyError, match=r"'a'.*'b'"):
        partition_counts(builder.build(), {"a": 1, "b": 2})


def test_stores_that_overlap_make_all_their_sources_equal() -> None:
    builder = StreamsBuilder()
    one, two = (key_value_store(name, key=STR, value=STR) for name in ("one", "two"))
    read(builder, "a").process(Passing, [one])
    read(builder, "b").process(Passing, [one, two])
    read(builder, "c").process(Passing, [two])
    topology = builder.build()
    assert partition_counts(topology, {"a": 2, "b": 2, "c": 2}).changelogs == {
        "one-changelog": 2,
        "two-changelog": 2,
    }
    with pytest.raises(TopologyError, match=r"'a'.*'c'"):
        partition_counts(topology, {"a": 2, "b": 2, "c": 3})


def test_a_repartition_topic_is_made_as_wide_as_the_topic_it_meets() -> None:
    builder = StreamsBuilder()
    shared = key_value_store("shared", key=STR, value=STR)
    moved = read(builder, "narrow").group_by(take_value, GROUPED).count(Materialized("counts"))
    moved.to_stream().process(Passing, [shared])
    read(builder, "wide").process(Passing, [shared])
    found = partition_counts(builder.build(), {"narrow": 2, "wide": 6})
    assert found.repartitions == {"counts-repartition": 6}
    assert sorted(found.tasks.values()) == [2, 6]
    assert found.changelogs == {"counts-changelog": 6, "shared-changelog": 6}


def test_repartition_topics_that_meet_are_made_equal() -> None:
    builder = StreamsBuilder()
    shared = key_value_store("shared", key=STR, value=STR)
    for topic in ("a", "b"):
        by = read(builder, topic).group_by(take_value, GROUPED)
        by.count(Materialized(f"{topic}-counts")).to_stream().process(Passing, [shared])
    found = partition_counts(builder.build(), {"a": 2, "b": 7})
    assert found.repartitions == {"a-counts-repartition": 7, "b-counts-repartition": 7}


def test_a_table_read_from_a_topic_needs_no_changelog() -> None:
    builder = StreamsBuilder()
    builder.table("compacted", Consumed(key=STR, value=STR), Materialized("known"))
    assert partition_counts(builder.build(), {"compacted": 3}).changelogs == {}


def test_a_missing_source_topic_is_named() -> None:
    builder = StreamsBuilder()
    read(builder, "here", "gone").to("out")
    with pytest.raises(TopologyError, match="gone"):
        partition_counts(builder.build(), {"here": 1})


@pytest.mark.parametrize("out", [{}, {"out": 3}, {"out": 5}])
def test_writing_to_the_same_partition_wants_as_many(out: dict[str, int]) -> None:
    builder = StreamsBuilder()
    read(builder, "lines").to("out", Produced(same_partition=True))
    topology = builder.build()
    assert partition_counts(topology, {"lines": 4, "out": 4}).tasks == {0: 4}
    with pytest.raises(TopologyError, match=r"lines \(4 partitions\) and 'out'"):
        partition_counts(topology, {"lines": 4, **out})
