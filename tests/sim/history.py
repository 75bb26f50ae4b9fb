"""One seed is one history: workers on a broker in memory, and what can happen to them.

What must hold is checked after each event. Now and then, and at the end, everything is left in
peace: then every task must run somewhere, and in the end the counts are compared with those of the
words themselves: equal under exactly-once; under at-least-once not lower, not higher than by what
was handed to workers again, and equal where nothing happened that may count something again.
"""

import logging
from collections import Counter
from collections.abc import Callable
from random import Random

import structlog
from tests.sim.checks import Checker, ViolationError
from tests.sim.faults import Faults
from tests.sim.inputs import reached
from tests.sim.processes import Disk, Killed, Process, Watch, inside
from tests.sim.words import GRACE_MS, NAMES, SIZE_MS, TOPOLOGIES, Source, some_settings

from streamcore.errors import RetriableError
from streamcore.model import TaskId
from streamcore.runtime.lifecycle import WorkerState
from streamcore.runtime.worker import Worker, create_worker
from streamcore.task import Task
from streamcore.testing.consumer import MemoryConsumer
from streamcore.topology.partitioning import partition_of

EVENTS = 200
SLOTS = ("a", "b", "c", "d")
QUIET_TURNS = 600
"""Turns of peace, 200 ms each, in which every task must have come to run somewhere."""


class History:
    """A cluster, its workers, and everything that was done to them."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = Random(seed)
        self.guarantee = rng.choice(("at_least_once", "exactly_once_v2"))
        self.exactly_once = self.guarantee == "exactly_once_v2"
        self.gentle = rng.random() < 0.25
        self.source = Source(rng, rng.randrange(3, 7))
        self.clock, self.broker = self.source.clock, self.source.broker
        self.settings = some_settings(rng, self.guarantee)
        self.checker = Checker(self.source, exactly_once=self.exactly_once, gentle=self.gentle)
        self.workers: dict[Process, Worker] = {}
        self.disks = {slot: Disk() for slot in SLOTS[: rng.randrange(2, 5)]}
        self.foreign: MemoryConsumer | None = None
        self.version = 1
        self.events = 0
        self.doubled = False  # something happened that may count something again
        self.started = 0
        self.standing: Process | None = None  # one that stands still inside a call
        self.met: Counter[str] = Counter()
        kind = f"{self.guarantee}, gentle" if self.gentle else self.guarantee
        sizes = f"{self.source.partitions} partitions, {len(self.disks)} slots"
        standbys = f"{self.settings.num_standby_replicas} standbys"
        self.log = [f"seed {seed}: {kind}, {sizes}, {standbys}"]
        self.faults = Faults(self)
        # Of the seed itself: what other seeds draw stays what it was.
        self.late_leaders = Random(seed) if seed % 5 < 2 else None

    def tell(self, what: str, fault: str | None = None) -> None:
        """Note what happens; a fault is counted by its kind."""
        self.log.append(f"{self.events:4} {self.clock.now_ms() % 10_000_000:7} {what}")
        if fault is not None:
            self.met[fault] += 1

    # -- events --------------------------------------------------------------------------------

    def play(self, events: int = EVENTS) -> None:
        """Let things happen, and check after each of them."""
        for _ in range(2):
            self.start()
        actions = {self.feed: 6, self.turns: 12, self.start: 3, self.quiet: 1, **self.faults.odds()}
        kinds, weights = list(actions), list(actions.values())
        for self.events in range(1, events + 1):
            (action,) = self.rng.choices(kinds, weights)
            action()
            self.check()
        self.tell("the end: peace")
        self.settle()

    def failure(self, events: int = EVENTS) -> Exception | None:
        """Play, and return what went wrong; also what an engine raised that had no way on."""
        try:
            self.play(events)
        except Exception as failure:
            return failure
        return None

    def kinds(self) -> list[str]:
        """Return the kinds of faults that somebody met."""
        calls = self.broker.faults.met
        return sorted([*self.met, *(f"{call} fails" for call in calls)])

    def check(self) -> None:
        self.checker.after_event(self.workers)
        if self.events % 10 == 0:
            self.checker.engines(self.all_disks())

    def all_disks(self) -> dict[Disk, None]:
        """Return the disks that are there: of slots, and of workers whose slot has another one."""
        return dict.fromkeys([*self.disks.values(), *(process.disk for process in self.workers)])

    def feed(self) -> None:
        if not self.broker.away:
            self.source.feed(self.rng.randrange(1, 40))

    def turns(self, most: int = 5) -> None:
        for _ in range(self.rng.randrange(1, most)):
            self.round()
            self.clock.advance(self.rng.choice((10, 150, 400)))

    def round(self) -> None:
        """Let everybody take a turn, in some order."""
        self.broker.expire_transactions()
        if self.rng.random() < 0.03:
            self.broker.write_markers()
        elif self.broker.late_markers and self.rng.random() < 0.4:
            self.broker.write_marker(self.rng.randrange(100))
        for process in self.rng.sample(list(self.workers), len(self.workers)):
            self.turn(process)
        if self.foreign is not None:
            self.foreign.poll(100, 0)

    def turn(self, process: Process) -> None:
        worker = self.workers.get(process)
        if worker is None or process is self.standing:
            return
        self.within(process, lambda: worker.turn(self.clock.now_ms()))

    def within(self, process: Process, action: Callable[[], object]) -> bool:
        """Do something in a process; False if it was killed meanwhile."""
        try:
            action()
        except Killed:
            self.workers.pop(process, None)
            return False
        self.checker.raise_found()
        return True

    def start(self) -> None:
        """Start a worker in a slot that is free; now and then in one that is not."""
        taken = {process.name.split(".")[0] for process in self.workers}
        free = [slot for slot in self.disks if slot not in taken]
        if free:
            slot = self.rng.choice(free)
            self.launch(slot, self.disks[slot])

    def launch(self, slot: str, disk: Disk) -> None:
        self.started += 1
        process = Process(f"{slot}.{self.started}", disk)
        self.tell(f"start {process.name}, version {self.version}")
        world = self.broker.world(NAMES.group, slot=slot)
        watch = Watch(self.checker.found.append, self.checker.inputs, self.broker)
        world = inside(world, process, watch)

        def begin() -> None:
            worker = create_worker(TOPOLOGIES[self.version], NAMES, self.settings, world)
            worker.start(self.clock.now_ms())
            self.workers[process] = worker

        try:
            self.within(process, begin)
        except RetriableError as error:
            self.tell(f"did not start: {error}")
            process.die()

    def stop(self, process: Process) -> None:
        """Let a worker end as SIGTERM does: all that it has processed must be committed then.

        Whoever had lost its membership or its transaction cannot, nor one to whom something happens
        meanwhile. What the worker says of it does not count.
        """
        worker = self.workers.pop(process)
        self.tell(f"stop {process.name}")
        processed, able = reached(worker), self.checker.may_commit(process)
        before = self.faults.disturbances()
        self.within(process, lambda: worker.stop(self.clock.now_ms()))
        lost = self.checker.inputs.uncommitted(processed)
        if lost and able and before == self.faults.disturbances():
            self.checker.stopped_without(process, lost)
        self.doubled |= bool(lost)

    # -- peace ---------------------------------------------------------------------------------

    def quiet(self) -> None:
        """Leave everything in peace until every task runs somewhere."""
        self.tell("quiet")
        self.heal()
        self.wait_until(lambda: not self.missing())

    def wait_until(self, done: Callable[[], bool]) -> None:
        """Take turns until that is so.

        :raises ViolationError: if it takes too long.
        """
        for _ in range(QUIET_TURNS):
            if done():
                return
            self.round()
            self.broker.write_markers()
            self.clock.advance(200)
        states = ", ".join(f"{p.name} {worker.state.value}" for p, worker in self.workers.items())
        missing = " ".join(self.missing()) or "none"
        raise ViolationError(
            f"even in peace: tasks that run nowhere: {missing}; unread: {self.source.unread()}; "
            f"workers: {states}"
        )

    def heal(self) -> None:
        """End all that is wrong with the broker and the group; have a worker at least."""
        self.faults.end()
        if not self.workers:
            self.start()

    def missing(self) -> list[str]:
        owners = self.checker.owners(self.workers)
        return [str(task) for task in self.tasks() if task not in owners]

    def tasks(self) -> list[TaskId]:
        return [TaskId(sub, p) for sub in (0, 1) for p in range(self.source.partitions)]

    def settled(self) -> bool:
        """Tell whether every worker has what it should, and all of it runs."""
        states = {worker.state for worker in self.workers.values()}
        return states <= {WorkerState.RUNNING, WorkerState.WARMING_UP} and not self.missing()

    def _same_tasks_for(self, rounds: int) -> Callable[[], bool]:
        """Return what tells whether the same tasks have run for so many rounds, with commits."""
        running: list[Task] = []
        steady = 0

        def done() -> bool:
            nonlocal running, steady
            now = [task for w in self.workers.values() for task in w._tasks.running.values()]
            steady = steady + 1 if self.settled() and now == running else 0
            running = now
            return steady >= rounds

        return done

    def settle(self) -> None:
        """Leave everything in peace until all is read, and compare with what was fed."""
        self.heal()
        self.wait_until(lambda: self.source.unread() == 0 and self.settled())
        watermarks_ms = self.checker.watermarks()
        self.wait_until(self._same_tasks_for(15))
        self.check()
        self.checker.engines(self.all_disks())
        self.checker.nothing_expired(self.workers, watermarks_ms)
        self.compare()

    def compare(self) -> None:
        """Compare what was counted with what was fed; finals as far as windows are closed."""
        ledger, fed = self.checker.ledger, self.source.fed
        watermarks_ms = self.checker.watermarks()
        exact = self.exactly_once or not self.doubled
        for key in fed.keys() | ledger.output.keys() | ledger.finals.keys():
            found = {"output": ledger.output.get(key, 0)}
            partition = partition_of(key[0].encode(), self.source.partitions)
            if key in ledger.finals or key[1] + SIZE_MS + GRACE_MS <= watermarks_ms[partition]:
                found["final result"] = ledger.finals.get(key, 0)
            again = 0 if exact else self.checker.inputs.again[key]
            for where, count in found.items():
                if not fed[key] <= count <= fed[key] + again:
                    at_most = f", {again} handed over again" if again else ""
                    raise ViolationError(
                        f"{where} of {key} is {count}, {fed[key]} were fed{at_most}"
                    )


def simulate(seed: int) -> History:
    """Play one history; a failure tells it."""
    history = History(seed)
    failure = history.failure()
    if failure is not None:
        failure.add_note("\n".join(history.log))
        raise failure
    return history


def told(failure: Exception) -> str:
    """Return a failure in one line."""
    name = "" if isinstance(failure, ViolationError) else f"{type(failure).__name__}: "
    return " ".join(f"{name}{failure}".split())


def quietly() -> None:
    """Let the engine log nothing: thousands of turns have much to tell."""
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL),
        cache_logger_on_first_use=False,
    )
