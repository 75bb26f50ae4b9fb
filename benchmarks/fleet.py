"""Several instances of one contestant on one application: started, filled, killed, stopped.

Everything is seen from outside. Who runs which task is what the instances say; that standbys and
newcomers have caught up is seen by their processors, which are quiet then.
"""

import dataclasses
import shutil
import signal
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from benchmarks.contestants import Contestant, Group, Job, Launch, Tasks, environment
from benchmarks.jars import CACHE
from benchmarks.measure import RunError, cpu_seconds
from benchmarks.topics import Broker
from benchmarks.words import feed
from devstack.processes import Child

PARTITIONS = 4
WINDOW_SIZE_MS = 10_000
FILL_TIMEOUT_S = 600.0
SETTLE_TIMEOUT_S = 240.0
_TASKS = frozenset(f"{stage}_{partition}" for stage in range(2) for partition in range(PARTITIONS))
_QUIET_S = 1.0
_QUIET_SHARE = 0.15
STOP_TIMEOUT_S = 60.0


@dataclasses.dataclass(frozen=True, slots=True)
class Instance:
    """One process, its disk, and what it says."""

    name: str
    child: Child
    launch: Launch
    state_dir: Path

    def tasks(self) -> Tasks:
        """Return the tasks that it runs; RunError when it has ended."""
        if self.child.returncode is not None:
            raise RunError(
                f"instance {self.name} ended by itself: exit code {self.child.returncode}\n"
                f"{self.child.tail()}"
            )
        return self.launch.tasks(self.child)


class Fleet:
    """The instances of one application that live, by name. A name keeps its disk."""

    def __init__(self, broker: Broker, contestant: Contestant, job: Job) -> None:
        self.broker = broker
        self.job = job
        self._contestant = contestant
        self._living: dict[str, Instance] = {}
        self._starts = 0

    @property
    def living(self) -> frozenset[str]:
        """Return the names of those that live."""
        return frozenset(self._living)

    def instance(self, name: str) -> Instance:
        """Return one that lives."""
        return self._living[name]

    def start(self, name: str) -> float:
        """Start an instance; return when."""
        moment = time.monotonic()
        state_dir = self.job.state_dir / name
        state_dir.mkdir(parents=True, exist_ok=True)
        launch = self._contestant(dataclasses.replace(self.job, state_dir=state_dir))
        self._starts += 1
        log = self.job.state_dir / f"{name}-{self._starts}.log"
        child = Child(name, launch.command, log=log, env=environment(launch))
        self._living[name] = Instance(name, child, launch, state_dir)
        return moment

    def kill(self, name: str) -> float:
        """Kill an instance as a power cut would; return when."""
        child = self._living.pop(name).child
        moment = time.monotonic()
        child.kill()
        return moment

    def ask_to_stop(self, name: str) -> float:
        """Send SIGTERM; return when."""
        child = self._living.pop(name).child
        moment = time.monotonic()
        child.send(signal.SIGTERM)
        return moment

    def owners(self) -> dict[str, str]:
        """Return which instance runs each task; a task that nobody or two claim is left out."""
        owners: dict[str, str] = {}
        twice: set[str] = set()
        for name, instance in self._living.items():
            for task in instance.tasks():
                if task in owners:
                    twice.add(task)
                owners[task] = name
        return {task: name for task, name in owners.items() if task not in twice}

    def complete(self) -> bool:
        """Say whether all tasks run."""
        return self.owners().keys() == _TASKS

    def shared(self) -> bool:
        """Say whether all tasks run, about as many on each instance, and stores on each."""
        owners = self.owners()
        least = len(_TASKS) // len(self._living) - 1
        return owners.keys() == _TASKS and all(
            sum(owner == name for owner in owners.values()) >= least
            and any(task.startswith("1_") for task, owner in owners.items() if owner == name)
            for name in self._living
        )

    def wait(self, what: str, is_so: Callable[[], bool], timeout_s: float) -> None:
        """Return when it is so; RunError when an instance ends or time is over."""
        deadline = time.monotonic() + timeout_s
        while not is_so():
            if time.monotonic() > deadline:
                tails = "\n".join(
                    f"{name}: {instance.child.tail()}" for name, instance in self._living.items()
                )
                raise RunError(
                    f"{self.job.application_id}: waited in vain for {what};"
                    f" owners are {self.owners()}\n{tails}"
                )
            time.sleep(0.1)

    def settle(self, timeout_s: float) -> None:
        """Return when tasks are shared out and nobody has anything left to do."""
        self.wait("a fair share of tasks for each", self.shared, timeout_s)
        deadline = time.monotonic() + timeout_s
        while self._busy():
            if time.monotonic() > deadline:
                raise RunError(f"{self.job.application_id}: still busy after {timeout_s:.0f} s")

    def fill(self, entries: int) -> None:
        """Have every word counted once, in one window that has ended: `entries` in each store."""
        now_ms = time.time_ns() // 1_000_000
        begin_ms = now_ms - now_ms % WINDOW_SIZE_MS - WINDOW_SIZE_MS
        total = entries * PARTITIONS
        rows = (
            (b"word-%08d" % number, begin_ms + number * (WINDOW_SIZE_MS - 1) // total)
            for number in range(total)
        )
        feed(self.job.bootstrap, self.job.words_topic, PARTITIONS, rows)
        self.wait("the fill to be counted", self._all_committed, FILL_TIMEOUT_S)

    def close(self) -> None:
        """End every instance."""
        for instance in self._living.values():
            instance.child.kill()
        self._living.clear()

    def _all_committed(self) -> bool:
        """Say whether the group has committed all its input."""
        self.owners()  # raises when an instance has ended
        repartition = f"{self.job.application_id}-windowed-counts-repartition"
        return all(
            # The last offset may be a transaction's marker, which nobody is bound to commit.
            offset >= end - 1
            for topic in (self.job.words_topic, repartition)
            for offset, end in zip(
                self.broker.committed(self.job.application_id, topic, PARTITIONS),
                self.broker.ends(topic, PARTITIONS),
                strict=True,
            )
        )

    def _busy(self) -> bool:
        before = self._used()
        time.sleep(_QUIET_S)
        after = self._used()
        return any(after[name] - before[name] > _QUIET_S * _QUIET_SHARE for name in self._living)

    def _used(self) -> dict[str, float]:
        return {name: cpu_seconds(one.child.pid) for name, one in self._living.items()}


@contextmanager
def fleet(
    broker: Broker,
    name: str,
    contestant: Contestant,
    guarantee: str,
    interval_ms: int,
    group: Group,
) -> Iterator[Fleet]:
    """Yield a fleet without instances, on topics and disks of its own.

    What its instances wrote is in the cache afterwards, under `logs`, until the next of its kind.
    """
    CACHE.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="fleet-", dir=CACHE))
    application_id = f"fleet-{name}-{uuid.uuid4().hex[:8]}"
    job = Job(
        bootstrap=broker.bootstrap,
        application_id=application_id,
        words_topic=f"{application_id}-words",
        counts_topic=f"{application_id}-counts",
        guarantee=guarantee,
        state_dir=folder,
        commit_interval_ms=interval_ms,
        group=group,
    )
    broker.create(job.words_topic, PARTITIONS)
    broker.create(job.counts_topic, PARTITIONS)
    made = Fleet(broker, contestant, job)
    try:
        yield made
    finally:
        made.close()
        _keep_logs(folder, CACHE / "logs" / f"{name}-{guarantee}")
        broker.delete(topic for topic in broker.topics() if topic.startswith(application_id))
        shutil.rmtree(folder, ignore_errors=True)


def _keep_logs(folder: Path, kept: Path) -> None:
    shutil.rmtree(kept, ignore_errors=True)
    kept.mkdir(parents=True)
    for log in folder.glob("*.log"):
        shutil.copy(log, kept)


def moved(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[Tasks, Tasks]:
    """Return the tasks that changed their owner, and those that did not."""
    gone = frozenset(task for task in before if after.get(task) != before[task])
    return gone, frozenset(before) - gone
