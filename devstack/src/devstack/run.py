"""`make run`: servers, topics, tables, services, text, a live table; and all of it down again.

Everything starts in the order of its dependencies and stops in the opposite one: first the
text, then the services from the source to the sink, each given time to finish what it has,
then the database, then the broker.
"""

import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path

import psycopg
import structlog

from devstack.counts import CountsReader, Snapshot
from devstack.errors import StackError
from devstack.kafka import Broker
from devstack.kafka_url import client_settings
from devstack.lock import only_run_in
from devstack.logs import Follower, set_aside
from devstack.options import RunOptions
from devstack.ports import require_free
from devstack.postgres import Database
from devstack.processes import Child
from devstack.procfile import Procfile, read_procfile
from devstack.screen import Screen
from devstack.server import Server
from devstack.stopping import StopSignals
from devstack.topics import create_topics

DRAIN_S = 30.0
RELEASE_S = 120.0
TICK_S = 0.2
READ_EVERY_S = 1.0
_SHELL = "/bin/sh"
_SPACE_BYTES = 500_000_000


class Run:
    """One run, from nothing to nothing."""

    def __init__(self, options: RunOptions, screen: Screen, stop: StopSignals) -> None:
        self._options = options
        self._screen = screen
        self._stop = stop
        self._log = _event_log(options.logs / "run.log")
        self._procfile: Procfile = read_procfile(options.root / "Procfile")
        self._instances = self._procfile.instances(options.scale)
        self._env = dict(options.env)
        self._servers: list[Server] = []
        self._services: list[Child] = []
        self._feed: Child | None = None
        self._followers: list[Follower] = []
        self._began_s = time.monotonic()

    def go(self) -> int:
        """Run until a signal, the goal or a failure; return the exit code.

        Raises StackError, with everything stopped, when something cannot be started.
        """
        with ExitStack() as cleanup:
            cleanup.enter_context(only_run_in(self._options.folder, "make run"))
            cleanup.callback(self._screen.close)
            cleanup.callback(self._stop_everything)
            self._start_everything()
            return 0 if self._stop.asked else self._watch()

    def _start_everything(self) -> None:
        steps: tuple[Callable[[], None], ...] = (
            self._check_machine,
            self._start_broker,
            self._start_database,
            self._create_topics,
            self._release,
            self._start_services,
            self._start_feed,
        )
        for step in steps:
            if self._stop.asked:
                return
            step()

    def _check_machine(self) -> None:
        """Complain before anything has started that would have to be stopped again."""
        free = shutil.disk_usage(self._options.folder).free
        if free < _SPACE_BYTES:
            raise StackError(
                f"no disk space: {free // 1_000_000} MB free in {self._options.folder}, "
                f"{_SPACE_BYTES // 1_000_000} MB needed"
            )
        if not self._env.get("KAFKA_URL"):
            require_free(self._options.kafka_port, "Kafka", "KAFKA_PORT")
        if not self._env.get("DATABASE_URL"):
            require_free(self._options.postgres_port, "PostgreSQL", "POSTGRES_PORT")

    def _start_broker(self) -> None:
        if self._env.get("KAFKA_URL"):
            self._screen.say("Kafka: the one of KAFKA_URL")
            return
        broker = Broker(self._options.folder / "kafka", self._options.kafka_port)
        self._servers.append(broker)
        began_s = time.monotonic()
        broker.start()
        self._env["KAFKA_URL"] = broker.url
        self._started("Kafka", broker.bootstrap, broker.pid, began_s)

    def _start_database(self) -> None:
        if self._env.get("DATABASE_URL"):
            self._screen.say("PostgreSQL: the one of DATABASE_URL")
            return
        database = Database(self._options.folder / "postgres", self._options.postgres_port)
        self._servers.append(database)
        began_s = time.monotonic()
        database.start()
        self._env["DATABASE_URL"] = database.url
        self._started("PostgreSQL", f"127.0.0.1:{database.port}", database.pid, began_s)

    def _started(self, name: str, address: str, pid: int, began_s: float) -> None:
        took_s = time.monotonic() - began_s
        self._log.info("started", name=name, address=address, pid=pid, took_s=round(took_s, 2))
        self._screen.say(f"{name}: up at {address} after {took_s:.1f} s")

    def _create_topics(self) -> None:
        created = create_topics(client_settings(self._env), self._options.topics)
        self._screen.say(f"topics: {', '.join(created)} created" if created else "topics: there")

    def _release(self) -> None:
        if self._procfile.release is None:
            return
        # Several commands in one line: the shell stays, as it does on a platform.
        child = self._start("release", [_SHELL, "-c", self._procfile.release], {})
        if not child.wait(RELEASE_S):
            child.kill()
            raise StackError(f"`{self._procfile.release}` took over {RELEASE_S:.0f} s: {child.log}")
        if child.returncode != 0:
            self._screen.say(child.tail())
            raise StackError(
                f"`{self._procfile.release}` failed with exit code {child.returncode}: {child.log}"
            )
        self._screen.say("tables: there")

    def _start_services(self) -> None:
        self._env.setdefault("STREAMCORE_STATE_DIR", str(self._options.folder / "state"))
        for instance in self._instances:
            self._services.append(self._child(instance.name, instance.command, instance.env))
        names = " ".join(instance.name for instance in self._instances)
        self._screen.say(f"services: {names} (logs: {_from_here(self._options.logs)})")

    def _start_feed(self) -> None:
        command = [sys.executable, "-m", "ingest", *self._options.feed]
        self._feed = self._start("feed", command, {})
        text = self._options.text or "Python's own documentation, over and over"
        self._screen.say(f"feeding {text} at {self._options.rate:g} lines/s; Ctrl-C stops")

    def _child(self, name: str, command: str, env: Mapping[str, str]) -> Child:
        # With exec there is one process to signal and one exit code, whatever the shell.
        return self._start(name, [_SHELL, "-c", f"exec {command}"], env)

    def _start(self, name: str, command: list[str], env: Mapping[str, str]) -> Child:
        log = self._options.logs / f"{name}.log"
        set_aside(log)
        # `python` of the Procfile is the Python that runs us.
        path = f"{Path(sys.executable).parent}{os.pathsep}{self._env.get('PATH', os.defpath)}"
        full = {"PYTHONUNBUFFERED": "1", **self._env, **env, "PATH": path}
        child = Child(name, command, log=log, env=full, cwd=self._options.root)
        self._followers.append(Follower(name, log))
        self._log.info("started", name=name, pid=child.pid)
        return child

    def _watch(self) -> int:
        reader = CountsReader(self._env["DATABASE_URL"], self._options.windows, self._options.words)
        try:
            return self._watch_with(reader)
        finally:
            reader.close()

    def _watch_with(self, reader: CountsReader) -> int:
        try:
            since = reader.now()
        except psycopg.OperationalError:
            raise StackError("the database of DATABASE_URL does not answer") from None
        next_read_s = seen = 0.0
        while not self._stop.asked:
            if dead := self._dead():
                return self._mourn(dead)
            now_s = time.monotonic()
            if now_s >= next_read_s:
                next_read_s = now_s + READ_EVERY_S
                snapshot = reader.read()
                fresh = _is_fresh(snapshot, since)
                if fresh and not seen:
                    self._screen.say(f"first count after {now_s - self._began_s:.1f} s")
                seen = seen + 1 if fresh else 0
                self._screen.show(snapshot, self._status(), now_s)
                if self._options.until_counts and seen > 1:
                    return 0
            if self._options.until_counts and now_s - self._began_s > self._options.give_up_s:
                raise StackError(f"no counts within {self._options.give_up_s:.0f} s")
            self._show_problems()
            self._stop.wait(TICK_S)
        return 0

    def _status(self) -> str:
        children = [*self._services, *([self._feed] if self._feed else [])]
        up = " ".join(child.name for child in children if child.returncode is None)
        return f"up: {up}"

    def _show_problems(self) -> None:
        for follower in self._followers:
            for line in follower.problems():
                self._screen.problem(line)

    def _dead(self) -> str | None:
        """Return what has ended without being told to, with its last words."""
        feed = self._feed
        if feed is not None and feed.returncode == 0:
            feed.wait(0)
            self._feed = None
            self._screen.say("the text has been fed to its end; Ctrl-C stops")
        for child in (*self._services, *([self._feed] if self._feed else [])):
            if child.returncode is not None:
                child.wait(0)
                return _obituary(child.name, child.returncode, child.tail())
        for server in self._servers:
            if server.returncode is not None:
                name = type(server).__name__.lower()
                return _obituary(name, server.returncode, server.tail())
        return None

    def _mourn(self, obituary: str) -> int:
        self._screen.close()
        self._screen.say(obituary)
        self._log.error("child died", what=obituary.splitlines()[0])
        return 1

    def _stop_everything(self) -> None:
        self._screen.close()
        if self._feed is not None or self._services or self._servers:
            self._screen.say("stopping the text, the services, the servers, in this order")
        if self._feed is not None:
            self._stop_child(self._feed)
        for child in self._services:
            self._stop_child(child)
        for server in reversed(self._servers):
            if self._stop.urgent:
                server.kill()
            else:
                server.stop()
        self._log.info("stopped")
        self._screen.say("everything has stopped")

    def _stop_child(self, child: Child) -> None:
        """Let a child finish what it has; a second Ctrl-C, or its time, cuts that short."""
        if child.returncode is not None:
            child.wait(0)
            return
        began_s = time.monotonic()
        child.send(signal.SIGTERM)
        while not child.wait(TICK_S):
            if self._stop.urgent or time.monotonic() - began_s > DRAIN_S:
                child.kill()
                self._screen.say(f"{child.name}: killed; its log: {child.log}")
                break
        took_s = round(time.monotonic() - began_s, 2)
        self._log.info("stopped", name=child.name, code=child.returncode, took_s=took_s)


def _is_fresh(snapshot: Snapshot | None, since: object) -> bool:
    """Say whether something was counted since we began: the table outlives runs."""
    return bool(snapshot and snapshot.changed_at and snapshot.changed_at > since)  # type: ignore[operator]


def _obituary(name: str, code: int, tail: str) -> str:
    last = "\n".join(f"    {line}" for line in tail.splitlines()) or "    (its log is empty)"
    how = f"exit code {code}" if code >= 0 else signal.Signals(-code).name
    return f"{name} has ended ({how}); everything else is stopped. Its last lines:\n{last}"


def _event_log(path: Path) -> structlog.stdlib.BoundLogger:
    path.parent.mkdir(parents=True, exist_ok=True)
    set_aside(path)
    log: structlog.stdlib.BoundLogger = structlog.wrap_logger(
        structlog.WriteLogger(path.open("a", encoding="utf-8", buffering=1)),
        processors=[
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.add_log_level,
            structlog.processors.LogfmtRenderer(key_order=["timestamp", "level", "event"]),
        ],
    )
    return log


def _from_here(path: Path) -> Path:
    """Return the path as somebody in the current folder would write it."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
