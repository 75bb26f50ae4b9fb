"""Worker: tasks against the world, one turn at a time.

A turn polls, feeds the tasks, lets them process, hands what they want sent to the producer, commits
when it is time, and reads a batch of the changelogs that are being restored. Everything waits in
``poll`` (inside which the group's callbacks run) and, within a budget, in a commit. Errors come out
of a turn in one place and are met by what they say themselves: ``Recovery``.
"""

from collections.abc import Iterable, Mapping

import structlog

from streamcore.errors import ProcessingError, RecordError, Recovery, StreamsError
from streamcore.model import Fetched, TopicPartition
from streamcore.runtime.aftermath import Aftermath
from streamcore.runtime.blueprint import Blueprint
from streamcore.runtime.caches import Caches
from streamcore.runtime.commit import Committer
from streamcore.runtime.deadline import Deadline
from streamcore.runtime.engines import Engines
from streamcore.runtime.last_commit import commit_at_last
from streamcore.runtime.lifecycle import Lifecycle, StateListener, WorkerState
from streamcore.runtime.member import Member
from streamcore.runtime.membership import Plan
from streamcore.runtime.outbound import Outbound
from streamcore.runtime.pace import Pace
from streamcore.runtime.ports import World
from streamcore.runtime.recovery import Recoverer
from streamcore.runtime.report import Report, Told
from streamcore.runtime.restore import Lag, RestoreListener, Restorer
from streamcore.runtime.settings import WorkerSettings
from streamcore.runtime.standby import Standbys
from streamcore.runtime.tasks import Tasks
from streamcore.runtime.topics import Topics
from streamcore.runtime.upkeep import Upkeep
from streamcore.topology.graph import Topology
from streamcore.topology.naming import Names

_log = structlog.get_logger("streamcore.worker")

WAIT_MS = 50
"""One poll while something else is waited for."""

QUICK_MS = 10
"""One poll while the group's answer, or the end of a changelog, is all that is missing."""


def create_worker(
    topology: Topology,
    names: Names,
    settings: WorkerSettings,
    world: World,
    listeners: Iterable[StateListener] = (),
    restore_listeners: Iterable[RestoreListener] = (),
) -> "Worker":
    """Check the topics, create what is missing of our own, and return a worker that fits them.

    :raises TopicError, TopologyError, MissingGroupError: if topics or rights are missing or unfit.
    :raises RetriableError: if the cluster did not answer; call again.
    """
    topics = Topics(topology, names, world.admin, settings)
    blueprint = Blueprint(topology, names, topics.prepare(), settings)
    return Worker(blueprint, topics, world, listeners, restore_listeners)


class Worker:
    """One member of the group with all that it owns. Called by one thread."""

    def __init__(
        self,
        blueprint: Blueprint,
        topics: Topics,
        world: World,
        listeners: Iterable[StateListener] = (),
        restore_listeners: Iterable[RestoreListener] = (),
    ) -> None:
        settings = self._settings = blueprint.settings
        self._blueprint = blueprint
        self._world = world
        self._topics = topics
        self._lifecycle = Lifecycle(listeners)
        self._engines = Engines(world.state_dir)
        self._restorer = Restorer(world.reader(), world.admin, settings, restore_listeners)
        self._tasks = Tasks(blueprint, self._engines, self._restorer, world.admin)
        self._pace = Pace(settings.process_rows_max)
        self.caches = Caches(self._tasks, settings.cache_max_bytes, self._pace)
        self._standbys = Standbys(blueprint, self._engines, self._restorer, world.admin)
        self._member = Member(
            blueprint, world, self._standbys, self._commit_and_drop, self._drop_lost
        )
        self._outbound = Outbound(
            self._member.producer,
            world.clock,
            Aftermath(world.admin, blueprint),
            transactional=settings.exactly_once,
            production_error=settings.production_error,
            dead_letter_topic=settings.task.dead_letter_topic,
        )
        self._committer = Committer(self._outbound, world.admin, settings, self._tasks.topic_ids)
        self._plan: Plan | None = None  # decided, and not yet begun
        self._paused: set[TopicPartition] = set()
        self._busy, self._last_commit_ms = False, 0
        self._kept = True  # all that the last generation did
        sources = (self._tasks, self._standbys, self._engines, self._restorer)
        told = Told(*sources, self._committer, self._outbound)
        self._report = Report(blueprint, world.admin, told)
        self.metrics = self._report.metrics
        self._recovery = Recoverer(
            self._tasks, self._committer, self._outbound, self.metrics, settings, world.clock
        )
        self._upkeep = Upkeep(self._tasks, topics, world.admin, settings)

    @property
    def state(self) -> WorkerState:
        return self._lifecycle.state

    @property
    def store_lags(self) -> Mapping[str, Mapping[int, Lag]]:
        """How far each local store is behind its changelog: store -> partition -> lag."""
        return self._report.store_lags

    # -- life --------------------------------------------------------------------------------

    def connect(self) -> None:
        """Do the part of ``start`` that waits for the cluster; another thread may do it before."""
        self._outbound.open(self._settings.request_timeout_ms)

    def start(self, now_ms: int) -> None:
        """Come to the group; the turns do the rest.

        :raises RetriableError: if the cluster did not answer; call again.
        """
        self.connect()
        self._last_commit_ms = now_ms
        self._upkeep.begin(now_ms)
        self._member.come(now_ms)
        self._lifecycle.move(WorkerState.WARMING_UP)

    def turn(self, now_ms: int) -> int:
        """Do what there is to do; return how many records were processed.

        :raises StreamsError: if nothing that we may do is safe; only ``close`` is left."""
        try:
            return self._turn(now_ms)
        except StreamsError as error:
            self._report.publish()  # before tasks that are rebuilt take their counts along
            try:
                self._recovery.meet(error, self._rejoin)
            except StreamsError:
                self._lifecycle.move(WorkerState.ERROR)
                raise
            return 0

    def stop(self, now_ms: int, budget_ms: int | None = None) -> bool:
        """Commit what is processed and leave the group; True if the commit is durable.

        Takes no new records, and waits no longer than ``budget_ms`` (default: ``stop_budget_ms``).
        """
        self._lifecycle.move(WorkerState.PENDING_SHUTDOWN)
        self._kept, default_ms = True, self._settings.stop_budget_ms
        clean = self._last_commit(now_ms, default_ms if budget_ms is None else budget_ms)
        clean &= self._kept  # behind a generation that a callback ended is nothing left to commit
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
        self._member.close()
        self._standbys.drop()
        self._restorer.close()
        self._outbound.discard()
        self._engines.close()
        self._world.admin.close()
        self._lifecycle.move(WorkerState.NOT_RUNNING)

    # -- a turn ------------------------------------------------------------------------------

    def _turn(self, now_ms: int) -> int:
        self._committer.pass_time(now_ms)
        held, rows_max = self._recovery.backoff.holds(now_ms), self._settings.poll_rows_max
        if not held:
            self._take_over(now_ms)
        self._pause(everything=held or self._outbound.blocked)
        fetched = self._member.consumer.poll(rows_max, self._wait_ms(held=held))
        self._member.raise_from_callbacks()
        self._feed(fetched)
        if held:
            return 0
        if self._outbound.blocked:
            self._outbound.push()
        rows = 0 if self._outbound.blocked else self._process(now_ms)
        self._busy = rows > 0
        committed = self._commit_if_due(now_ms)
        self._restore(now_ms)
        self._report.read(self._member.consumer, now_ms)
        self._upkeep.do(now_ms, settled=self._member.settled)
        if committed:  # until then a turn that merely read something proves nothing
            self._recovery.went_through()
        return rows

    def _take_over(self, now_ms: int) -> None:
        """Make the tasks that are ours in this generation, as far as they are missing."""
        self._plan = self._member.advance(now_ms) or self._plan
        if self._plan is not None:
            self._begin_generation(self._plan)
            self._plan = None
        membership, consumer = self._member.membership, self._member.consumer
        membership.orphans.end(now_ms)
        # Behind that: it may wait for rows that stand behind a transaction of the dead.
        self.connect()
        if self._tasks.advance(consumer, now_ms, membership.orphans.tasks):
            self._paused.clear()
        if self._member.is_guest:
            self._lifecycle.move(WorkerState.WARMING_UP)
        elif not (self._member.settled and self._tasks.settled):
            self._lifecycle.move(WorkerState.REBALANCING)
        else:
            membership.publish(consumer, now_ms)
            self._standbys.advance(consumer, now_ms)
            done = self._tasks.all_run
            self._lifecycle.move(WorkerState.RUNNING if done else WorkerState.RESTORING)

    def _begin_generation(self, plan: Plan) -> None:
        self._topics.recheck()
        self._committer.group_metadata = self._member.group_metadata
        inputs = self._blueprint.tasks()
        self._tasks.want({task: inputs[task] for task in sorted(plan.active)})
        self._standbys.want(plan.standby)
        self._engines.keep_only(plan.active | plan.standby)
        self._report.begin_generation()

    def _restore(self, now_ms: int) -> None:
        """Read a batch of the changelogs; it may wait only if nothing else could be done."""
        busy, following = self._restorer.busy, self._restorer.following
        if busy or following:
            alone = (busy or self._member.is_guest) and not self._busy
            wait_ms = QUICK_MS if alone else 0
            read = self._tasks.restore if busy else self._standbys.restore
            read(self._settings.restore_rows_max, wait_ms, now_ms)

    def _pause(self, *, everything: bool) -> None:
        """Pause the inputs that would only fill memory. Each change costs a fetch."""
        wanted = set(self._tasks.positions)
        if not everything:
            wanted = {tp for task in self._tasks.running.values() for tp in task.full}
        if wanted == self._paused:
            return
        if more := wanted - self._paused:
            self._member.consumer.pause(more)
        if less := (self._paused - wanted) & self._tasks.positions.keys():
            self._member.consumer.resume(less)
        self._paused = wanted

    def _wait_ms(self, *, held: bool) -> int:
        if held or self._outbound.blocked:
            return WAIT_MS
        if self._restorer.busy or (self._member.is_guest and self._restorer.following):
            return 0
        if not (self._member.settled or self._member.is_guest):
            return QUICK_MS
        return self._settings.poll_busy_ms if self._busy else self._settings.poll_idle_ms

    def _feed(self, fetched: Iterable[Fetched]) -> None:
        tasks, positions = self._tasks.by_partition, self._tasks.positions
        for batch in fetched:
            if (task := tasks.get(batch.source)) is not None:
                task.accept(batch)
                positions[batch.source] = batch.next_offset

    def _process(self, now_ms: int) -> int:
        rows = 0
        stopped_at: RecordError | None = None
        running = dict(self._tasks.running)
        for task in self._pace.in_turn(running, lambda: self._outbound.blocked):
            try:
                rows += self._pace.run(task, now_ms, row_by_row=self._tasks.row_by_row(task))
            except ProcessingError as error:
                self._recovery.suspect(task, error)
                stopped_at = None  # what stands in front of it may have been taken back as well
                break
            if sends := task.drain():
                self._outbound.send(sends)
            stopped_at = stopped_at or task.stopped_at
        self.metrics.add("streamcore_rows_processed_total", rows)
        if stopped_at is not None and self._commit(now_ms):  # what stands in front of it is good
            raise stopped_at
        return rows

    # -- commits -----------------------------------------------------------------------------

    def _commit_if_due(self, now_ms: int) -> bool:
        """Commit when it is time; True if a commit was made and is durable."""
        since_ms = now_ms - self._last_commit_ms
        due = not 0 <= since_ms < self._settings.commit_interval_ms  # a clock may be set back
        if not due and since_ms >= self._settings.commit_gap_min_ms:
            due = self.caches.full
        if not (due or self._recovery.backoff.failing):
            return False
        done = self._commit(now_ms)
        if not done and self._committer.unanswered:
            self._recovery.wait(self._committer.unanswered)
        return done

    def _commit(self, now_ms: int) -> bool:
        self._last_commit_ms = now_ms
        clock, commits = self._world.clock, self._committer.commits
        began_ms, done = clock.now_ms(), False
        self._pace.cut(self.caches.dirty_bytes, began_ms)
        try:
            done = self._committer.commit(
                list(self._tasks.running.values()),
                self._member.consumer,
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
        if done:
            self._pace.committed(clock.now_ms())
        if self._committer.commits > commits:
            self._recovery.committed()
            self._tasks.relieve(self._committer.durable)
            self._report.committed(clock.now_ms() - began_ms)
        return done

    def _wait(self) -> None:
        """Poll with everything paused, so that we and the group hear of each other."""
        self._pause(everything=True)
        self._feed(self._member.consumer.poll(self._settings.poll_rows_max, WAIT_MS))
        self._member.raise_from_callbacks()

    def _last_commit(self, now_ms: int, budget_ms: int) -> bool:
        def attempt(deadline: Deadline) -> bool:
            tasks, consumer = list(self._tasks.running.values()), self._member.consumer
            return self._committer.commit(tasks, consumer, now_ms, deadline, self._wait)

        return commit_at_last(attempt, self._wait, self._world.clock, budget_ms)

    # -- callbacks ---------------------------------------------------------------------------

    def _commit_and_drop(self) -> None:
        """End the generation inside the revoke callback: committed, or abandoned."""
        deadline = Deadline(self._world.clock, self._settings.revoke_budget_ms)
        clean, reason = False, "it was not done in time"
        try:
            if self._committer.running:
                clean = self._committer.finish(deadline)
            else:
                tasks, now_ms = list(self._tasks.running.values()), self._world.clock.now_ms()
                clean = self._committer.commit(tasks, self._member.consumer, now_ms, deadline)
        except StreamsError as error:
            reason = str(error)
            # A row that an external store refuses is met by policy, by its next owner.
            if error.recovery is Recovery.STOP and not isinstance(error, ProcessingError):
                raise
        finally:
            if not clean:
                _log.warning("the commit before a rebalance failed", reason=reason)
            self._end_generation(clean=clean)

    def _drop_lost(self) -> None:
        """Drop everything without a commit, and the producer with it: one that had an idle
        transaction id through a broker's restart was seen to wait for ever in its next one.
        """
        self._end_generation(clean=False)
        self._outbound.discard()

    def _end_generation(self, *, clean: bool) -> None:
        """Have no tasks any more. ``clean``: all that they did is durable."""
        self._kept &= clean
        self._committer.forget()
        self._pace.forget()
        self._member.membership.leave()
        self._plan = None
        if clean:
            self._outbound.write_rest(self._settings.markers_budget_ms)
        else:
            self._recovery.abandon_sends()
        self._report.end_generation(lambda: self._tasks.drop(clean=clean))
        self._paused.clear()

    def _rejoin(self, error: StreamsError) -> None:
        """The group went on without us: drop everything, come back as a new member."""
        self._member.go_deaf()
        self._end_generation(clean=False)
        self._member.come_back(error, self._world.clock.now_ms())
