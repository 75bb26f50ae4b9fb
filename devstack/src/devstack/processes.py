"""Child processes that cannot outlive us."""

import atexit
import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from devstack.errors import StackError

_POLL_S = 0.02
_STANDS_WITHIN_S = 30.0
_STANDING = frozenset("TtZX")  # stopped, or ended


class _Watcher:
    """Our side of `watcher.py`: started with the first child, told of each child."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def tell(self, sign: str, pid: int) -> None:
        with self._lock:
            process = self._process or self._started()
            assert process.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(f"{sign}{pid}\n".encode())
                process.stdin.flush()

    def _started(self) -> subprocess.Popen[bytes]:
        script = Path(__file__).with_name("watcher.py")
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
        )
        atexit.register(self._close)
        return self._process

    def _close(self) -> None:
        with self._lock:
            if self._process is not None:
                assert self._process.stdin is not None
                with contextlib.suppress(BrokenPipeError):
                    self._process.stdin.close()
                self._process.wait()
                self._process = None


_WATCHER = _Watcher()


def watch(pid: int) -> None:
    """Have the process group `pid` ended when we end, however we end."""
    _WATCHER.tell("+", pid)


def unwatch(pid: int) -> None:
    """Forget a process group that has ended."""
    _WATCHER.tell("-", pid)


def _states_of_threads(group: int) -> Iterator[str]:
    """Yield the state of each thread of the group; none where the kernel does not tell."""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended
            if _fields(process / "stat")[2] != str(group):
                continue
            for thread in (process / "task").iterdir():
                yield _fields(thread / "stat")[0]


def _fields(stat: Path) -> list[str]:
    """Return what follows the name, which may hold anything: state, parent, group."""
    return stat.read_bytes().rpartition(b")")[2].decode().split()


class Child:
    """A program running in a process group of its own, its output in a file.

    The group is what signals go to, so a shell in between or workers of a server get them too.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        log: Path,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        user: int | None = None,
    ) -> None:
        self.name = name
        self.log = log
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output:
            self._log_start = output.tell()
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=None if env is None else dict(env),
                cwd=cwd,
                user=user,
                group=user,
                extra_groups=None if user is None else [],
                start_new_session=True,
            )
        watch(self._process.pid)

    @property
    def pid(self) -> int:
        """The process id, which is also the id of its group."""
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """The exit code (negative: the signal that ended it), or None while it runs."""
        return self._process.poll()

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the whole group; a group that has ended is no error.

        After SIGSTOP it returns when every thread stands still: one of them takes the signal and
        passes it on, and where processors are scarce the others work on meanwhile.
        """
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, number)
            if number is signal.SIGSTOP:
                self._wait_until_it_stands()

    def _wait_until_it_stands(self) -> None:
        deadline = time.monotonic() + _STANDS_WITHIN_S
        while not all(state in _STANDING for state in _states_of_threads(self.pid)):
            if time.monotonic() > deadline:
                raise StackError(f"{self.name} goes on {_STANDS_WITHIN_S:.0f} s after SIGSTOP")
            time.sleep(_POLL_S)

    def wait(self, timeout_s: float) -> bool:
        """Wait for its end; say whether it came in time."""
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return False
        unwatch(self.pid)
        return True

    def stop(self, number: signal.Signals = signal.SIGTERM, *, patience_s: float = 30) -> bool:
        """Ask it to end and wait; after `patience_s` kill it. Say whether it ended by itself.

        A paused process could not hear us, so it is woken first.
        """
        self.send(signal.SIGCONT)
        self.send(number)
        if self.wait(patience_s):
            return True
        self.kill()
        return False

    def kill(self) -> None:
        """End the whole group at once and wait for it."""
        self.send(signal.SIGKILL)
        self._process.wait()
        unwatch(self.pid)

    def tail(self, lines: int = 15) -> str:
        """Return the last lines that this run has written."""
        with contextlib.suppress(OSError), self.log.open("rb") as written:
            written.seek(self._log_start)
            text = written.read().decode("utf-8", "replace")
            return "\n".join(text.rstrip().splitlines()[-lines:])
        return ""


def wait_until_up(child: Child, is_up: Callable[[], bool], timeout_s: float) -> None:
    """Return when `is_up` says so; raise StackError when the child ends or time is over.

    The child is not left running in either case.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        if child.returncode is not None:
            child.wait(0)
            raise StackError(
                f"{child.name} ended while starting (exit code {child.returncode}); "
                f"its last words: {_last_words(child)}"
            )
        if is_up():
            return
        if time.monotonic() > deadline:
            child.kill()
            raise StackError(
                f"{child.name} did not answer within {timeout_s:.0f} s; see {child.log}"
            )
        time.sleep(_POLL_S)


def _last_words(child: Child) -> str:
    # Java puts the reason in front of a page of stack frames.
    lines = [line.strip() for line in child.tail(200).splitlines() if line.strip()]
    reasons = [line for line in lines if not re.match(r"at |\.\.\. \d+ more|\}", line)]
    words = " | ".join(reasons[-2:])
    return words[-600:] or f"none, see {child.log}"
