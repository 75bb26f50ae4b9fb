"""Ingest's topology: what stands in it."""

from ingest.settings import Settings
from ingest.topology import build
from streamcore.topology.nodes import Sink, Source


def test_words_go_to_the_partition_of_their_line() -> None:
    topology = build(Settings(lines_topic="l", words_topic="w"))
    (source,) = [node for node in topology.nodes.values() if isinstance(node, Source)]
    (sink,) = [node for node in topology.nodes.values() if isinstance(node, Sink)]
    assert source.topics == ("l",)
    assert (sink.topic, sink.same_partition, sink.internal) == ("w", True, False)


def test_there_is_one_sub_topology_without_state() -> None:
    (only,) = build(Settings()).sub_topologies
    assert only.stores == ()
    assert only.repartition_sources == ()
