"""Partitions for topics that do not exist yet, so that a topology can start."""

import pytest

from streamcore import STR, Consumed, Materialized, Produced, StreamsBuilder, Topology
from streamcore.errors import TopologyError
from streamcore.topology.graph import fitting_counts, partition_counts

TEXT = Consumed(key=STR, value=STR)


def by_number() -> Topology:
    builder = StreamsBuilder()
    stream = builder.stream("in", TEXT)
    stream.to("out", Produced(key=STR, value=STR, same_partition=True))
    stream.to("free", Produced(key=STR, value=STR))
    return builder.build()


def merged_into_a_table() -> Topology:
    """Two topics whose rows meet in one store."""
    builder = StreamsBuilder()
    merged = builder.stream("one", TEXT).merge(builder.stream("two", TEXT))
    merged.to_table(Materialized("both", key=STR, value=STR))
    return builder.build()


@pytest.mark.parametrize(
    ("given", "chosen"),
    [
        ({}, {"in": 4, "out": 4, "free": 4}),
        ({"in": 7}, {"in": 7, "out": 7, "free": 4}),
        ({"out": 7}, {"in": 7, "out": 7, "free": 4}),
        ({"free": 7}, {"in": 4, "out": 4, "free": 7}),
    ],
)
def test_topics_written_by_number_follow_each_other(
    given: dict[str, int], chosen: dict[str, int]
) -> None:
    counts = fitting_counts(by_number(), given, 4)
    assert counts == chosen
    partition_counts(by_number(), counts)


@pytest.mark.parametrize(
    ("given", "chosen"),
    [
        ({}, {"one": 4, "two": 4}),
        ({"one": 7}, {"one": 7, "two": 7}),
        ({"two": 7}, {"one": 7, "two": 7}),
    ],
)
def test_topics_that_meet_in_a_store_follow_each_other(
    given: dict[str, int], chosen: dict[str, int]
) -> None:
    counts = fitting_counts(merged_into_a_table(), given, 4)
    assert counts == chosen
    partition_counts(merged_into_a_table(), counts)


def test_what_is_given_is_kept_or_refused() -> None:
    with pytest.raises(TopologyError, match="meet in one store"):
        fitting_counts(merged_into_a_table(), {"one": 7, "two": 6}, 4)
