"""Values that everybody passes around: partitions, tasks, batches, sends. They have no behaviour.

An *offset* is always the next record to read, unless a name says otherwise. Times are integer
milliseconds since the epoch and end in ``_ms``.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

Headers = tuple[tuple[str, bytes | None], ...]
"""Headers of a record, in order, names may repeat. A tuple: rows share it, nobody changes it."""

NO_TIME_MS = -1
"""A clock or watermark that has not seen anything yet."""


class TopicPartition(NamedTuple):
    """A partition of a topic, by the topic's name on the broker (prefix included)."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class TaskId(NamedTuple):
    """Sub-topology and partition; printed as Kafka Streams prints it, ``0_3``."""

    sub_topology: int
    partition: int

    def __str__(self) -> str:
        return f"{self.sub_topology}_{self.partition}"


@dataclass(frozen=True, slots=True)
class OffsetAndMetadata:
    """What a group has committed for a partition: the next offset to read, and a short text."""

    offset: int
    metadata: str = ""


@dataclass(frozen=True, slots=True)
class Position:
    """How far a store has applied its changelog: the next offset, in the topic of that id.

    ``written_ms``: when an engine on disk wrote it down, 0 if nobody knows.
    """

    offset: int
    topic_id: str
    written_ms: int = field(default=0, compare=False, repr=False)


@dataclass(slots=True)
class Fetched:
    """Records of one partition as the broker gave them, by column.

    ``next_offset`` lies behind the last row, and behind any transaction marker after it where an
    end-of-partition event told so. ``at_end`` is True when ``next_offset`` was the high watermark
    at that moment. A batch without rows only moves the position.
    """

    source: TopicPartition
    offsets: list[int]
    keys: list[bytes | None]
    values: list[bytes | None]
    stamps_ms: list[int]
    headers: list[Headers] | None
    next_offset: int
    at_end: bool = False


@dataclass(slots=True)
class Rows:
    """Decoded records on their way through the operators, by column; row i is one record.

    ``clocks_ms[i]`` is the clock of the source partition when that row was processed there
    (docs/SEMANTICS.md); in order, it equals the stamp, and where that holds for all rows both
    columns are the same list, which steps keep: ``is`` then answers for the batch. ``headers`` is
    None when no row has any. Steps never change a column in place: they pass on new ones, or the
    same.

    ``source`` and ``offsets`` tell where the rows were read; both are None for results that an
    operator made of several records, and in tasks in which no step asks for them.
    """

    keys: list[Any]
    values: list[Any]
    stamps_ms: list[int]
    clocks_ms: list[int]
    headers: list[Headers] | None = None
    source: TopicPartition | None = None
    offsets: list[int] | None = None

    def __len__(self) -> int:
        return len(self.keys)


@dataclass(slots=True)
class Send:
    """Records for one topic, by column, in the order in which they must reach each partition.

    ``partition``: a number for all rows, a column, or None for murmur2 over ``partition_keys``
    (over ``keys`` where that is None too; a null key goes to any partition).
    """

    topic: str
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    stamps_ms: Sequence[int]
    headers: Sequence[Headers] | None = None
    partition: int | Sequence[int] | None = None
    partition_keys: Sequence[bytes] | None = None


@dataclass(frozen=True, slots=True)
class Refused:
    """A record that the broker will not take, as it was sent; the partition may be unknown (-1)."""

    send: Send
    partition: int
    reason: str


@dataclass(slots=True)
class CommitPoint:
    """What one task wants committed: offsets with clocks and watermarks in their metadata."""

    task: TaskId
    offsets: dict[TopicPartition, OffsetAndMetadata] = field(default_factory=dict)
    changelogs: frozenset[TopicPartition] = frozenset()
