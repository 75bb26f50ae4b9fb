"""The aggregator: its settings, and a topology that is the article's, node for node."""

from typing import Any

import pytest
from pydantic import ValidationError

from aggregator.settings import Settings
from aggregator.topology import STORE, build
from streamcore import Topology
from streamcore.topology.nodes import Aggregate, Sink, Suppress

# Java's own text for the article's topology (Kafka Streams 4.1.1), with our names of topics.
JAVA = """\
Topologies:
   Sub-topology: 0
    Source: KSTREAM-SOURCE-0000000000 (topics: [words])
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
    Sink: KSTREAM-SINK-0000000007 (topic: windowed-counts)
      <-- KTABLE-TOSTREAM-0000000006

"""


def nodes(topology: Topology, kind: type[Any]) -> list[Any]:
    return [node for node in topology.nodes.values() if isinstance(node, kind)]


def test_the_topology_is_the_articles_as_java_prints_it() -> None:
    assert build(Settings()).describe().rstrip("\n") == JAVA.rstrip("\n")


def test_only_finals_wait_for_their_window() -> None:
    assert nodes(build(Settings(emit="updates")), Suppress) == []
    assert len(nodes(build(Settings(emit="final")), Suppress)) == 1


def test_windows_and_topics_are_settings() -> None:
    topology = build(
        Settings(window_size_ms=60_000, grace_ms=5_000, words_topic="w", counts_topic="c")
    )
    (count,) = nodes(topology, Aggregate)
    assert count.store.name == STORE
    assert (count.store.windows.size_ms, count.store.windows.grace_ms) == (60_000, 5_000)
    assert [sink.topic for sink in nodes(topology, Sink) if not sink.internal] == ["c"]
    assert topology.sub_topologies[0].source_topics == ("w",)


def test_the_retention_is_a_setting() -> None:
    (count,) = nodes(build(Settings(retention_ms=86_400_000)), Aggregate)
    assert count.store.retention_ms == 86_400_000


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"window_size_ms": 0}, "greater than 0"),
        ({"grace_ms": -1}, "greater than or equal to 0"),
        ({"emit": "sometimes"}, "'updates' or 'final'"),
        ({"grace_ms": 5_000, "retention_ms": 14_999}, r"retention_ms is 14999; .* \(15000\)"),
    ],
)
def test_settings_that_cannot_work_are_refused(values: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        Settings(**values)
