"""Restorer: changelogs into stores, a batch at a time, between the turns of the worker.

The end is asked (READ_UNCOMMITTED) before reading begins, and reached by position: the start, or
what the reader has come past (end-of-partition events included), is not below it. Never by the
last record's offset: markers and compaction leave holes. The group is polled meanwhile by whoever
calls ``step``; nothing here waits for longer than one poll.

Stores that stand by are read in the same way, for ever, and only while none is being restored.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import structlog

from streamcore.errors import RetriableError
from streamcore.model import Fetched, TaskId, TopicPartition
from streamcore.runtime.changelogs import Span, bytes_of, up_to
from streamcore.runtime.lost_rows import Doubt
from streamcore.runtime.ports import Admin, ChangelogReader
from streamcore.runtime.settings import WorkerSettings
from streamcore.task import Task
from streamcore.topology.nodes import StoreSpec

_log = structlog.get_logger("streamcore.restore")

PROGRESS_MS = 10_000
"""How often a long restore says how far it has come."""

ENDS_MS = 1_000
"""How old the known end of a changelog may be, and how long asking for it may take."""


@dataclass(frozen=True, slots=True)
class Lag:
    """How far a store has read its changelog, and where that ends."""

    position: int
    end: int

    @property
    def records(self) -> int:
        return max(0, self.end - self.position)


@dataclass(frozen=True, slots=True)
class RestoreProgress:
    """How far the restore of one store has come. ``rows`` came with the last batch, ``records`` and
    ``read_bytes`` (keys and values) so far.
    """

    next_offset: int
    end: int
    rows: int
    records: int
    read_bytes: int
    percent: int
    records_per_s: int
    eta_s: int


class RestoreListener(Protocol):
    """Is told of each store that a task must restore before it runs. Called between turns; what it
    raises is logged, and the restore goes on.
    """

    def restore_started(
        self, task: TaskId, store: str, partition: TopicPartition, start: int, end: int
    ) -> None: ...

    def batch_restored(
        self, task: TaskId, store: str, partition: TopicPartition, progress: RestoreProgress
    ) -> None: ...

    def restore_ended(
        self, task: TaskId, store: str, partition: TopicPartition, rows: int
    ) -> None: ...


@dataclass(slots=True)
class _Reading:
    """One store of one task on its way to the end of its changelog, or behind it for ever."""

    task: Task
    spec: StoreSpec
    next_offset: int
    end: int
    topic_id: str
    first: int
    since_ms: int
    told_ms: int
    until_committed: bool
    doubt: Doubt | None = None
    rows: int = 0
    read_bytes: int = 0

    @property
    def may_read(self) -> bool:
        """False where what lies ahead must not be read: it is not consumed yet."""
        return not self.until_committed or self.next_offset < self.end

    @property
    def lag(self) -> Lag:
        return Lag(self.next_offset, self.end)

    def progress(self, rows: int, now_ms: int) -> RestoreProgress:
        took_ms = max(1, now_ms - self.since_ms)
        done = max(1, self.next_offset - self.first)
        left = max(0, self.end - self.next_offset)
        return RestoreProgress(
            next_offset=self.next_offset,
            end=self.end,
            rows=rows,
            records=self.rows,
            read_bytes=self.read_bytes,
            percent=100 * done // (done + left),
            records_per_s=self.rows * 1000 // took_ms,
            eta_s=left * took_ms // (done * 1000),
        )


class Restorer:
    """All stores of a worker that are read from changelogs, behind one reader."""

    def __init__(
        self,
        reader: ChangelogReader,
        admin: Admin,
        settings: WorkerSettings,
        listeners: Iterable[RestoreListener] = (),
    ) -> None:
        self._reader = reader
        self._admin = admin
        self._ends_timeout_ms = min(ENDS_MS, settings.request_timeout_ms)
        self._listeners = tuple(listeners)
        self._readings: dict[TopicPartition, _Reading] = {}
        self._followings: dict[TopicPartition, _Reading] = {}
        self._restored: dict[TopicPartition, _Reading] = {}  # of tasks that run, or are about to
        self._stale = False  # the reader is not yet assigned to what we want
        self._now_ms = self._ends_ms = 0
        self.restored_rows = 0
        self.followed_rows = 0

    @property
    def busy(self) -> bool:
        """True while a store is restored for a task that is to run."""
        return bool(self._readings)

    @property
    def following(self) -> bool:
        """True while there are stores that stand by."""
        return bool(self._followings)

    @property
    def remaining(self) -> int:
        """How many records lie between the stores that are being restored and their ends."""
        return sum(reading.lag.records for reading in self._readings.values())

    def add(
        self,
        task: Task,
        starts: Mapping[TopicPartition, int],
        spans: Mapping[TopicPartition, Span],
        now_ms: int,
        doubts: Mapping[TopicPartition, Doubt] | None = None,
    ) -> bool:
        """Take the task's changelogs in; True if there is nothing to read at all."""
        for tp, reading in _readings(task, starts, spans, now_ms, doubts):
            assert tp not in self._followings, f"{tp} is restored while a standby reads it"
            if reading.next_offset >= reading.end:
                self._restored[tp] = reading
                continue
            self._readings[tp] = reading
            self._stale = True
            _log.info(
                "restore begins",
                task=str(task.id),
                store=reading.spec.name,
                changelog=str(tp),
                offset=reading.next_offset,
                end=reading.end,
            )
            self._call("restore_started", tp, reading, reading.next_offset, reading.end)
        self._now_ms = now_ms
        return not self._of(task.id)

    def remove(self, tasks: Iterable[TaskId]) -> None:
        """Forget what is being read, or was read, for these tasks."""
        gone = set(tasks)
        for readings in (self._readings, self._restored):
            for tp in [tp for tp, reading in readings.items() if reading.task.id in gone]:
                del readings[tp]
                self._stale |= readings is self._readings

    def rest(self) -> None:
        """If there is nothing to read any more, have the reader fetch nothing."""
        if not (self._readings or self._followings):
            self._assign()

    def step(self, rows_max: int, timeout_ms: int, now_ms: int) -> list[TaskId]:
        """Read one batch into the stores; return the tasks that are at their ends now.

        :raises FetchPositionGoneError: if the log was cut off in front of us; the store must go.
        :raises MissingRecordsError: if it was, and the store needs what is gone; it must go, too.
        """
        self._now_ms = now_ms
        active = self.busy
        readings = self._readings or self._followings
        self._assign()
        done: list[TopicPartition] = []
        for fetched in self._reader.poll(rows_max, timeout_ms) if readings else ():
            reading = readings.get(fetched.source)
            if reading is None:
                continue
            rows = self._apply(fetched, reading)
            if not active:
                self.followed_rows += rows
                self._stale |= not reading.may_read
                continue
            self.restored_rows += rows
            self._call("batch_restored", fetched.source, reading, reading.progress(rows, now_ms))
            if reading.next_offset >= reading.end:
                done.append(fetched.source)
            elif now_ms - reading.told_ms >= PROGRESS_MS:
                self._tell("restoring", fetched.source, reading)
        return self._finished(done)

    def reads(self, partition: TopicPartition) -> bool:
        """Tell whether this partition is a changelog that is being restored."""
        return partition in self._readings

    def tell_cut_off(self, partition: TopicPartition) -> tuple[TaskId, StoreSpec]:
        """Say that this changelog was cut off; return the task and the store that read it, standing
        by or not: the task must be dropped, the store discarded.
        """
        task, spec = self.reader_of(partition)
        _log.warning(
            "the changelog was cut off; the store is rebuilt",
            task=str(task),
            store=spec.name,
            changelog=str(partition),
        )
        return task, spec

    def reader_of(self, partition: TopicPartition) -> tuple[TaskId, StoreSpec]:
        """Return the task and the store that read this changelog, standing by or not."""
        reading = self._readings.get(partition) or self._followings[partition]
        return reading.task.id, reading.spec

    def close(self) -> None:
        self._readings.clear()
        self._followings.clear()
        self._restored.clear()
        self._reader.close()

    # -- standing by -------------------------------------------------------------------------

    def follow(
        self,
        task: Task,
        starts: Mapping[TopicPartition, int],
        spans: Mapping[TopicPartition, Span],
        now_ms: int,
        doubts: Mapping[TopicPartition, Doubt] | None = None,
    ) -> None:
        """Read the task's changelogs from now on, whenever nothing is restored."""
        for tp, reading in _readings(task, starts, spans, now_ms, doubts):
            assert tp not in self._readings, f"{tp} is followed while it is restored"
            self._followings[tp] = reading
            self._stale = True
        self._now_ms = now_ms

    def unfollow(self, task: TaskId) -> None:
        """Stop reading for this task."""
        for tp in [tp for tp, reading in self._followings.items() if reading.task.id == task]:
            del self._followings[tp]
            self._stale = True

    def follows(self, partition: TopicPartition) -> bool:
        """Tell whether this partition is a changelog that a standby reads."""
        return partition in self._followings

    def may_follow_to(self, partition: TopicPartition, offset: int) -> None:
        """A standby table over its own source may read as far as the group has consumed it."""
        reading = self._followings.get(partition)
        if reading is not None and reading.until_committed and offset > reading.end:
            self._stale |= not reading.may_read
            reading.end = offset

    def lags(self, *, ask: bool = True) -> dict[tuple[str, int], Lag]:
        """Return how far each store is, by its name and partition; those of tasks that run are at
        their ends. The ends that standbys see are asked anew, once a second at most, if wanted.
        """
        if ask:
            self._ask_ends()
        found = {
            (reading.spec.name, tp.partition): reading.lag
            for readings in (self._readings, self._followings)
            for tp, reading in readings.items()
        }
        for tp, reading in self._restored.items():
            found[reading.spec.name, tp.partition] = Lag(reading.end, reading.end)
        return found

    def _ask_ends(self) -> None:
        logs = [tp for tp, reading in self._followings.items() if not reading.until_committed]
        if not logs or 0 <= self._now_ms - self._ends_ms < ENDS_MS:
            return
        self._ends_ms = self._now_ms
        try:
            ends = self._admin.offsets(logs, "latest", self._ends_timeout_ms)
        except RetriableError:
            return  # the old ones tell more than nothing
        for tp, end in ends.items():
            self._followings[tp].end = end

    # -- inside ------------------------------------------------------------------------------

    def _assign(self) -> None:
        """Have the reader read what is wanted now; what is restored comes first, and alone."""
        if self._stale:
            readings = self._readings or self._followings
            self._reader.assign({tp: r.next_offset for tp, r in readings.items() if r.may_read})
            self._stale = False

    def _apply(self, fetched: Fetched, reading: _Reading) -> int:
        if reading.until_committed:
            fetched = up_to(fetched, reading.end)
        if reading.doubt is not None:
            reading.doubt = reading.doubt.look(fetched, at_end=fetched.next_offset >= reading.end)
        rows = 0
        # In doubt there were tombstones alone so far; a position behind them would end the doubt.
        if not reading.doubt and fetched.next_offset > reading.next_offset:
            rows = reading.task.restore(reading.spec.name, fetched, reading.topic_id)
            reading.rows += rows
            reading.read_bytes += bytes_of(fetched)
        reading.next_offset = fetched.next_offset
        return rows

    def _finished(self, done: Iterable[TopicPartition]) -> list[TaskId]:
        complete: list[TaskId] = []
        for tp in done:
            reading = self._restored[tp] = self._readings.pop(tp)
            self._stale = True
            self._tell("restore ends", tp, reading)
            self._call("restore_ended", tp, reading, reading.rows)
            if not self._of(reading.task.id):
                complete.append(reading.task.id)
        return complete

    def _of(self, task: TaskId) -> list[TopicPartition]:
        return [tp for tp, reading in self._readings.items() if reading.task.id == task]

    def _tell(self, event: str, tp: TopicPartition, reading: _Reading) -> None:
        reading.told_ms = self._now_ms
        progress = reading.progress(0, self._now_ms)
        _log.info(
            event,
            task=str(reading.task.id),
            store=reading.spec.name,
            changelog=str(tp),
            records=progress.records,
            bytes=progress.read_bytes,
            percent=progress.percent,
            records_per_s=progress.records_per_s,
            eta_s=progress.eta_s,
        )

    def _call(self, name: str, tp: TopicPartition, reading: _Reading, *facts: object) -> None:
        for listener in self._listeners:
            try:
                getattr(listener, name)(reading.task.id, reading.spec.name, tp, *facts)
            except Exception as error:
                _log.exception("a restore listener failed", call=name, reason=str(error))


def _readings(
    task: Task,
    starts: Mapping[TopicPartition, int],
    spans: Mapping[TopicPartition, Span],
    now_ms: int,
    doubts: Mapping[TopicPartition, Doubt] | None,
) -> Iterator[tuple[TopicPartition, _Reading]]:
    for tp, state in task.changelogs().items():
        yield (
            tp,
            _Reading(
                task=task,
                spec=state.spec,
                next_offset=starts[tp],
                end=spans[tp].end,
                topic_id=spans[tp].topic_id,
                first=starts[tp],
                since_ms=now_ms,
                told_ms=now_ms,
                until_committed=state.until_committed,
                doubt=(doubts or {}).get(tp),
            ),
        )
