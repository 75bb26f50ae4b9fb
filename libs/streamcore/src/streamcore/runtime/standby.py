"""Standbys: tasks of others whose stores are kept warm here, so that we can take over in a moment.

A standby is a Task that never starts. Its changelogs are read for ever, its engines stay open when
the task is dropped, and whoever makes it run goes the ordinary way: offsets anew, the tail of the
changelog, start.

What its owner deletes arrives as tombstones, expired windows too. So a standby needs no watermark
of its own but at its making, to pass over what had expired before; it is made anew now and then.
A table over its own source is followed as far as the group has consumed it, which is asked anew.
"""

from collections.abc import Collection

import structlog

from streamcore.errors import (
    FetchPositionGoneError,
    MissingRecordsError,
    Recovery,
    RetriableError,
    StateDirLockedError,
    StreamsError,
)
from streamcore.model import TaskId
from streamcore.runtime.backoff import Backoff
from streamcore.runtime.blueprint import Blueprint
from streamcore.runtime.building import Builder
from streamcore.runtime.engines import Engines
from streamcore.runtime.ports import Admin, Consumer
from streamcore.runtime.restore import Restorer
from streamcore.task import Task

_log = structlog.get_logger("streamcore.standby")

ANSWER_MS = 250
"""What a question may take: the tasks that run here stand still meanwhile."""

CONSUMED_MS = 5_000
"""How often it is asked how far the group has consumed the topics of tables."""

RENEW_MS = 600_000
"""How often a standby is made anew over its open stores, with the watermark of that time."""


class Standbys:
    """The standbys of one worker. Where a task is to run here, ``want`` must drop it first."""

    def __init__(
        self, blueprint: Blueprint, engines: Engines, restorer: Restorer, admin: Admin
    ) -> None:
        self._blueprint = blueprint
        self._engines = engines
        self._restorer = restorer
        self._builder = Builder(blueprint, engines, admin)
        self._inputs = blueprint.tasks()
        self._timeout_ms = min(ANSWER_MS, blueprint.settings.request_timeout_ms)
        self._wanted: frozenset[TaskId] = frozenset()
        self._built: dict[TaskId, Task] = {}
        self._made_ms: dict[TaskId, int] = {}
        self._unfit_ms: dict[TaskId, int] = {}  # found to lack rows, and when
        self._consumed_ms = 0
        self._backoff = Backoff()

    @property
    def tasks(self) -> frozenset[TaskId]:
        """The tasks that are to stand by here, whether they are read already or not."""
        return self._wanted

    def want(self, tasks: Collection[TaskId]) -> None:
        """Have these tasks stand by from now on; the engines of others stay open."""
        self._wanted = frozenset(tasks)
        for task_id in self._built.keys() - self._wanted:
            self._drop(task_id)
        self._backoff = Backoff()

    def drop(self) -> None:
        """Want none."""
        self.want(())

    def advance(self, consumer: Consumer, now_ms: int) -> None:
        """Make what is wanted and missing; what is not answered in time is tried again later.

        :raises StreamsError: if trying again is of no use.
        """
        if self._backoff.holds(now_ms):
            return
        for task_id, made_ms in list(self._made_ms.items()):
            if not 0 <= now_ms - made_ms < RENEW_MS:
                self._drop(task_id)
        try:
            self._make(consumer, now_ms)
            self._ask_consumed(consumer, now_ms)
        except StreamsError as error:
            self._meet(error, now_ms)
        else:
            self._backoff.succeeded()

    def restore(self, rows_max: int, timeout_ms: int, now_ms: int) -> None:
        """Read one batch, unless stores are restored for tasks that are to run.

        :raises StreamsError: if trying again is of no use. Tasks that run are never to blame.
        """
        if self._restorer.busy or self._backoff.holds(now_ms):
            return
        try:
            self._restorer.step(rows_max, timeout_ms, now_ms)
        except FetchPositionGoneError as error:
            if not self._restorer.follows(error.partition):
                raise
            task_id, spec = self._restorer.tell_cut_off(error.partition)
            self._drop(task_id)
            self._engines.discard(task_id, spec)
        except MissingRecordsError as error:
            for partition in error.records:
                task_id, spec = self._restorer.reader_of(partition)
                self._drop(task_id)
                self._engines.discard(task_id, spec)
            self._leave_out(error, now_ms)
        except StreamsError as error:
            self._meet(error, now_ms)

    def lag(self) -> int | None:
        """Return how many records the store that is furthest behind lacks; None while unknown."""
        if self._built.keys() != self._wanted:
            return None
        lags = self._restorer.lags()
        stores = [
            (state.spec.name, tp.partition)
            for task in self._built.values()
            for tp, state in task.changelogs().items()
        ]
        return max((lags[store].records for store in stores), default=0)

    # -- inside ------------------------------------------------------------------------------

    def _make(self, consumer: Consumer, now_ms: int) -> None:
        for task_id, since_ms in list(self._unfit_ms.items()):
            if not 0 <= now_ms - since_ms < RENEW_MS:
                del self._unfit_ms[task_id]
        missing = sorted(self._wanted - self._built.keys() - self._unfit_ms.keys())
        if not missing:
            return
        inputs = [tp for task_id in missing for tp in self._inputs[task_id]]
        committed = consumer.committed(inputs, self._timeout_ms)
        prepared, unfit = self._builder.prepare(missing, committed, self._timeout_ms, now_ms)
        for made in prepared:
            task = made.task
            self._built[task.id], self._made_ms[task.id] = task, now_ms
            self._restorer.follow(task, made.starts, made.spans, now_ms, made.doubts)
        if isinstance(unfit, MissingRecordsError):
            self._leave_out(unfit, now_ms)
        elif unfit is not None:
            raise unfit

    def _leave_out(self, error: MissingRecordsError, now_ms: int) -> None:
        """Leave out for a while what its owner may have whole, and a changelog has not."""
        for task_id in self._wanted:
            if not error.records.keys().isdisjoint(self._blueprint.changelogs([task_id])):
                self._unfit_ms[task_id] = now_ms
                reason = str(error)
                _log.warning("no standby from this changelog", task=str(task_id), reason=reason)

    def _ask_consumed(self, consumer: Consumer, now_ms: int) -> None:
        if 0 <= now_ms - self._consumed_ms < CONSUMED_MS:
            return
        self._consumed_ms = now_ms
        tables = [
            tp
            for task in self._built.values()
            for tp, state in task.changelogs().items()
            if state.until_committed
        ]
        if tables:
            for tp, at in consumer.committed(tables, self._timeout_ms).items():
                if at is not None:
                    self._restorer.may_follow_to(tp, at.offset)

    def _meet(self, error: StreamsError, now_ms: int) -> None:
        """Try again later, from the stores' positions where something was damaged.

        :raises StreamsError: the same, if that is of no use.
        """
        retry = isinstance(error, RetriableError | StateDirLockedError)
        if not retry:
            if error.recovery is not Recovery.REBUILD_TASKS:
                raise error
            _log.warning("standby tasks are made anew", reason=str(error))
            for task_id in list(self._built):
                self._drop(task_id)
        self._backoff.failed(str(error), now_ms)

    def _drop(self, task_id: TaskId) -> None:
        self._restorer.unfollow(task_id)
        del self._made_ms[task_id]
        self._built.pop(task_id).close(clean=False)
