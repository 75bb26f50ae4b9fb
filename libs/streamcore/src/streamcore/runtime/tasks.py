"""Tasks: those that this worker should have, and how far each of them has come.

What is wanted and not there is made: offsets read anew from the broker, engines opened, changelog
tails read, then it runs. A rebuild is nothing but dropping a task that is still wanted. Engines
stay open over a rebuild and over a rebalance; the worker says which of them are given up.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial

import structlog

from streamcore.errors import (
    FetchPositionGoneError,
    MissingRecordsError,
    ProcessingError,
    Recovery,
    RetriableError,
    StateDirLockedError,
    StreamsError,
    TopicError,
    UserRetryError,
)
from streamcore.model import OffsetAndMetadata, TaskId, TopicPartition
from streamcore.runtime.backoff import Backoff
from streamcore.runtime.beginnings import Beginnings, listed
from streamcore.runtime.blueprint import Blueprint
from streamcore.runtime.building import Builder, Prepared
from streamcore.runtime.engines import Engines
from streamcore.runtime.ports import Admin, Consumer
from streamcore.runtime.restore import Restorer
from streamcore.runtime.troubles import Troubles
from streamcore.task import Task

_log = structlog.get_logger("streamcore.tasks")


class Tasks:
    """The tasks of one worker. ``running`` may be read by everybody, and changed only here."""

    def __init__(
        self, blueprint: Blueprint, engines: Engines, restorer: Restorer, admin: Admin
    ) -> None:
        self._blueprint = blueprint
        self._engines = engines
        self._restorer = restorer
        self._builder = Builder(blueprint, engines, admin)
        self._beginnings = Beginnings(blueprint, admin)
        self._troubles = Troubles()
        self._wanted: dict[TaskId, tuple[TopicPartition, ...]] = {}
        self._built: dict[TaskId, Task] = {}  # restoring, or restored and not yet started
        self._restored: set[TaskId] = set()  # the latter
        self._begins: dict[TaskId, dict[TopicPartition, OffsetAndMetadata]] = {}
        self._making, self._starting = Backoff(), Backoff()
        self.running: dict[TaskId, Task] = {}
        self.by_partition: dict[TopicPartition, Task] = {}  # the running one that reads it
        self.positions: dict[TopicPartition, int] = {}  # next offset to fetch, of all we read
        self.topic_ids = self._builder.topic_ids
        self._intact: frozenset[TaskId] = frozenset()  # ended by a transaction of ours, committed
        self.must_assign = False  # the consumer reads something else than ``positions``

    # -- what the group says -----------------------------------------------------------------

    @property
    def wanted(self) -> Mapping[TaskId, object]:
        """The tasks that the group wants here, whether they exist or not."""
        return self._wanted

    @property
    def all_run(self) -> bool:
        return len(self.running) == len(self._wanted)

    @property
    def settled(self) -> bool:
        """True when every task that we should have exists: it runs, or is being restored."""
        return len(self.running) + len(self._built) == len(self._wanted)

    def committed_offsets(self) -> dict[TopicPartition, int]:
        """Return how far each partition is committed that our tasks read, or will when restored."""
        found = {tp: at.offset for begins in self._begins.values() for tp, at in begins.items()}
        for task in self.running.values():
            found |= task.committed_offsets
        return found

    def want(self, tasks: Mapping[TaskId, tuple[TopicPartition, ...]]) -> None:
        """Have these tasks from now on, with these inputs; none of before may be left.

        :raises TopicError: if a task would not read all that it must.
        """
        assert not self.running, "tasks of the old generation are still there"
        assert not self._built, "tasks of the old generation are still there"
        every = self._blueprint.tasks()
        for task, inputs in tasks.items():
            if set(inputs) != set(every[task]):
                raise TopicError(
                    f"task {task} reads {listed(every[task])}, but this member is to read only "
                    f"{listed(inputs)}: topics read together need equal partition counts"
                )
        self._wanted = dict(sorted(tasks.items()))
        self._intact &= self._wanted.keys()
        self._troubles.keep_only(self._wanted)
        self._beginnings.forget()
        self._making, self._starting = Backoff(), Backoff()

    def drop(self, *, clean: bool) -> None:
        """Close all tasks and want none. ``clean``: what they did is committed."""
        self._wanted = {}
        exactly_once = self._blueprint.settings.exactly_once
        self._intact = frozenset(self.running) if clean and exactly_once else frozenset()
        self.rebuild([*self.running, *self._built], clean=clean)

    def rebuild(self, tasks: Iterable[TaskId], *, clean: bool = False) -> None:
        """Close these tasks; those that are still wanted come back from their last commit."""
        ids = set(tasks)
        self._restorer.remove(ids)
        self._restored -= ids
        for task_id in ids:
            task = self.running.pop(task_id, None) or self._built.pop(task_id, None)
            self._begins.pop(task_id, None)
            if task is None:
                continue
            for tp in task.inputs:
                self.by_partition.pop(tp, None)
                self.positions.pop(tp, None)
            self.must_assign = True
            try:
                task.close(clean=clean)
            except StreamsError as error:  # what counts is committed, or will be done again
                _log.warning("a task did not close as it should", reason=str(error))

    # -- rows that fail ----------------------------------------------------------------------

    def note_failure(self, task: Task, error: ProcessingError, *, exact: bool) -> None:
        """Remember what is known of the row that failed; its task must be rebuilt then."""
        fetched_to = {tp: self.positions[tp] for tp in task.inputs}
        exact = exact or self._troubles.row_by_row(task.id)
        self._troubles.note(task.id, error, fetched_to, exact=exact)

    def row_by_row(self, task: Task) -> bool:
        """Tell whether the task may take only one row at a time."""
        return self._troubles.row_by_row(task.id)

    def relieve(self, committed: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """After a commit: tasks that are past their failing rows go in batches again, and what was
        committed holds again.
        """
        self._troubles.relieve(committed)
        self._beginnings.committed(committed)

    def reset(self, gone: FetchPositionGoneError) -> bool:
        """Let a partition begin by the reset policy, whatever is committed or kept in an external
        store: its log lost that. False where the policy is to stop.

        :raises MissingRecordsError: if the task's state does not hold what is gone.
        """
        return self._beginnings.lost(gone)

    # -- making tasks ------------------------------------------------------------------------

    def advance(
        self, consumer: Consumer, now_ms: int, held: Collection[TaskId] = frozenset()
    ) -> bool:
        """Make what is wanted and missing but for those that are ``held``, start what is restored;
        True if the consumer was assigned anew.

        What the world does not answer in time is tried again in a later turn, later and later.
        """
        if not self.settled:
            _attempt([partial(self._make, consumer, now_ms, held)], self._making, now_ms)
        starts = [partial(self._start, task, now_ms) for task in sorted(self._restored)]
        _attempt(starts, self._starting, now_ms)
        self._restorer.rest()
        self._engines.stamp(self.running, now_ms)
        self._engines.clean_up(now_ms)
        if not self.must_assign:
            return False
        consumer.assign(self.positions)
        self.must_assign = False
        return True

    def restore(self, rows_max: int, timeout_ms: int, now_ms: int) -> None:
        """Read one batch of the changelogs; what is at its end starts in the next ``advance``."""
        if not self._restorer.busy:
            return
        try:
            if done := self._restorer.step(rows_max, timeout_ms, now_ms):
                self._restored.update(done)
                self._starting = Backoff()  # these have not been tried yet
        except FetchPositionGoneError as error:
            if not self._restorer.reads(error.partition):
                raise
            task_id, spec = self._restorer.tell_cut_off(error.partition)
            self.rebuild([task_id])
            self._engines.discard(task_id, spec)
        except MissingRecordsError as error:
            for partition in error.records:  # what was read already would look whole next time
                task_id, spec = self._restorer.reader_of(partition)
                self.rebuild([task_id])
                self._engines.discard(task_id, spec)
            raise
        except StreamsError as error:
            if error.recovery is Recovery.REBUILD_TASKS:
                # The reader is past the rows that came with it: all that restore begin again.
                self.rebuild(list(self._built))
            raise

    def _make(self, consumer: Consumer, now_ms: int, held: Collection[TaskId]) -> None:
        there = {*self.running, *self._built, *held}
        missing = [task for task in self._wanted if task not in there]
        if not missing:
            return
        timeout_ms = self._blueprint.settings.request_timeout_ms
        inputs = [tp for task in missing for tp in self._wanted[task]]
        committed = consumer.committed(inputs, timeout_ms)
        begins = self._beginnings.find(missing, committed, consumer)
        prepared, unfit = self._builder.prepare(missing, committed, timeout_ms, now_ms)
        for made in prepared:
            task = made.task
            for (tp, offset), error in self._troubles.rows(task.id).items():
                task.poison(tp, offset, error)
            self._built[task.id] = task
            self._begins[task.id] = {tp: begins[tp] for tp in task.inputs}
            starts = _behind_markers(made) if task.id in self._intact else made.starts
            if self._restorer.add(task, starts, made.spans, now_ms, made.doubts):
                self._restored.add(task.id)
        self._intact = frozenset()
        if unfit is not None:
            raise unfit

    def _start(self, task_id: TaskId, now_ms: int) -> None:
        task = self._built[task_id]
        begins = self._begins[task_id]
        ids = {tp: self.topic_ids.get(tp.topic, "") for tp in task.inputs}
        for tp, offset in task.external_positions(ids).items():
            if tp not in self._beginnings.gone:
                begins[tp] = OffsetAndMetadata(offset, begins[tp].metadata)
        try:
            task.start(begins, now_ms)
        except StreamsError:  # it has begun, and cannot begin once more
            self.rebuild([task_id])
            raise
        self._restored.remove(task_id)
        del self._built[task_id], self._begins[task_id]
        self.running[task_id] = task
        for tp in task.inputs:
            self.by_partition[tp] = task
            self.positions[tp] = begins[tp].offset
        self.must_assign = True
        _log.info("task runs", task=str(task_id), inputs=listed(task.inputs))


def _attempt(steps: Sequence[Callable[[], None]], backoff: Backoff, now_ms: int) -> None:
    """Do all of it that can be done; what one step waits for keeps no other from being done."""
    if not steps or backoff.holds(now_ms):
        return
    reasons: list[str] = []
    for step in steps:
        try:
            step()
        except (RetriableError, StateDirLockedError, UserRetryError) as error:
            reasons.append(str(error))
    if reasons:
        backoff.failed(reasons[0], now_ms)
    else:
        backoff.succeeded()


def _behind_markers(made: Prepared) -> dict[TopicPartition, int]:
    """Return where the stores of a task begin to read whose last commit was our own transaction.

    Its position was asked in front of that commit's marker. A log with one more entry holds
    nothing but this marker: whatever else was committed would have brought one of its own.
    """
    return {
        tp: span.end if start == span.end - 1 else start
        for tp, start in made.starts.items()
        for span in [made.spans[tp]]
    }
