"""Builder: tasks over open engines, whose stores fit their changelogs.

Tasks that will run and tasks that stand by are made alike: engines opened, the watermarks of the
last commit told, the changelogs' ends asked, stores that do not fit them thrown away.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import structlog

from streamcore.errors import MissingRecordsError, StateDirLockedError
from streamcore.model import OffsetAndMetadata, TaskId, TopicPartition
from streamcore.runtime.blueprint import Blueprint
from streamcore.runtime.changelogs import Span, beginning, spans
from streamcore.runtime.engines import Engines
from streamcore.runtime.lost_rows import Doubt, judge
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
    doubts: Mapping[TopicPartition, Doubt] = field(default_factory=dict)
    """Changelogs that lost rows which may be needed; their first rows will tell."""


class Builder:
    """Makes tasks."""

    def __init__(self, blueprint: Blueprint, engines: Engines, admin: Admin) -> None:
        self._blueprint = blueprint
        self._engines = engines
        self._admin = admin
        self._stops = blueprint.settings.missing_records == "stop"
        self.topic_ids: dict[str, str] = {}
        """The ids of all topics that the tasks so far have to do with."""

    def prepare(
        self, tasks: Iterable[TaskId], committed: Committed, timeout_ms: int, now_ms: int
    ) -> tuple[list[Prepared], StateDirLockedError | MissingRecordsError | None]:
        """Build the tasks; with the error of one whose folder is held by another process, or whose
        changelog lost what it needs.

        :raises StreamsError: if something else went wrong; then none of them is left.
        """
        unfit: StateDirLockedError | MissingRecordsError | None = None
        built: list[Task] = []
        try:
            for task_id in tasks:
                try:
                    built.append(self._build(task_id, committed))
                except StateDirLockedError as error:
                    unfit = error
            found = spans(built, committed, self.topic_ids, self._admin, timeout_ms)
            prepared: list[Prepared] = []
            for i in range(len(built)):
                starts, fits = self._starts(built[i], found, now_ms)
                if not fits:
                    built[i] = self._build(built[i].id, committed)
                try:
                    doubts = self._doubts(built[i], found, committed, now_ms)
                except MissingRecordsError as error:
                    built[i].close(clean=False)
                    unfit = error
                else:
                    prepared.append(Prepared(built[i], starts, found, doubts))
        except BaseException:
            for task in built:
                task.close(clean=False)
            raise
        return prepared, unfit

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

    def _doubts(
        self, task: Task, found: Mapping[TopicPartition, Span], committed: Committed, now_ms: int
    ) -> dict[TopicPartition, Doubt]:
        """Judge changelogs that must be read from their starts, and do not begin at 0.

        :raises MissingRecordsError: if one lost what is needed.
        """
        if all(committed[tp] is None for tp in task.inputs):
            return {}  # nothing was counted yet that anybody knows of
        doubts: dict[TopicPartition, Doubt] = {}
        for tp, state in task.changelogs().items():
            if state.position is None:
                doubt = judge(tp, state, found[tp], now_ms, stops=self._stops)
                if doubt is not None:
                    doubts[tp] = doubt
        return doubts
