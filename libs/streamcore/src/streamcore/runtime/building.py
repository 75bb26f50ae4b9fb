"""Builder: tasks over open engines, whose stores fit their changelogs.

Tasks that will run and tasks that stand by are made alike: engines opened, the watermarks of the
last commit told, the changelogs' ends asked, stores that do not fit them thrown away.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import structlog

from streamcore.errors import StateDirLockedError
from streamcore.model import OffsetAndMetadata, TaskId, TopicPartition
from streamcore.runtime.blueprint import Blueprint
from streamcore.runtime.changelogs import Span, beginning, spans
from streamcore.runtime.engines import Engines
from streamcore.runtime.ports import Admin
from streamcore.task import Task

_log = structlog.get_logger("streamcore.building")

Committed = Mapping[TopicPartition, OffsetAndMetadata | None]


@dataclass(frozen=True, slots=True)
class Prepared:
    """A task in CREATED, and what its changelogs still have for it."""

    task: Task
    starts: Mapping[TopicPartition, int]
    spans: Mapping[TopicPartition, Span]


class Builder:
    """Makes tasks."""

    def __init__(self, blueprint: Blueprint, engines: Engines, admin: Admin) -> None:
        self._blueprint = blueprint
        self._engines = engines
        self._admin = admin
        self.topic_ids: dict[str, str] = {}
        """The ids of all topics that the tasks so far have to do with."""

    def prepare(
        self, tasks: Iterable[TaskId], committed: Committed, timeout_ms: int, now_ms: int
    ) -> tuple[list[Prepared], StateDirLockedError | None]:
        """Build the tasks; with the error of one whose folder is held by another process.

        :raises StreamsError: if something else went wrong; then none of them is left.
        """
        locked: StateDirLockedError | None = None
        built: list[Task] = []
        try:
            for task_id in tasks:
                try:
                    built.append(self._build(task_id, committed))
                except StateDirLockedError as error:
                    locked = error
            found = spans(built, committed, self.topic_ids, self._admin, timeout_ms)
            prepared: list[Prepared] = []
            for i in range(len(built)):
                starts, fits = self._starts(built[i], found, now_ms)
                if not fits:
                    built[i] = self._build(built[i].id, committed)
                prepared.append(Prepared(built[i], starts, found))
        except BaseException:
            for task in built:
                task.close(clean=False)
            raise
        return prepared, locked

    def _build(self, task_id: TaskId, committed: Committed) -> Task:
        stores = self._blueprint.stores(task_id)
        task = self._blueprint.build(task_id, self._engines.of(task_id, stores))
        task.restored_watermarks({tp: committed[tp] for tp in task.inputs})
        return task

    def _starts(
        self, task: Task, found: Mapping[TopicPartition, Span], now_ms: int
    ) -> tuple[dict[TopicPartition, int], bool]:
        """Return where the task's stores begin to read, and whether they fit; if not, the task is
        closed and the stores that do not are gone.
        """
        starts, unfit = {}, []
        for tp, state in task.changelogs().items():
            begin = beginning(state.position, found[tp], now_ms)
            starts[tp] = begin.offset
            if begin.discard is not None:
                unfit.append(state.spec)
                _log.warning(
                    "the local store does not fit its changelog and is rebuilt",
                    task=str(task.id),
                    store=state.spec.name,
                    changelog=str(tp),
                    reason=begin.discard,
                )
        if unfit:
            task.close(clean=False)
            for spec in unfit:
                self._engines.discard(task.id, spec)
        return starts, not unfit
