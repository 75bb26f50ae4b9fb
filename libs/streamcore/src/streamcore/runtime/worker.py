"""Worker: tasks against the world, one turn at a time.

A turn polls, feeds the tasks, lets them process, hands what they want sent to the producer, commits
when it is time, and reads a batch of the changelogs that are being restored. Everything waits in
``poll`` (inside which the group's callbacks run) and, within a budget, in a commit. Errors come out
of a turn in one place and are met by what they say themselves: ``Recovery``.
"""

from collections.abc import Iterable

import structlog

from streamcore.errors import ProcessingError, RecordError, Recovery, StreamsError
from streamcore.model import Fetched, TopicPartition
from streamcore.runtime.commit import Committer
from streamcore.runtime.deadline import Deadline
from streamcore.runtime.engines import Engines
from streamcore.runtime.last_commit import commit_at_last
from streamcore.runtime.lifecycle import Lifecycle, StateListener, WorkerState
from streamcore.runtime.metrics import Metrics
from streamcore.runtime.outbound import Outbound
from streamcore.runtime.ports import World
from streamcore.runtime.rebalance import Callbacks
from streamcore.runtime.recovery import Recoverer
from streamcore.runtime.restore import Restorer
from streamcore.runtime.settings import WorkerSettings
from streamcore.runtime.task_metrics import TaskMetrics
from streamcore.runtime.tasks import Blueprint, Tasks
from streamcore.runtime.topics import Topics
from streamcore.runtime.upkeep import Upkeep
from streamcore.task import Task
from streamcore.topology.graph import Topology
from streamcore.topology.naming import Names

_log = structlog.get_logger("streamcore.worker")

WAIT_MS = 50
"""One poll while something else is waited for."""

ROW_BY_ROW = 500
"""Rows of a task in trouble that one turn takes, one at a time."""


def create_worker(
    topology: Topology,
    names: Names,
    settings: WorkerSettings,
    world: World,
    listeners: Iterable[StateListener] = (),
) -> "Worker":
    """Check the topics, create what is missing of our own, and return a worker that fits them.

    :raises TopicError, TopologyError: if topics are missing or do not fit.
    :raises RetriableError: if the cluster did not answer; call again.
    """
    topics = Topics(topology, names, world.admin, settings)
    blueprint = Blueprint(topology, names, topics.prepare(), settings)
    return Worker(blueprint, topics, world, listeners)


class Worker:
    """One member of the group with all that it owns. Called by one thread."""

    def __init__(
        self,
        blueprint: Blueprint,
        topics: Topics,
        world: World,
        listeners: Iterable[StateListener] = (),
    ) -> None:
        settings = blueprint.settings
        self._blueprint = blueprint
        self._settings = settings
        self._world = world
        self._topics = topics
        self._lifecycle = Lifecycle(listeners)
        self._engines = Engines(world.state_dir)
        self._restorer = Restorer(world.reader())
        self._tasks = Tasks(blueprint, self._engines, self._restorer, world.admin)
        self._outbound = Outbound(
            world.producer,
            world.clock,
            transactional=settings.exactly_once,
            production_error=settings.production_error,
            dead_letter_topic=settings.task.dead_letter_topic,
        )
        self._committer = Committer(self._outbound, world.admin, settings, self._tasks.topic_ids)
        self._consumer = world.consumer()
        self._callbacks = self._listener()
        self._paused: set[TopicPartition] = set()
        self._busy = False
        self._last_commit_ms = 0
        self.metrics = Metrics()
        self._task_metrics = TaskMetrics(self.metrics)
        self._recovery = Recoverer(
            self._tasks, self._committer, self._outbound, self.metrics, settings, world.clock
        )
        self._upkeep = Upkeep(self._tasks, topics, world.admin, settings)

    @property
    def state(self) -> WorkerState:
        return self._lifecycle.state

    # -- life --------------------------------------------------------------------------------

    def start(self, now_ms: int) -> None:
        """Join the group.

        :raises RetriableError: if the cluster did not answer; call again.
        """
        self._outbound.open(self._settings.request_timeout_ms)
        self._last_commit_ms = now_ms
        self._upkeep.begin(now_ms)
        self._subscribe()
        self._lifecycle.move(WorkerState.REBALANCING)

    def turn(self, now_ms: int) -> int:
        """Do what there is to do; return how many records were processed.

        :raises StreamsError: if nothing that we may do is safe; only ``close`` is left.
        """
        try:
            return self._turn(now_ms)
        except StreamsError as error:
            self._publish()  # before tasks that are rebuilt take their counts along
            try:
                self._recovery.meet(error, self._rejoin)
            except StreamsError:
                self._lifecycle.move(WorkerState.ERROR)
                raise
            return 0

    def stop(self, now_ms: int) -> bool:
        """Commit what is processed and leave the group; True if the commit is durable.

        Takes no new records, and waits no longer than ``stop_budget_ms``.
        """
        self._lifecycle.move(WorkerState.PENDING_SHUTDOWN)
        clean = self._last_commit(now_ms)
        self._end_generation(clean=clean)
        self.close()
        return clean

    def close(self) -> None:
        """Let go of everything, without a commit; harmless after ``stop``."""
        if self.state is WorkerState.NOT_RUNNING:
            return
        if self.state not in (WorkerState.PENDING_SHUTDOWN, WorkerState.ERROR):
            self._lifecycle.move(WorkerState.PENDING_SHUTDOWN)
        self._end_generation(clean=False)
        self._callbacks.go_deaf()
        self._consumer.close()
        self._restorer.close()
        self._outbound.discard()
        self._engines.close()
        self._world.admin.close()
        self._lifecycle.move(WorkerState.NOT_RUNNING)

    # -- a turn ------------------------------------------------------------------------------

    def _turn(self, now_ms: int) -> int:
        backoff = self._recovery.backoff
        held = backoff.holds(now_ms)
        if not held:
            self._take_over(now_ms)
        self._pause(everything=held or self._outbound.blocked)
        fetched = self._consumer.poll(self._settings.poll_rows_max, self._wait_ms(held=held))
        self._raise_from_callbacks()
        self._feed(fetched)
        if held:
            return 0
        if self._outbound.blocked:
            self._outbound.push()
        rows = 0 if self._outbound.blocked else self._process(now_ms)
        self._busy = rows > 0
        committed = self._commit_if_due(now_ms)
        if self._restorer.busy:
            wait_ms = 0 if self._busy else self._settings.poll_idle_ms
            self._tasks.restore(self._settings.restore_rows_max, wait_ms, now_ms)
        self._upkeep.do(now_ms)
        if committed:  # until then a turn that merely read something proves nothing
            backoff.succeeded()
        return rows

    def _take_over(self, now_ms: int) -> None:
        """Make the tasks that the group wants here, as far as they are missing."""
        self._outbound.open(self._settings.request_timeout_ms)
        if self._callbacks.assigned is not None:
            self._topics.recheck()
            self._committer.group_metadata = self._callbacks.group_metadata
            self._tasks.want(self._callbacks.take())
            self._task_metrics.forget_others(self._tasks.wanted)
            self.metrics.add("streamcore_rebalances_total", 1)
        if self._tasks.advance(self._consumer, now_ms):
            self._paused.clear()
        if not (self._callbacks.joined and self._tasks.settled):
            self._lifecycle.move(WorkerState.REBALANCING)
        elif self._tasks.all_run:
            self._lifecycle.move(WorkerState.RUNNING)
        else:
            self._lifecycle.move(WorkerState.RESTORING)

    def _pause(self, *, everything: bool) -> None:
        """Pause the inputs that would only fill memory. Each change costs a fetch."""
        wanted = set(self._tasks.positions)
        if not everything:
            wanted = {tp for task in self._tasks.running.values() for tp in task.full}
        if wanted == self._paused:
            return
        if more := wanted - self._paused:
            self._consumer.pause(more)
        if less := (self._paused - wanted) & self._tasks.positions.keys():
            self._consumer.resume(less)
        self._paused = wanted

    def _wait_ms(self, *, held: bool) -> int:
        if held or self._outbound.blocked:
            return WAIT_MS
        if self._restorer.busy:
            return 0
        return self._settings.poll_busy_ms if self._busy else self._settings.poll_idle_ms

    def _feed(self, fetched: Iterable[Fetched]) -> None:
        tasks, positions = self._tasks.by_partition, self._tasks.positions
        for batch in fetched:
            task = tasks.get(batch.source)
            if task is not None:
                task.accept(batch)
                positions[batch.source] = batch.next_offset

    def _process(self, now_ms: int) -> int:
        rows = 0
        stopped_at: RecordError | None = None
        for task in list(self._tasks.running.values()):
            try:
                rows += self._run(task, now_ms)
            except ProcessingError as error:
                self._recovery.suspect(task, error)
                break
            if sends := task.drain():
                self._outbound.send(sends)
            stopped_at = stopped_at or task.stopped_at
        self.metrics.add("streamcore_rows_processed_total", rows)
        if stopped_at is not None and self._commit(now_ms):  # what stands in front of it is good
            raise stopped_at
        return rows

    def _run(self, task: Task, now_ms: int) -> int:
        if self._tasks.row_by_row(task):
            rows = 0
            while rows < ROW_BY_ROW and task.process(now_ms, 1):
                rows += 1
        else:
            rows = task.process(now_ms, self._settings.process_rows_max)
        task.punctuate(now_ms)
        return rows

    # -- commits -----------------------------------------------------------------------------

    def _commit_if_due(self, now_ms: int) -> bool:
        """Commit when it is time; True if a commit was made and is durable."""
        since_ms = now_ms - self._last_commit_ms
        due = not 0 <= since_ms < self._settings.commit_interval_ms  # a clock may be set back
        if not due and since_ms >= self._settings.commit_gap_min_ms:
            dirty_bytes = sum(task.dirty_bytes for task in self._tasks.running.values())
            due = dirty_bytes > self._settings.cache_max_bytes // 2
        if not (due or self._recovery.backoff.failing):
            return False
        done = self._commit(now_ms)
        if not done and self._committer.unanswered:
            self._recovery.wait(self._committer.unanswered)
        return done

    def _commit(self, now_ms: int) -> bool:
        self._last_commit_ms = now_ms
        clock = self._world.clock
        began_ms, commits = clock.now_ms(), self._committer.commits
        done = False
        try:
            done = self._committer.commit(
                list(self._tasks.running.values()),
                self._consumer,
                now_ms,
                Deadline(clock, self._settings.commit_budget_ms),
                self._wait,
            )
        except ProcessingError as error:  # an external store will never take this row
            task = self._tasks.by_partition.get(error.partition)
            if task is None or error.offset < 0:
                raise
            self._recovery.suspect(task, error, exact=True)
        finally:
            if not done:
                self.metrics.add("streamcore_commits_failed_total", 1)
        if self._committer.commits > commits:
            self._recovery.committed()
            self._tasks.relieve(self._committer.durable)
            self.metrics.add("streamcore_commit_ms_total", clock.now_ms() - began_ms)
            self._publish()
        return done

    def _wait(self) -> None:
        """Poll with everything paused, so that the group hears of us and we of it."""
        self._pause(everything=True)
        self._feed(self._consumer.poll(self._settings.poll_rows_max, WAIT_MS))
        self._raise_from_callbacks()

    def _last_commit(self, now_ms: int) -> bool:
        def attempt(deadline: Deadline) -> bool:
            tasks = list(self._tasks.running.values())
            return self._committer.commit(tasks, self._consumer, now_ms, deadline, self._wait)

        return commit_at_last(attempt, self._wait, self._world.clock, self._settings.stop_budget_ms)

    def _write_markers(self) -> None:
        """Write what follows a commit under at-least-once, before the next owner says more."""
        try:
            if self._outbound.flush(self._settings.markers_budget_ms):
                return
        except StreamsError as error:
            _log.warning("what followed the last commit is not written", reason=str(error))
        self._outbound.discard()

    # -- callbacks ---------------------------------------------------------------------------

    def _listener(self) -> Callbacks:
        return Callbacks(
            self._consumer,
            self._commit_and_drop,
            self._drop_lost,
            needs_metadata=self._settings.exactly_once,
        )

    def _subscribe(self) -> None:
        self._consumer.subscribe(sorted(self._blueprint.readers()), self._callbacks)

    def _commit_and_drop(self) -> None:
        """End the generation inside the revoke callback: committed, or abandoned."""
        deadline = Deadline(self._world.clock, self._settings.revoke_budget_ms)
        clean = False
        try:
            if self._committer.running:
                clean = self._committer.finish(deadline)
            else:
                now_ms = self._world.clock.now_ms()
                tasks = list(self._tasks.running.values())
                clean = self._committer.commit(tasks, self._consumer, now_ms, deadline)
        except StreamsError as error:
            _log.warning("the commit before a rebalance failed", reason=str(error))
            # A row that an external store refuses is met by policy, by the next owner.
            if error.recovery is Recovery.STOP and not isinstance(error, ProcessingError):
                raise
        finally:
            self._end_generation(clean=clean)

    def _drop_lost(self) -> None:
        """Drop everything without a commit, and the producer with it.

        Who was away that long finds coordinators and connections changed; a producer that had an
        idle transaction id through a broker's restart was seen to wait for ever in its next one.
        """
        self._end_generation(clean=False)
        self._outbound.discard()

    def _end_generation(self, *, clean: bool) -> None:
        """Have no tasks any more. ``clean``: all that they did is durable."""
        self._committer.forget()
        if clean:
            self._write_markers()
        else:
            self._recovery.abandon_sends()
        self._publish()
        self._tasks.drop(clean=clean)
        self._paused.clear()

    def _raise_from_callbacks(self) -> None:
        error, self._callbacks.error = self._callbacks.error, None
        if error is not None:
            raise error

    def _rejoin(self, error: StreamsError) -> None:
        """The group went on without us: drop everything, come back as a new member."""
        _log.warning("no member of the group any more; joining anew", reason=str(error))
        self._callbacks.go_deaf()
        self._end_generation(clean=False)
        self._consumer.close()
        self._consumer = self._world.consumer()
        self._callbacks = self._listener()
        self._subscribe()

    def _publish(self) -> None:
        """Bring the metrics up to date; once a commit is often enough."""
        metrics = self.metrics
        self._task_metrics.publish(self._tasks.running)
        metrics.set("streamcore_commits_total", self._committer.commits)
        metrics.set("streamcore_rows_sent_total", self._outbound.sent_rows)
        metrics.set("streamcore_rows_refused_total", self._outbound.refused)
        metrics.set("streamcore_rows_restored_total", self._restorer.restored_rows)
