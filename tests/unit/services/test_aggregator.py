"""The aggregator: its settings, and a topology that is the article's, node for node."""

from typing import Any

import pytest
from pydantic import ValidationError
from tests.parity.test_describe import ARTICLE

from aggregator.settings import Settings
from aggregator.topology import STORE, build
from streamcore import Topology
from streamcore.topology.nodes import Aggregate, Sink, Suppress

# With our names of topics.
JAVA = ARTICLE.replace("rec-words", "words").replace("rec-out2", "windowed-counts")


def nodes(topology: Topology, kind: type[Any]) -> list[Any]:
    return [node for node in topology.nodes.values() if isinstance(node, kind)]


def test_the_topology_is_the_articles_as_java_prints_it() -> None:
    assert build(Settings()).describe() == JAVA


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
