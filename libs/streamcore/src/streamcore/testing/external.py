"""An external store in memory, for tests of topologies that end in one."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from streamcore.errors import MemberFencedError, RetriableError, TaskCorruptedError
from streamcore.model import Position, TopicPartition
from streamcore.topology.external import ExternalBatch


@dataclass(slots=True)
class Kept:
    """The newest value of a key and the record it came from."""

    value: Any
    source: TopicPartition
    topic_id: str
    offset: int


@dataclass(slots=True)
class Shelf:
    """What outlives the stores: rows by key, positions and owners' epochs by partition.

    ``away = True`` makes every call fail as a database that does not answer; ``commits`` counts
    what was committed.
    """

    rows: dict[Any, Kept] = field(default_factory=dict)
    positions: dict[TopicPartition, Position] = field(default_factory=dict)
    epochs: dict[TopicPartition, int] = field(default_factory=dict)
    away: bool = False
    commits: int = 0

    def store(self) -> "ShelfStore":
        """Return a new store on this shelf: the supplier for ``to_store``."""
        return ShelfStore(self)

    def contents(self) -> dict[Any, Any]:
        """Return the committed value of each key."""
        return {key: kept.value for key, kept in self.rows.items()}


class ShelfStore:
    """Keeps its rows to itself until the commit, then puts rows and positions on the shelf."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf
        self._pending: dict[Any, Kept] = {}
        self._epochs: dict[TopicPartition, int] = {}
        self._left: dict[TopicPartition, Position | None] = {}

    def positions(
        self, partitions: Mapping[TopicPartition, str]
    ) -> Mapping[TopicPartition, Position]:
        self._answer()
        shelf = self._shelf
        known = {}
        for partition, topic_id in partitions.items():
            shelf.epochs[partition] = self._epochs[partition] = shelf.epochs.get(partition, 0) + 1
            held = shelf.positions.get(partition)
            if held is not None and not same_topic(held.topic_id, topic_id):
                held = None
                del shelf.positions[partition]
            self._left[partition] = held
            if held is not None:
                known[partition] = held
        return known

    def write(self, batch: ExternalBatch) -> None:
        self._answer()
        columns = zip(batch.offsets, batch.keys, batch.values, strict=True)
        for offset, key, value in columns:
            new = Kept(value, batch.source, batch.topic_id, offset)
            old = self._pending.get(key)
            if old is None or not _is_older(new, old):
                self._pending[key] = new

    def commit(self, positions: Mapping[TopicPartition, Position]) -> None:
        self._answer()
        shelf = self._shelf
        for partition in positions:
            if shelf.epochs[partition] > self._epochs[partition]:
                raise MemberFencedError(f"{partition} has another owner in the store")
            if shelf.positions.get(partition) != self._left[partition]:
                raise TaskCorruptedError(f"the store holds another position of {partition}")
        for key, new in self._pending.items():
            old = shelf.rows.get(key)
            if old is None or not _is_older(new, old):
                shelf.rows[key] = new
        shelf.positions.update(positions)
        shelf.commits += 1
        self._left.update(positions)
        self._pending = {}

    def close(self) -> None:
        self._pending = {}

    def _answer(self) -> None:
        if self._shelf.away:
            raise RetriableError("the external store is away")


def same_topic(one: str, other: str) -> bool:
    """True if two topic ids may belong to the same topic; an unknown one may."""
    return one == other or not one or not other


def _is_older(new: Kept, old: Kept) -> bool:
    return (
        new.source == old.source
        and same_topic(new.topic_id, old.topic_id)
        and new.offset < old.offset
    )
