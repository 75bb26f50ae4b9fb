"""What a user may say about a source, a sink, a grouping or a store. Everything is optional but
the serdes of a source; what is left out is inherited, as in Kafka Streams.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from streamcore.errors import TopologyError
from streamcore.serde.base import Serde
from streamcore.topology.nodes import StoreSpec


@dataclass(frozen=True, slots=True)
class Consumed:
    """How a source topic is read.

    ``timestamp``: (key, value, record timestamp) -> event time in ms; without it the record's own.
    ``offset_reset``: where reading begins without a committed offset; None: as the settings say.
    """

    key: Serde
    value: Serde
    timestamp: Callable[[Any, Any, int], int] | None = None
    offset_reset: Literal["earliest", "latest"] | None = None
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Produced:
    """How a topic is written.

    ``partitioner``: (topic, key, value, partitions) -> partition; without it murmur2 over the key.
    ``same_partition``: to the partition number that the record came from, so that order is kept;
    the topic must have as many partitions as the sub-topology has tasks (checked at start).
    """

    key: Serde | None = None
    value: Serde | None = None
    partitioner: Callable[[str, Any, Any, int], int] | None = None
    same_partition: bool = False
    name: str | None = None

    def __post_init__(self) -> None:
        if self.same_partition and self.partitioner is not None:
            raise TopologyError("a sink has a partitioner or same_partition, not both")


@dataclass(frozen=True, slots=True)
class Grouped:
    """Serdes of a grouping's repartition topic; ``name`` names it (``<name>-repartition``)."""

    key: Serde | None = None
    value: Serde | None = None
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Materialized:
    """The store behind a table.

    ``retention_ms`` (windows only) counts from the start of a window; by default size + grace, and
    24 hours more unless the table is read through ``suppress`` alone. ``logged`` False: no
    changelog, lost with the disk. ``persistent`` False: in memory. ``cached`` False: each update is
    forwarded, not just the last of a commit.
    """

    name: str | None = None
    key: Serde | None = None
    value: Serde | None = None
    retention_ms: int | None = None
    logged: bool = True
    persistent: bool = True
    cached: bool = True
    changelog_settings: Mapping[str, str] = field(default_factory=dict)


def key_value_store(
    name: str, *, key: Serde, value: Serde, logged: bool = True, persistent: bool = True
) -> StoreSpec:
    """Return a store of values by key, for ``process(stores=...)``."""
    return StoreSpec(name=name, key=key, value=value, logged=logged, persistent=persistent)


def window_store(
    name: str, *, key: Serde, value: Serde, retention_ms: int, logged: bool = True
) -> StoreSpec:
    """Return a store of values by key and time, kept for ``retention_ms`` of event time."""
    if retention_ms <= 0:
        raise TopologyError(f"store {name!r}: retention_ms is {retention_ms}; it must be above 0")
    return StoreSpec(name=name, key=key, value=value, retention_ms=retention_ms, logged=logged)
