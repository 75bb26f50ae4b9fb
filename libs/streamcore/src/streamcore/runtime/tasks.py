"""Tasks: those that this worker should have, and how far each of them has come.

The group gives partitions; a task owns the partitions of its number. What is wanted and not there
is made: offsets read anew from the broker, engines opened, changelog tails read, then it runs. A
rebuild is nothing but dropping a task that is still wanted. Engines belong to this module: they
stay open over a rebuild and over a rebalance that brings the task back.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import structlog

from streamcore.errors import (
    FetchPositionGoneError,
    ProcessingError,
    Recovery,
    RetriableError,
    StateDirLockedError,
    StreamsError,
    TopicError,
)
from streamcore.model import OffsetAndMetadata, TaskId, TopicPartition
from streamcore.runtime.backoff import Backoff
from streamcore.runtime.engines import Engines
from streamcore.runtime.ports import Admin, Consumer
from streamcore.runtime.restore import Restorer, Span, beginning
from streamcore.runtime.settings import WorkerSettings
from streamcore.runtime.troubles import Troubles
from streamcore.task import Task, build_task
from streamcore.topology.graph import Partitions, SubTopology, Topology
from streamcore.topology.naming import Names

_log = structlog.get_logger("streamcore.tasks")


@dataclass(frozen=True, slots=True)
class Blueprint:
    """What every task of an application is built from."""

    topology: Topology
    names: Names
    counts: Partitions
    settings: WorkerSettings

    def inputs(self, sub_topology: SubTopology) -> tuple[str, ...]:
        """Return the topics that a sub-topology reads, by their names on the broker."""
        return (
            *(self.names.topic(topic) for topic in sub_topology.source_topics),
            *(self.names.internal(topic) for topic in sub_topology.repartition_sources),
        )

    def readers(self) -> dict[str, SubTopology]:
        """Return who reads each topic."""
        return {
            topic: sub_topology
            for sub_topology in self.topology.sub_topologies
            for topic in self.inputs(sub_topology)
        }

    def offset_resets(self) -> dict[str, str]:
        """Return where each topic begins without a committed offset: earliest, latest or error.

        Internal topics always begin at the earliest: whatever is in there, we wrote.
        """
        resets: dict[str, str] = {}
        for sub_topology in self.topology.sub_topologies:
            for source in sub_topology.sources:
                for topic in source.topics:
                    if source.internal:
                        resets[self.names.internal(topic)] = "earliest"
                    else:
                        resets[self.names.topic(topic)] = (
                            source.offset_reset or self.settings.offset_reset
                        )
        return resets


class Tasks:
    """The tasks of one worker. ``running`` may be read by everybody, and changed only here."""

    def __init__(
        self, blueprint: Blueprint, engines: Engines, restorer: Restorer, admin: Admin
    ) -> None:
        self._blueprint = blueprint
        self._engines = engines
        self._restorer = restorer
        self._admin = admin
        self._readers = blueprint.readers()
        self._resets = blueprint.offset_resets()
        self._troubles = Troubles()
        self._wanted: dict[TaskId, tuple[TopicPartition, ...]] = {}
        self._built: dict[TaskId, Task] = {}  # restoring, or restored and not yet started
        self._restored: set[TaskId] = set()  # the latter
        self._begins: dict[TaskId, dict[TopicPartition, OffsetAndMetadata]] = {}
        self._gone: set[TopicPartition] = set()  # begin by the reset policy until they commit
        self._backoff = Backoff()
        self.running: dict[TaskId, Task] = {}
        self.by_partition: dict[TopicPartition, Task] = {}  # the running one that reads it
        self.positions: dict[TopicPartition, int] = {}  # next offset to fetch, of all we read
        self.topic_ids: dict[str, str] = {}
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

    def want(self, shares: Sequence[TopicPartition]) -> None:
        """Take note of a new generation's share; no task of the one before may be left."""
        assert not self.running, "tasks of the old generation are still there"
        assert not self._built, "tasks of the old generation are still there"
        wanted: dict[TaskId, list[TopicPartition]] = {}
        for tp in shares:
            wanted.setdefault(TaskId(self._readers[tp.topic].id, tp.partition), []).append(tp)
        self._wanted = {task: tuple(parts) for task, parts in sorted(wanted.items())}
        self._troubles.keep_only(self._wanted)
        self._engines.keep_only(self._wanted)
        self._gone.clear()
        self._backoff = Backoff()

    def drop(self, *, clean: bool) -> None:
        """Close all tasks and want none. ``clean``: what they did is committed."""
        self._wanted = {}
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
            task.close(clean=clean)

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
        self._gone -= committed.keys()

    def reset(self, gone: FetchPositionGoneError) -> bool:
        """Let a partition begin by the reset policy, whatever is committed or kept in an external
        store: its log lost that. False where the policy is to stop.
        """
        partition = gone.partition
        policy = self._resets[partition.topic]
        if policy == "error":
            return False
        _log.warning(
            "the log does not hold the position where reading should go on",
            partition=str(partition),
            position=gone.offset,
            log_holds=self._holds(partition),
            begins_at=policy,
        )
        self._gone.add(partition)
        return True

    def _holds(self, partition: TopicPartition) -> str:
        timeout_ms = self._blueprint.settings.request_timeout_ms
        try:
            earliest, latest = (
                self._admin.offsets([partition], where, timeout_ms)[partition]
                for where in ("earliest", "latest")
            )
        except RetriableError:
            return "unknown"
        return f"offsets {earliest} to {latest}"

    # -- making tasks ------------------------------------------------------------------------

    def advance(self, consumer: Consumer, now_ms: int) -> bool:
        """Make what is wanted and missing, start what is restored; True if the consumer was
        assigned anew.

        What the world does not answer in time is tried again in a later turn, later and later.
        """
        if not self._backoff.holds(now_ms) and (self._restored or not self.settled):
            try:
                self._make(consumer, now_ms)
                self._start(now_ms)
            except (RetriableError, StateDirLockedError) as error:
                self._backoff.failed(str(error), now_ms)
            else:
                self._backoff.succeeded()
        if not self.must_assign:
            return False
        consumer.assign(self.positions)
        self.must_assign = False
        return True

    def restore(self, rows_max: int, timeout_ms: int, now_ms: int) -> None:
        """Read one batch of the changelogs; what is at its end starts in the next ``advance``."""
        try:
            self._restored.update(self._restorer.step(rows_max, timeout_ms, now_ms))
        except FetchPositionGoneError as error:
            if not self._restorer.reads(error.partition):
                raise
            task_id, spec = self._restorer.reader_of(error.partition)
            _log.warning(
                "the changelog was cut off; the store is rebuilt",
                task=str(task_id),
                store=spec.name,
                changelog=str(error.partition),
            )
            self.rebuild([task_id])
            self._engines.discard(task_id, spec)
        except StreamsError as error:
            if error.recovery is Recovery.REBUILD_TASKS:
                # The reader is past the rows that came with it: all that restore begin again.
                self.rebuild(list(self._built))
            raise

    def _make(self, consumer: Consumer, now_ms: int) -> None:
        missing = [
            task for task in self._wanted if task not in self.running and task not in self._built
        ]
        if not missing:
            return
        timeout_ms = self._blueprint.settings.request_timeout_ms
        inputs = [tp for task in missing for tp in self._wanted[task]]
        committed = consumer.committed(inputs, timeout_ms)
        begins = self._begin_at(committed, timeout_ms)
        locked: StateDirLockedError | None = None
        built: list[Task] = []
        try:
            for task_id in missing:
                try:
                    built.append(self._build(task_id, committed))
                except StateDirLockedError as error:
                    locked = error
            self._begin_restore(built, committed, now_ms)
        except BaseException:
            for task in built:
                task.close(clean=False)
            raise
        for task in built:
            self._begins[task.id] = {tp: begins[tp] for tp in task.inputs}
        if locked is not None:
            raise locked

    def _begin_at(
        self, committed: Mapping[TopicPartition, OffsetAndMetadata | None], timeout_ms: int
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return where each partition begins: committed, or what the reset policy says."""
        begins = {tp: at for tp, at in committed.items() if at is not None and tp not in self._gone}
        fresh: dict[str, list[TopicPartition]] = {}
        for tp in committed.keys() - begins.keys():
            fresh.setdefault(self._resets[tp.topic], []).append(tp)
        for where, partitions in fresh.items():
            if where == "error":
                raise TopicError(
                    f"no offset is committed for {_listed(partitions)}, and auto_offset_reset is "
                    "'error'"
                )
            offsets = self._admin.offsets(partitions, where, timeout_ms)
            for tp in partitions:
                at = committed[tp]  # of a log that lost that offset: its clocks still hold
                begins[tp] = OffsetAndMetadata(offsets[tp], "" if at is None else at.metadata)
        return begins

    def _build(
        self, task_id: TaskId, committed: Mapping[TopicPartition, OffsetAndMetadata | None]
    ) -> Task:
        plan = self._blueprint
        sub_topology = plan.topology.sub_topologies[task_id.sub_topology]
        engines = self._engines.of(task_id, sub_topology.stores)
        task = build_task(
            plan.topology,
            sub_topology,
            task_id,
            plan.names,
            plan.counts,
            engines,
            replace(plan.settings.task, commit_interval_ms=plan.settings.commit_interval_ms),
        )
        shares = self._wanted[task_id]
        if set(task.inputs) != set(shares):
            task.close(clean=False)
            raise TopicError(
                f"task {task_id} reads {_listed(task.inputs)}, but the group gave this member "
                f"only {_listed(shares)} of them: topics read together need equal partition counts"
            )
        task.restored_watermarks({tp: committed[tp] for tp in task.inputs})
        for (tp, offset), error in self._troubles.rows(task_id).items():
            task.poison(tp, offset, error)
        return task

    def _begin_restore(
        self,
        tasks: list[Task],
        committed: Mapping[TopicPartition, OffsetAndMetadata | None],
        now_ms: int,
    ) -> None:
        """Ask the changelogs' ends, throw away stores that do not fit them, begin to read."""
        spans = self._spans(tasks, committed)
        for i, built in enumerate(tasks):
            starts, unfit = {}, []
            for tp, state in built.changelogs().items():
                begin = beginning(state.position, spans[tp])
                starts[tp] = begin.offset
                if begin.discard is not None:
                    unfit.append(state.spec)
                    _log.warning(
                        "the local store does not fit its changelog and is rebuilt",
                        task=str(built.id),
                        store=state.spec.name,
                        changelog=str(tp),
                        reason=begin.discard,
                    )
            if unfit:
                built.close(clean=False)
                for spec in unfit:
                    self._engines.discard(built.id, spec)
                tasks[i] = self._build(built.id, committed)
            if self._restorer.add(tasks[i], starts, spans, now_ms):
                self._restored.add(built.id)
        for task in tasks:
            self._built[task.id] = task

    def _spans(
        self,
        tasks: Iterable[Task],
        committed: Mapping[TopicPartition, OffsetAndMetadata | None],
    ) -> dict[TopicPartition, Span]:
        timeout_ms = self._blueprint.settings.request_timeout_ms
        tasks = tuple(tasks)
        logs = [tp for task in tasks for tp in task.changelogs()]
        topics = {tp.topic for tp in logs} | {tp.topic for task in tasks for tp in task.inputs}
        self.topic_ids.update(self._admin.topic_ids(topics, timeout_ms))
        if not logs:
            return {}
        ends = self._admin.offsets(logs, "latest", timeout_ms)
        earliest = self._admin.offsets(logs, "earliest", timeout_ms)
        for task in tasks:
            for tp, state in task.changelogs().items():
                if state.until_committed:  # a table over its own source: no further than consumed
                    at = committed.get(tp)
                    ends[tp] = earliest[tp] if at is None else min(ends[tp], at.offset)
        return {tp: Span(earliest[tp], ends[tp], self.topic_ids.get(tp.topic, "")) for tp in logs}

    def _start(self, now_ms: int) -> None:
        for task_id in sorted(self._restored):
            task = self._built[task_id]
            begins = self._begins[task_id]
            ids = {tp: self.topic_ids.get(tp.topic, "") for tp in task.inputs}
            for tp, offset in task.external_positions(ids).items():
                if tp not in self._gone:
                    begins[tp] = OffsetAndMetadata(offset, begins[tp].metadata)
            task.start(begins, now_ms)
            self._restored.remove(task_id)
            del self._built[task_id], self._begins[task_id]
            self.running[task_id] = task
            for tp in task.inputs:
                self.by_partition[tp] = task
                self.positions[tp] = begins[tp].offset
            self.must_assign = True
            _log.info("task runs", task=str(task_id), inputs=_listed(task.inputs))


def _listed(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(map(str, partitions)) or "nothing"
