"""One run of `make chaos`: servers, services, lines, faults, and the comparison at the end."""

import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from devstack.chaos.feed import EVENT_TIME_FACTOR, WORDS_A_LINE, Feeder, make_lines
from devstack.chaos.fleet import Fleet, Instance
from devstack.chaos.options import ChaosOptions
from devstack.chaos.plan import AGGREGATOR, OUTAGE_S, SERVICES, Fault, Step, make_plan
from devstack.chaos.reading import (
    Groups,
    counts_in_database,
    counts_in_topic,
    read_lines,
    words_in_database,
)
from devstack.chaos.recount import compare, recount
from devstack.chaos.report import Outcome, describe_rows
from devstack.errors import StackError
from devstack.kafka import Broker
from devstack.lock import only_run_in
from devstack.postgres import Database
from devstack.stopping import StopSignals
from devstack.topics import Topic, create_topics

LINES: Final = "textlines"
WORDS: Final = "words"
COUNTS: Final = "windowed-counts"
PARTITIONS: Final = 4
WINDOW_MS: Final = 10_000
GRACE_MS: Final = 2_000
STANDBYS: Final = 1
_GROUPS: Final = {
    "ingest-app": (LINES,),
    "aggregator-app": (WORDS, "aggregator-app-windowed-counts-repartition"),
    "sink-app": (COUNTS,),
}
_TICK_S: Final = 0.1
_STATUS_S: Final = 10.0
_FIRST_S: Final = 60.0  # until the first word is counted
_BACK_S: Final = 30.0  # until an instance that was killed runs again
_AT_WORK_S: Final = 10.0  # how long a fault waits for its victim to have something to lose
_APART_S: Final = 3.0  # between two faults that are behind their time
_SETTLED_S: Final = 120.0
_STOPPED_S: Final = 40.0


class Interrupted(StackError):  # noqa: N818 - nothing went wrong
    """Somebody has asked the run to end."""


class Trial:
    """A run in four steps, `start`, `break_things`, `settle` and `judge`; `up` is around them."""

    def __init__(
        self,
        options: ChaosOptions,
        say: Callable[[str], None],
        stop: StopSignals,
        plan: Sequence[Step] | None = None,
    ) -> None:
        self.options = options
        self.plan = make_plan(options.seed, options.seconds) if plan is None else tuple(plan)
        self.broker = Broker(options.folder / "kafka")
        self.database = Database(options.folder / "postgres")
        self._done: list[Step] = []
        self._say_line = say
        self._stop = stop
        self._fleet = Fleet(options.logs, options.state, {})
        self._feeder: Feeder | None = None
        self._down: set[str] = set()  # servers that we have stopped ourselves
        self._down_s = 0.0
        self._began_s = time.monotonic()
        self._status_s = 0.0

    def go(self) -> int:
        """Do all of it and return the exit code; whatever was started has ended then."""
        try:
            with self.up():
                self.start()
                self.break_things()
                self.settle()
                code = self.judge()
            if code == 0:
                self._forget()
            return code
        except StackError as problem:
            return self._failed(problem)

    @contextmanager
    def up(self) -> Iterator[None]:
        """End everything that was started, in any case."""
        with only_run_in(self.options.folder, "make chaos"):
            try:
                yield
            finally:
                self._end_everything()

    def _end_everything(self) -> None:
        if self._feeder is not None:
            self._feeder.abandon()
        self._fleet.kill_all()
        for server in (self.database, self.broker):
            if self._stop.urgent:
                server.kill()
            else:
                server.stop()

    def _forget(self) -> None:
        """Remove all but the logs: of a run that has passed nobody wants the rest."""
        for folder in (self.broker.folder, self.database.folder, self.options.state):
            shutil.rmtree(folder, ignore_errors=True)

    def start(self) -> None:
        """Start servers, services and the feed; return when the first word is in the table."""
        options = self.options
        self._forget()
        shutil.rmtree(options.logs, ignore_errors=True)
        options.logs.mkdir(parents=True)
        self._say(
            f"{options.guarantee}, {options.rate:,} words/s, {options.seconds} s of faults, seed "
            f"{options.seed}; logs: {options.logs}"
        )
        self.broker.start()
        self.database.start()
        self._say("broker and PostgreSQL are up")
        for_ever = {"retention.ms": "-1"}
        create_topics(
            {"bootstrap.servers": self.broker.bootstrap},
            [Topic(name, PARTITIONS, for_ever) for name in (LINES, WORDS, COUNTS)],
        )
        self._fleet.env = self._env()
        self._fleet.migrate()
        self._fleet.start_all()
        self._feeder = self._make_feeder()
        self._feeder.start()
        self._until(
            lambda: bool(words_in_database(self.database.url)), lambda: "the first count", _FIRST_S
        )
        self._say("the first words are counted; now the faults")

    def break_things(self) -> None:
        """Carry out the plan, while lines come in all the time."""
        began_s = ended_s = time.monotonic()
        planned_s = 0.0
        for step in self.plan:
            # What took longer than planned is caught up, but never so that all comes at once.
            due_s = max(began_s + step.at_s, ended_s + min(step.at_s - planned_s, _APART_S))
            while time.monotonic() < due_s:
                self._tick()
            self._carry_out(step)
            self._done.append(step)
            planned_s, ended_s = step.at_s, time.monotonic()
        while self.plan and time.monotonic() < began_s + self.options.seconds:
            self._tick()

    def settle(self) -> None:
        """End the feed, wait until the services have done everything, and stop them."""
        feeder = self._fed()
        feeder.stop()
        self._say(f"the feed has ended: {feeder.words:,} words; waiting for lag 0")
        groups = Groups(self.broker.bootstrap, _GROUPS)
        self._until(lambda: groups.lag() == {}, lambda: f"lag 0, it is {groups.lag()}", _SETTLED_S)
        self._say("lag 0 in all groups; stopping the services")
        self._fleet.stop_all()
        self._until(
            lambda: all(each.child is None for each in self._fleet.instances.values()),
            lambda: "the end of all services",
            _STOPPED_S,
        )

    def judge(self) -> int:
        """Compare the table with a recount of the lines, say what was found, return the code."""
        feeder, bootstrap = self._fed(), self.broker.bootstrap
        lines = read_lines(bootstrap, LINES)
        wanted = recount(lines, WINDOW_MS, GRACE_MS)
        comparison = compare(wanted.counts, counts_in_database(self.database.url))
        outcome = Outcome(
            options=self.options,
            planned=self.plan,
            done=self._done,
            lines_fed=feeder.lines,
            words_fed=feeder.words,
            words_a_second=feeder.words_a_second,
            seconds=feeder.seconds,
            lines_read=len(lines),
            recount=wanted,
            comparison=comparison,
        )
        problems = outcome.problems()
        if problems:
            for row in describe_rows(
                comparison, lambda: counts_in_topic(bootstrap, COUNTS, WINDOW_MS)
            ):
                self._say_line(row)
            for problem in problems:
                self._say(f"FAILED: {problem}")
            self._say(f"logs: {self.options.logs}")
        self._say_line(outcome.last_line())
        return 1 if problems else 0

    # --- faults -----------------------------------------------------------------------------------

    def _carry_out(self, step: Step) -> None:
        match step.fault:
            case Fault.KILL | Fault.WIPE:
                victim = self._victim(step)
                what = self._describe(victim)
                self._fleet.kill(victim, wipe=step.fault is Fault.WIPE)
                self._say(f"{step.fault}: {what}")
            case Fault.TERM:
                victim = self._victim(step)
                self._say(f"{step.fault}: {self._describe(victim)}")
                self._fleet.stop(victim)
            case Fault.SCALE:
                self._fleet.scale(step.service, step.instances, step.pick)
                self._say(f"{step.service} {step.fault} to {step.instances}")
            case Fault.BROKER_DOWN:
                self._stop_broker()
            case Fault.BROKER_UP:
                self._start_broker()
            case Fault.DATABASE:
                self._restart_database(hard=step.pick % 2 == 0)

    def _victim(self, step: Step) -> Instance:
        """Return an instance that has something to lose, or one that runs at least."""
        fleet = self._fleet
        self._until(
            lambda: bool(fleet.running(step.service)),
            lambda: f"an instance of {step.service} that runs",
            _BACK_S,
        )
        deadline = time.monotonic() + _AT_WORK_S
        while True:
            running = fleet.running(step.service)
            if running:
                victim = running[step.pick % len(running)]
                if self._down or victim.processed() or time.monotonic() > deadline:
                    return victim
            self._tick()

    def _describe(self, instance: Instance) -> str:
        return f"{instance.name}, which had processed {instance.processed() or 0:,} records"

    def _stop_broker(self) -> None:
        """End the broker as a power cut would.

        Told to stop, a broker that is alone may note a transaction as complete whose marker it
        did not write any more (seen with 4.3.1: offsets stay pending for ever, and no client can
        end that or tell how it was to end). Others would have taken over; here there are none.
        """
        self._until(lambda: not self._fleet.stopping, lambda: "the end of who stops", _STOPPED_S)
        self._down.add(self.broker.name)
        self.broker.kill()
        self._down_s = time.monotonic()
        self._say("broker stopped (kill -9)")

    def _start_broker(self) -> None:
        while time.monotonic() < self._down_s + OUTAGE_S:
            self._tick()
        self.broker.start()
        self._down.discard(self.broker.name)
        self._say(f"broker is back after {time.monotonic() - self._down_s:.1f} s")

    def _restart_database(self, *, hard: bool) -> None:
        self._down.add(self.database.name)
        began_s = time.monotonic()
        if hard:
            self.database.kill()
        else:
            self.database.stop()
        self.database.start()
        self._down.discard(self.database.name)
        how = "kill -9" if hard else "connections broken off"
        self._say(f"PostgreSQL restarted ({how}) in {time.monotonic() - began_s:.1f} s")

    # --- in between -------------------------------------------------------------------------------

    def _until(
        self, condition: Callable[[], bool], what: Callable[[], str], limit_s: float
    ) -> None:
        deadline = time.monotonic() + limit_s
        while not condition():
            if time.monotonic() > deadline:
                raise StackError(f"not within {limit_s:.0f} s: {what()}")
            self._tick()

    def _tick(self) -> None:
        """Let a moment pass, and see whether all that should run does."""
        if self._stop.asked:
            raise Interrupted("interrupted: nothing is proven")
        self._fleet.tend()
        if self._feeder is not None and self._feeder.errors:
            raise StackError(f"the feed failed: {self._feeder.errors[0]}")
        for server in (self.broker, self.database):
            if server.returncode is not None and server.name not in self._down:
                raise StackError(f"{server.name} ended by itself, see {server.log}")
        if self._feeder is not None and time.monotonic() > self._status_s:
            self._status_s = time.monotonic() + _STATUS_S
            self._say(self._status(self._feeder))
        self._stop.wait(_TICK_S)

    def _status(self, feeder: Feeder) -> str:
        counted = words_in_database(self.database.url)
        up = " ".join(each.name for service in SERVICES for each in self._fleet.running(service))
        table = "no answer from PostgreSQL" if counted is None else f"counted {counted:,}"
        return f"  fed {feeder.words:,} words, {table}; up: {up}"

    def _say(self, text: str) -> None:
        self._say_line(f"{time.monotonic() - self._began_s:6.1f} s  {text}")

    def _failed(self, problem: StackError) -> int:
        self._say(str(problem))
        self._say_line(
            f"chaos FAILED: {self.options.guarantee}, seed {self.options.seed}: "
            f"{str(problem).splitlines()[0]}; logs: {self.options.logs}"
        )
        return 1

    # --- what is started --------------------------------------------------------------------------

    def _make_feeder(self) -> Feeder:
        options = self.options
        step_ms = EVENT_TIME_FACTOR * 1_000 * WORDS_A_LINE / options.rate
        # So far back that no timestamp is ever ahead of the clock, however long the run takes.
        first_ms = int(time.time() * 1_000) - EVENT_TIME_FACTOR * 1_000 * (2 * options.seconds + 60)
        lines = make_lines(options.seed, PARTITIONS, first_ms, step_ms)
        return Feeder(self.broker.bootstrap, LINES, lines, options.rate)

    def _fed(self) -> Feeder:
        assert self._feeder is not None, "start() comes first"
        return self._feeder

    def _env(self) -> dict[str, str]:
        return {
            "KAFKA_URL": self.broker.url,
            "DATABASE_URL": self.database.url,
            "WINDOW_SIZE_MS": str(WINDOW_MS),
            "GRACE_MS": str(GRACE_MS),
            "STREAMCORE_PROCESSING_GUARANTEE": self.options.guarantee,
            "STREAMCORE_COMMIT_INTERVAL_MS": "500",
            "STREAMCORE_SESSION_TIMEOUT_MS": "6000",
            # Longer than the broker is away: one that expires transactions while it starts may
            # forget to write that down (decision 0016).
            "STREAMCORE_TRANSACTION_TIMEOUT_MS": "120000",
            "STREAMCORE_LOG_FORMAT": "json",
            f"{AGGREGATOR.upper()}_NUM_STANDBY_REPLICAS": str(STANDBYS),
        }
