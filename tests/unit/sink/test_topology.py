"""The sink's topology."""

import pytest

from sink.settings import Settings
from sink.topology import build
from streamcore import Window, Windowed
from streamcore.testing.external import Shelf
from streamcore.topology.nodes import ExternalSink, Source


def test_counts_go_from_the_topic_into_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WINDOW_SIZE_MS", "5000")
    shelf = Shelf()
    source, sink = build(Settings(), shelf.store).nodes.values()
    assert isinstance(source, Source)
    assert isinstance(sink, ExternalSink)
    assert source.topics == ("windowed-counts",)
    assert source.key.deserialize(b"cat" + (10_000).to_bytes(8, "big")) == Windowed(
        "cat", Window(10_000, 15_000)
    )
    assert source.value.deserialize((3).to_bytes(8, "big")) == 3
    assert sink.parents == (source.name,)
    assert sink.supplier == shelf.store
