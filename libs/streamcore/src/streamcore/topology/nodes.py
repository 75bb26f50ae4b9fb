"""The logical nodes of a topology and the stores they name: frozen descriptions, nothing runs.

A node names its parents; the graph is the set of nodes in the order in which they were made. Topics
and stores are named as the user wrote them ("bare"): prefix and application id come in when a
worker starts. ``topology.graph`` cuts the nodes into sub-topologies, ``task.compile`` turns them
into steps.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from streamcore.serde.base import Serde
from streamcore.topology.external import StoreSupplier
from streamcore.topology.windows import Windows


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSpec:
    """A store: its name, its serdes, and for windowed ones the windows and how long they stay.

    ``retention_ms`` counts from the start of a window: the store forgets it when the watermark has
    passed start + retention. In a built topology every store with windows has a number there; a
    store without windows that has one keeps entries by (key, time) for a user's processor.
    ``changelog_settings`` win over the engine's own topic settings.
    """

    name: str
    key: Serde
    value: Serde
    windows: Windows | None = None
    retention_ms: int | None = None
    logged: bool = True
    persistent: bool = True
    cached: bool = True
    changelog_settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def changelog(self) -> str:
        """Bare name of the changelog topic, without prefix and application id."""
        return f"{self.name}-changelog"


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """What every node has: a unique name, and its parents' names in order."""

    name: str
    parents: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Source(Node):
    """Reads topics. ``internal`` marks the source of a repartition topic (one topic, bare name).

    ``timestamp`` is the user's extractor: (key, value, record timestamp) -> timestamp in ms.
    ``offset_reset``: where reading begins without a committed offset; None: as the settings say.
    """

    topics: tuple[str, ...]
    key: Serde
    value: Serde
    internal: bool = False
    timestamp: Callable[[Any, Any, int], int] | None = None
    offset_reset: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sink(Node):
    """Writes to a topic; ``internal`` marks the sink of a repartition topic.

    ``partitioner``: (topic, key, value, partitions) -> partition, or None for murmur2 over the key
    (over the inner key where the key serde is windowed). ``same_partition`` writes to the partition
    number of the task, so that order is kept.
    """

    topic: str
    key: Serde
    value: Serde
    internal: bool = False
    partitioner: Callable[[str, Any, Any, int], int] | None = None
    same_partition: bool = False


class RowOp(Enum):
    """What a stateless node does with each row; the function's signature is in the value."""

    MAP = "(key, value) -> (key, value)"
    MAP_VALUES = "(value) -> value"
    FILTER = "(key, value) -> keep?"
    FILTER_NOT = "(key, value) -> drop?"
    FLAT_MAP = "(key, value) -> iterable of (key, value)"
    FLAT_MAP_VALUES = "(value) -> iterable of value"
    SELECT_KEY = "(key, value) -> key"
    PEEK = "(key, value) -> None"
    PASS = "()"  # noqa: S105  # merge, to_stream, the children of a Branch
    DROP_NULL_VALUES = "() null values are dropped and counted"
    DROP_NULL_KEYS = "() in front of a repartition topic: null keys are dropped and counted"
    TABLE_FILTER = "(key, value) -> keep? else the value becomes None (a deletion, not a drop)"
    TABLE_FILTER_NOT = "(key, value) -> delete? as TABLE_FILTER"
    TABLE_MAP_VALUES = "(value) -> value; a None (a deletion) passes without a call"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stateless(Node):
    op: RowOp
    function: Callable[..., Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch(Node):
    """First predicate that holds wins; child i of the node gets predicate i's rows.

    ``outputs`` names the child nodes (PASS) in the order of the predicates; a last one without a
    predicate is the default branch.
    """

    predicates: tuple[Callable[[Any, Any], bool], ...]
    outputs: tuple[str, ...]


class AggregateKind(Enum):
    COUNT = "count"
    REDUCE = "reduce"
    AGGREGATE = "aggregate"


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregate(Node):
    """count, reduce or aggregate per key, in windows where the store has some.

    Its output is a table: (key or Windowed key, new value). ``adder``: reduce (old, value) -> new;
    aggregate (key, value, old) -> new. ``initializer`` only for aggregate.
    """

    kind: AggregateKind
    store: StoreSpec
    initializer: Callable[[], Any] | None = None
    adder: Callable[..., Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableStore(Node):
    """Keeps the newest value per key (``table``, ``to_table``).

    A null key is dropped, a null value deletes.

    ``source_topic`` is the bare topic whose records are the changelog (a table read from a topic
    needs none of its own), else None.
    """

    store: StoreSpec
    source_topic: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Suppress(Node):
    """Lets only the final result of each window through, when the watermark has closed it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Process(Node):
    """A user's processor; ``supplier`` makes one (``topology.processor.Processor``) for each task.

    ``hold_ms``: how far its output's timestamps may lie behind the watermark. ``own_time``: it sets
    timestamps of its own, which start new clocks.
    """

    supplier: Callable[[], Any]
    stores: tuple[StoreSpec, ...] = ()
    hold_ms: int = 0
    own_time: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalSink(Node):
    """Ends a stream outside Kafka. ``supplier`` makes one store per task (topology.external)."""

    supplier: StoreSupplier


def stores_of(node: Node) -> tuple[StoreSpec, ...]:
    """Return the stores that a node reads or writes."""
    match node:
        case Aggregate() | TableStore():
            return (node.store,)
        case Process():
            return node.stores
        case _:
            return ()


def ancestors(nodes: Mapping[str, Node], name: str) -> Iterator[Node]:
    """Yield the nodes whose rows can reach ``name`` within its sub-topology, nearest first."""
    seen, todo = {name}, list(nodes[name].parents)
    while todo:
        above = todo.pop(0)
        if above not in seen:
            seen.add(above)
            yield nodes[above]
            todo += nodes[above].parents
