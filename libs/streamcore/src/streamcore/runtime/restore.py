"""Restorer: changelogs into stores, a batch at a time, between the turns of the worker.

The end is asked (READ_UNCOMMITTED) before reading begins, and reached by position: the start, or
what the reader has come past (end-of-partition events included), is not below it. Never by the
last record's offset: markers and compaction leave holes. The group is polled meanwhile by whoever
calls ``step``; nothing here waits for longer than one poll.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import structlog

from streamcore.model import Fetched, Position, TaskId, TopicPartition
from streamcore.runtime.ports import ChangelogReader
from streamcore.task import Task
from streamcore.topology.nodes import StoreSpec

_log = structlog.get_logger("streamcore.restore")

PROGRESS_MS = 10_000
"""How often a long restore says how far it has come."""


@dataclass(frozen=True, slots=True)
class Span:
    """What a changelog partition holds: [earliest, end), in the topic of that id."""

    earliest: int
    end: int
    topic_id: str


@dataclass(frozen=True, slots=True)
class Beginning:
    """Where a store starts to read; with a reason if it must be thrown away first."""

    offset: int
    discard: str | None = None


def beginning(position: Position | None, span: Span) -> Beginning:
    """Judge a store's position against its changelog.

    >>> beginning(Position(7, "a"), Span(0, 9, "a"))
    Beginning(offset=7, discard=None)
    >>> beginning(Position(7, "a"), Span(0, 5, "a"))
    Beginning(offset=0, discard='its position 7 lies beyond the end 5')
    """
    if position is None:
        return Beginning(span.earliest)
    if position.topic_id and span.topic_id and position.topic_id != span.topic_id:
        return Beginning(span.earliest, "the topic was deleted and made anew")
    if position.offset > span.end:
        return Beginning(
            span.earliest, f"its position {position.offset} lies beyond the end {span.end}"
        )
    if position.offset < span.earliest:
        return Beginning(
            span.earliest, f"records from its position {position.offset} on were deleted"
        )
    return Beginning(position.offset)


@dataclass(slots=True)
class _Reading:
    """One store of one task on its way to the end of its changelog."""

    task: Task
    spec: StoreSpec
    next_offset: int
    end: int
    topic_id: str
    first: int
    since_ms: int
    told_ms: int
    until_committed: bool
    rows: int = 0


class Restorer:
    """All stores of a worker that are being restored, behind one reader."""

    def __init__(self, reader: ChangelogReader) -> None:
        self._reader = reader
        self._readings: dict[TopicPartition, _Reading] = {}
        self._stale = False  # the reader is not yet assigned to what we want
        self.restored_rows = 0

    @property
    def busy(self) -> bool:
        return bool(self._readings)

    def add(
        self,
        task: Task,
        starts: Mapping[TopicPartition, int],
        spans: Mapping[TopicPartition, Span],
        now_ms: int,
    ) -> bool:
        """Take the task's changelogs in; True if there is nothing to read at all."""
        for tp, state in task.changelogs().items():
            start, span = starts[tp], spans[tp]
            if start >= span.end:
                continue
            self._readings[tp] = _Reading(
                task=task,
                spec=state.spec,
                next_offset=start,
                end=span.end,
                topic_id=span.topic_id,
                first=start,
                since_ms=now_ms,
                told_ms=now_ms,
                until_committed=state.until_committed,
            )
            self._stale = True
            _log.info(
                "restore begins",
                task=str(task.id),
                store=state.spec.name,
                changelog=str(tp),
                offset=start,
                end=span.end,
            )
        return not self._of(task.id)

    def remove(self, tasks: Iterable[TaskId]) -> None:
        """Forget what is being read for these tasks."""
        gone = set(tasks)
        for tp in [tp for tp, reading in self._readings.items() if reading.task.id in gone]:
            del self._readings[tp]
            self._stale = True

    def step(self, rows_max: int, timeout_ms: int, now_ms: int) -> list[TaskId]:
        """Read one batch into the stores; return the tasks that are at their ends now.

        :raises FetchPositionGoneError: if the log was cut off in front of us; the store must go.
        """
        if not self._readings:
            return []
        if self._stale:
            self._reader.assign({tp: r.next_offset for tp, r in self._readings.items()})
            self._stale = False
        done: list[TopicPartition] = []
        for fetched in self._reader.poll(rows_max, timeout_ms):
            reading = self._readings.get(fetched.source)
            if reading is None:
                continue
            if reading.until_committed:
                fetched = _up_to(fetched, reading.end)  # noqa: PLW2901
            if fetched.offsets:
                rows = reading.task.restore(reading.spec.name, fetched, reading.topic_id)
                reading.rows += rows
                self.restored_rows += rows
            reading.next_offset = fetched.next_offset
            if reading.next_offset >= reading.end:
                done.append(fetched.source)
            elif now_ms - reading.told_ms >= PROGRESS_MS:
                self._tell("restoring", fetched.source, reading, now_ms)
        return self._finished(done, now_ms)

    def reads(self, partition: TopicPartition) -> bool:
        """Tell whether this partition is a changelog that is being read."""
        return partition in self._readings

    def reader_of(self, partition: TopicPartition) -> tuple[TaskId, StoreSpec]:
        """Return the task and store that read this changelog partition."""
        reading = self._readings[partition]
        return reading.task.id, reading.spec

    def close(self) -> None:
        self._readings.clear()
        self._reader.close()

    def _finished(self, done: Iterable[TopicPartition], now_ms: int) -> list[TaskId]:
        complete: list[TaskId] = []
        for tp in done:
            reading = self._readings.pop(tp)
            self._stale = True
            self._tell("restore ends", tp, reading, now_ms)
            if not self._of(reading.task.id):
                complete.append(reading.task.id)
        return complete

    def _of(self, task: TaskId) -> list[TopicPartition]:
        return [tp for tp, reading in self._readings.items() if reading.task.id == task]

    def _tell(self, event: str, tp: TopicPartition, reading: _Reading, now_ms: int) -> None:
        reading.told_ms = now_ms
        took_ms = max(1, now_ms - reading.since_ms)
        _log.info(
            event,
            task=str(reading.task.id),
            store=reading.spec.name,
            changelog=str(tp),
            records=reading.rows,
            percent=100 * (reading.next_offset - reading.first) // (reading.end - reading.first),
            records_per_s=reading.rows * 1000 // took_ms,
        )


def _up_to(fetched: Fetched, end: int) -> Fetched:
    """Return the rows in front of ``end``: what lies behind it the task has not consumed yet."""
    if fetched.next_offset <= end:
        return fetched
    rows = bisect_left(fetched.offsets, end)
    return Fetched(
        fetched.source,
        fetched.offsets[:rows],
        fetched.keys[:rows],
        fetched.values[:rows],
        fetched.stamps_ms[:rows],
        None if fetched.headers is None else fetched.headers[:rows],
        end,
    )
