"""The sink's external store: rows and positions in one transaction.

Rows are kept in memory until the commit (or until there are many: then they are written before it,
with the position behind them), the newest per word and window.
Then one transaction checks that this task is still the owner of its partitions and that they stand
where it left them, writes the rows in one statement per partition and moves the positions.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import structlog
from sqlalchemy import Connection

from sink import table
from sink.connection import Database
from sink.text import storable_column
from streamcore.errors import MemberFencedError, ProcessingError, TaskCorruptedError
from streamcore.model import Position, TopicPartition
from streamcore.topology.external import ExternalBatch

ROWS_MAX: Final = 5_000
"""Most rows of a partition in one transaction: a slow database must get through in its time."""

_Key = tuple[str, int, int]  # word as stored, start and end of the window in ms
_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Owned:
    """A partition that this task owns: what the database holds of it, and rows not yet there.

    ``offset`` is what was last committed, ``tried`` what commits without an answer since may have
    left there. ``rows``: count and offset by key; ``next_offset`` lies behind all rows ever
    written.
    """

    topic_id: str
    epoch: int
    offset: int | None
    tried: set[int] = field(default_factory=set)
    next_offset: int = 0
    rows: dict[_Key, tuple[int, int]] = field(default_factory=dict)


class PostgresStore:
    """One task's way into ``windowed_counts`` (contract: ``streamcore.topology.external``).

    Keys are ``Windowed`` words, values counts. The tasks of a process share ``database``; each of
    their transactions ends before the next begins.
    """

    def __init__(self, database: Database, application: str, rows_max: int = ROWS_MAX) -> None:
        self._database = database
        self._application = application
        self._rows_max = rows_max
        self._owned: dict[TopicPartition, _Owned] = {}

    def positions(
        self, partitions: Mapping[TopicPartition, str]
    ) -> Mapping[TopicPartition, Position]:
        owned = {}
        with self._database.transaction() as connection:
            for partition in sorted(partitions):
                owned[partition] = self._claim(connection, partition, partitions[partition])
        self._owned = owned
        return {
            partition: Position(mine.offset, mine.topic_id)
            for partition, mine in owned.items()
            if mine.offset is not None
        }

    def write(self, batch: ExternalBatch) -> None:
        mine = self._owned[batch.source]
        known = bisect_left(batch.offsets, mine.next_offset)  # rows that came before
        parts = [
            (_rows(batch, part), batch.offsets[part.stop - 1]) for part in self._parts(batch, known)
        ]
        # From here on no row is refused. Where the database is away, the next call goes on behind
        # the parts that are taken.
        for rows, last in parts:
            if mine.rows and len(mine.rows) + len(rows) > self._rows_max:
                self._flush({batch.source: mine.next_offset})
            mine.rows.update(rows)
            mine.next_offset = last + 1

    def _parts(self, batch: ExternalBatch, first: int) -> Iterator[slice]:
        """Cut the rows from ``first`` on into parts, between rows of different offsets."""
        offsets = batch.offsets
        while first < len(offsets):
            behind = min(first + self._rows_max, len(offsets))
            behind = bisect_right(offsets, offsets[behind - 1])
            yield slice(first, behind)
            first = behind

    def commit(self, positions: Mapping[TopicPartition, Position]) -> None:
        moved = {}
        for partition, position in positions.items():
            mine = self._owned[partition]
            assert position.offset >= mine.next_offset or not mine.rows, (position, partition)
            if mine.rows or position.offset != mine.offset:
                moved[partition] = position.offset
        if moved:
            self._flush(moved)

    def close(self) -> None:
        self._owned = {}

    def _place(self, partition: TopicPartition) -> table.Place:
        return table.Place(self._application, partition.topic, partition.partition)

    def _claim(self, connection: Connection, partition: TopicPartition, topic_id: str) -> _Owned:
        place = self._place(partition)
        held = table.claim(connection, place)
        offset = held.next_offset
        if held.topic_id != topic_id and topic_id:
            if held.topic_id and offset is not None:
                _log.warning(
                    "topic was made anew", topic=partition.topic, partition=place.partition
                )
                offset = None
            if offset is None:
                table.forget(connection, place, topic_id)
        return _Owned(topic_id or held.topic_id, held.epoch, offset, next_offset=offset or 0)

    def _flush(self, positions: Mapping[TopicPartition, int]) -> None:
        """Write the rows of these partitions and move their positions, or do nothing."""
        for partition, offset in positions.items():
            self._owned[partition].tried.add(offset)
        with self._database.transaction() as connection:
            for partition in sorted(positions):
                self._check(connection, partition)
            for partition, offset in sorted(positions.items()):
                mine = self._owned[partition]
                if mine.rows:
                    table.upsert(connection, _counts(mine, partition.partition))
                table.move(connection, self._place(partition), mine.topic_id, offset)
        for partition, offset in positions.items():
            mine = self._owned[partition]
            mine.offset = offset
            mine.tried.clear()
            mine.rows = {}

    def _check(self, connection: Connection, partition: TopicPartition) -> None:
        mine = self._owned[partition]
        held = table.held(connection, self._place(partition))
        if held is not None and held.epoch > mine.epoch:
            raise MemberFencedError(f"{partition} has another owner in the database")
        if (
            held is None
            or held.epoch < mine.epoch
            or held.next_offset not in {mine.offset, *mine.tried}
        ):
            # The database went back in time, as it does after a fail-over to a late copy.
            raise TaskCorruptedError(f"the database holds another position of {partition}")


def _rows(batch: ExternalBatch, part: slice) -> dict[_Key, tuple[int, int]]:
    """Return the rows of that part, checked, the last one of each key.

    :raises ProcessingError: for a row that no table of counts can hold.
    """
    keys, counts, offsets = batch.keys[part], batch.values[part], batch.offsets[part]
    try:
        words = storable_column([key.key for key in keys])
        windows = [key.window for key in keys]
        in_range = max(end for _, end in windows) <= table.TIME_MAX_MS
        if in_range and None not in counts:
            return {
                (word, start, end): (count, offset)
                for word, (start, end), count, offset in zip(
                    words, windows, counts, offsets, strict=True
                )
            }
    except (AttributeError, TypeError):
        pass
    raise _first_fault(batch, part)


def _first_fault(batch: ExternalBatch, part: slice) -> ProcessingError:
    """Return the error for the first row that is at fault; slow, and needed once."""
    for offset, key, count in zip(
        batch.offsets[part], batch.keys[part], batch.values[part], strict=True
    ):
        reason = None
        if key is None or not isinstance(getattr(key, "key", None), str):
            reason = "its key is not a word with a window"
        elif count is None:
            reason = "it has no count"
        elif key.window.end_ms > table.TIME_MAX_MS:
            reason = f"its window ends at {key.window.end_ms} ms, after the year 9999"
        if reason is not None:
            return ProcessingError(batch.source, offset, reason)
    raise AssertionError("no row is at fault")


def _counts(mine: _Owned, partition: int) -> table.Counts:
    # Two transactions that write the same rows must lock them in the same order.
    rows = sorted(mine.rows.items())
    return table.Counts(
        topic_id=mine.topic_id,
        partition=partition,
        words=[word for (word, _, _), _ in rows],
        starts_ms=[start for (_, start, _), _ in rows],
        ends_ms=[end for (_, _, end), _ in rows],
        counts=[count for _, (count, _) in rows],
        offsets=[offset for _, (_, offset) in rows],
    )


class PostgresSupplier:
    """Makes a store for each task; they share one connection, opened when it is first needed."""

    def __init__(self, database: Database, application: str) -> None:
        self.database = database
        self._application = application

    def __call__(self) -> PostgresStore:
        return PostgresStore(self.database, self._application)
