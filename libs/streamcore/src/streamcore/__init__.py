"""streamcore: stream processing on Apache Kafka, with windows, durable state and event time.

These are the names for describing and testing topologies; nothing here loads a client library.
``from streamcore.app import StreamsApp`` runs them.
"""

from streamcore.config import StreamsConfig
from streamcore.errors import StreamsError, TopologyError
from streamcore.model import Headers, TaskId, TopicPartition
from streamcore.serde.base import Serde, serde_of
from streamcore.serde.builtin import BYTES, DOUBLE, INT64, JSON, STR
from streamcore.serde.windowed import Window, Windowed, windowed_serde
from streamcore.topology.builder import StreamsBuilder
from streamcore.topology.external import ExternalBatch, ExternalStore, StoreSupplier
from streamcore.topology.graph import Topology
from streamcore.topology.grouped import KGroupedStream, TimeWindowedKStream
from streamcore.topology.materialized import (
    Consumed,
    Grouped,
    Materialized,
    Produced,
    key_value_store,
    window_store,
)
from streamcore.topology.nodes import StoreSpec
from streamcore.topology.processor import Processor, ProcessorContext
from streamcore.topology.stream import BranchedKStream, KStream
from streamcore.topology.table import KTable
from streamcore.topology.windows import Windows, hopping, tumbling

__all__ = [
    "BYTES",
    "DOUBLE",
    "INT64",
    "JSON",
    "STR",
    "BranchedKStream",
    "Consumed",
    "ExternalBatch",
    "ExternalStore",
    "Grouped",
    "Headers",
    "KGroupedStream",
    "KStream",
    "KTable",
    "Materialized",
    "Processor",
    "ProcessorContext",
    "Produced",
    "Serde",
    "StoreSpec",
    "StoreSupplier",
    "StreamsBuilder",
    "StreamsConfig",
    "StreamsError",
    "TaskId",
    "TimeWindowedKStream",
    "TopicPartition",
    "Topology",
    "TopologyError",
    "Window",
    "Windowed",
    "Windows",
    "hopping",
    "key_value_store",
    "serde_of",
    "tumbling",
    "window_store",
    "windowed_serde",
]
