"""The services as processes: killed and told to stop on purpose, started again, and watched."""

import os
import shutil
import signal
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from devstack.chaos.plan import AGGREGATOR, INGEST, SINK
from devstack.errors import StackError
from devstack.ports import LOOPBACK, free_port
from devstack.processes import Child

STOP_S: Final = 30.0  # platforms kill after that
_RESTART_S: Final = 1.0
_METRIC: Final = "streamcore_rows_processed_total"
_OURS: Final = (
    "STREAMCORE_", "INGEST_", "AGGREGATOR_", "SINK_", "KAFKA_", "DATABASE_", "EMIT", "WINDOW_",
    "GRACE_", "LINES_", "WORDS_", "COUNTS_",
)  # fmt: skip


@dataclass
class Instance:
    """One instance of a service: it keeps name, disk and log over its restarts."""

    name: str
    service: str
    child: Child | None = None
    port: int = 0
    starts: int = 0
    start_at_s: float | None = None  # when it is due to be started again
    stopping_s: float | None = None  # since when it is told to stop
    told_early: bool = False  # it was told so while Python was still loading it
    retired: bool = False  # not to be started again

    @property
    def running(self) -> bool:
        """Whether it runs and nobody has told it to stop."""
        return self.child is not None and self.stopping_s is None

    def processed(self) -> int | None:
        """Return how many records it has processed since its start; None without an answer."""
        try:
            with urllib.request.urlopen(f"http://{LOOPBACK}:{self.port}/metrics", timeout=2) as got:
                text = got.read().decode()
        except OSError:
            return None
        rows = [row.split() for row in text.splitlines() if row.startswith(_METRIC)]
        return sum(int(float(row[1])) for row in rows)


@dataclass
class Fleet:
    """All instances. `tend` is to be called every moment: it notices ends and starts again."""

    logs: Path
    state: Path
    env: Mapping[str, str]
    instances: dict[str, Instance] = field(default_factory=dict)
    kills: Counter[str] = field(default_factory=Counter)

    def start_all(self) -> None:
        """Start one ingest, two aggregators and one sink."""
        for name in (INGEST, AGGREGATOR, SINK):
            self.scale(name, 2 if name == AGGREGATOR else 1)
        self.tend()

    def of(self, service: str) -> list[Instance]:
        """Return the instances of a service that are meant to be there, in the order of names."""
        return [
            each for each in self.instances.values() if each.service == service and not each.retired
        ]

    def running(self, service: str) -> list[Instance]:
        """Return those of them that run and were not told to stop."""
        return [each for each in self.of(service) if each.running]

    @property
    def stopping(self) -> bool:
        """Whether an instance was told to stop and has not ended yet."""
        return any(each.stopping_s is not None for each in self.instances.values())

    def scale(self, service: str, count: int, pick: int = 0) -> None:
        """Bring a service to so many instances; `pick` chooses who is told to stop."""
        while len(there := self.of(service)) > count:
            leaving = there[pick % len(there)]
            leaving.retired, leaving.start_at_s = True, None
            if leaving.running:
                self._tell(leaving)
        for number in range(1, count + len(self.instances) + 1):
            if len(self.of(service)) == count:
                break
            instance = self.instances.setdefault(
                f"{service}.{number}", Instance(f"{service}.{number}", service, retired=True)
            )
            # One that is still stopping keeps its disk until its end: another name is taken.
            if instance.retired and instance.child is None:
                instance.retired, instance.start_at_s = False, time.monotonic()

    def kill(self, instance: Instance, *, wipe: bool = False) -> None:
        """End an instance between two instructions, and its disk too if told so."""
        assert instance.child is not None
        instance.child.kill()
        self.kills[instance.service] += 1
        if wipe:
            shutil.rmtree(self._disk(instance), ignore_errors=True)
        self._ended(instance)

    def stop(self, instance: Instance) -> None:
        """Tell an instance to stop; it is started again once it has."""
        self._tell(instance)

    def tend(self) -> None:
        """Start again who is due.

        Raises StackError when an instance has ended without having been told to, with an error,
        or does not end within the time that platforms give.
        """
        for instance in self.instances.values():
            if instance.child is not None:
                self._look_after(instance, instance.child)
            elif instance.start_at_s is not None and time.monotonic() >= instance.start_at_s:
                self._start(instance)

    def stop_all(self) -> None:
        """Tell all instances to stop; none comes back."""
        for instance in self.instances.values():
            instance.retired, instance.start_at_s = True, None
            if instance.running:
                self._tell(instance)

    def kill_all(self) -> None:
        """End whatever still runs."""
        for instance in self.instances.values():
            if instance.child is not None:
                instance.child.kill()

    def migrate(self, patience_s: float = 60) -> None:
        """Make the sink's tables."""
        command = [sys.executable, "-m", "sink", "migrate"]
        log = self.logs / "migrate.log"
        child = Child("migrate", command, log=log, env=self._env({}), cwd=self.logs)
        if not child.wait(patience_s):
            child.kill()
        if child.returncode != 0:
            raise StackError(f"the sink's tables cannot be made, see {log}: {child.tail(3)}")

    def _look_after(self, instance: Instance, child: Child) -> None:
        code, told_s = child.returncode, instance.stopping_s
        if code is None:
            if told_s is not None and time.monotonic() - told_s > STOP_S:
                raise StackError(
                    f"{instance.name} did not end within {STOP_S:.0f} s of SIGTERM, see {child.log}"
                )
            return
        child.wait(0)
        # Before it has a handler of its own, the signal ends any program in this way.
        unheard = instance.told_early and code == -signal.SIGTERM
        if (code != 0 and not unheard) or told_s is None:
            how = f"exit code {code}" if code >= 0 else signal.Signals(-code).name
            what = "by itself" if told_s is None else "after SIGTERM"
            raise StackError(
                f"{instance.name} ended {what} ({how}), see {child.log}"
                f"\nIts last lines:\n{child.tail(25)}"
            )
        self._ended(instance)

    def _ended(self, instance: Instance) -> None:
        instance.child = instance.stopping_s = None
        if not instance.retired:
            instance.start_at_s = time.monotonic() + _RESTART_S

    def _tell(self, instance: Instance) -> None:
        assert instance.child is not None
        instance.told_early = instance.processed() is None
        instance.stopping_s = time.monotonic()
        instance.child.send(signal.SIGTERM)

    def _start(self, instance: Instance) -> None:
        instance.port, instance.start_at_s = free_port(), None
        instance.starts += 1
        disk = self._disk(instance)
        disk.mkdir(parents=True, exist_ok=True)
        instance.child = Child(
            instance.name,
            [sys.executable, "-m", instance.service],
            log=self.logs / f"{instance.name}.log",
            env=self._env(
                {
                    "STREAMCORE_STATE_DIR": str(disk),
                    "STREAMCORE_METRICS_PORT": str(instance.port),
                }
            ),
            cwd=self.logs,
        )

    def _disk(self, instance: Instance) -> Path:
        return self.state / instance.name

    def _env(self, more: Mapping[str, str]) -> dict[str, str]:
        # What is set for the services of somebody's own is not meant for these.
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(_OURS)}
        return {**inherited, "PYTHONFAULTHANDLER": "1", **self.env, **more}
