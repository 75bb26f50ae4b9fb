"""The sink's topology: counts from the topic into the database, nothing in between."""

from sink.settings import Settings
from streamcore import INT64, STR, Consumed, StreamsBuilder, Topology, windowed_serde
from streamcore.topology.external import StoreSupplier


def build(settings: Settings, supplier: StoreSupplier) -> Topology:
    """Return the topology; ``supplier`` makes the store in which it ends."""
    builder = StreamsBuilder()
    counts = Consumed(key=windowed_serde(STR, size_ms=settings.window_size_ms), value=INT64)
    builder.stream(settings.counts_topic, counts).to_store(supplier, name="postgres")
    return builder.build()
