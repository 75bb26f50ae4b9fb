"""WorkerProcesses: ``num_stream_threads`` worker processes and their parent.

A child is this very program, started once more with a variable in its environment that tells it
to be a worker: nothing is pickled and no client is inherited. The parent only starts, watches and
ends; it has no client and no store of its own. If it is killed, its children see the end of their
link and stop as after a signal.
"""

import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import structlog

from streamcore.adapters.parent_link import ChildLink, Lags, merged, variable
from streamcore.adapters.system import StopSignals
from streamcore.errors import ConfigError
from streamcore.runtime.metrics import Sample

LOOK_S = 0.1
REPLACED_MAX = 5
"""Deaths in a row, without living ``LIVED_S``, after which a worker is not started again."""
LIVED_S = 60.0
BACKOFF_MAX_S = 30.0

_log = structlog.get_logger("streamcore.processes")


def command_of_this_program(num_stream_threads: int) -> list[str]:
    """Return what to run to have this program once more.

    :raises ConfigError: if it cannot be run again: a prompt, a notebook, code from standard input.
    """
    interactive = hasattr(sys, "ps1") or sys.flags.interactive
    source = getattr(sys.modules.get("__main__"), "__file__", None)
    written = source not in (None, "<stdin>") or sys.argv[:1] == ["-c"]
    if interactive or not written or not sys.executable:
        problem = (
            f"num_stream_threads is {num_stream_threads}; each worker process is this program run "
            "again, and code from a prompt or standard input cannot be: put it into a file, or "
            "set num_stream_threads to 1"
        )
        raise ConfigError([problem])
    return [sys.executable, *sys.orig_argv[1:]]


class _Child:
    """One worker process that was started."""

    def __init__(self, group: str, number: int, command: Sequence[str]) -> None:
        self.number = number
        self.link, theirs = ChildLink.pair(number)
        self.began_s = time.monotonic()
        try:
            self._process = subprocess.Popen(  # noqa: S603  # our own command line
                command,
                env={**os.environ, **variable(group, number, theirs)},
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
            )
        except OSError:
            self.link.close()
            raise
        finally:
            theirs.close()
        _log.info("worker process started", worker=number, pid=self._process.pid)

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    @property
    def ended_well(self) -> bool:
        return self._process.returncode == 0 and self.link.ready

    @property
    def how(self) -> str:
        """How it ended, in words."""
        code = self._process.returncode
        if code >= 0:
            return f"exit code {code}"
        try:
            return signal.Signals(-code).name
        except ValueError:
            return f"signal {-code}"

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)


class WorkerProcesses:
    """Starts the workers, and waits for their end or ours."""

    def __init__(
        self,
        group: str,
        command: Sequence[str],
        count: int,
        signals: StopSignals,
        *,
        replace: bool,
        stop_ms: int,
    ) -> None:
        """``stop_ms``: how long children may take to end; then they are killed."""
        self._group = group
        self._command = command
        self._count = count
        self._signals = signals
        self._replace = replace
        self._stop_ms = stop_ms
        self._selector = selectors.DefaultSelector()
        self._children: Mapping[int, _Child] = {}  # replaced as a whole: other threads read it
        self._deaths: dict[int, int] = {}
        self._replaced = 0
        self._due_s: dict[int, float] = {}  # when a dead one is started again
        self._kill_at_s: float | None = None  # set: we are stopping
        self._failed = False

    def run(self, beat: Callable[[], None] = lambda: None) -> int:
        """Return 0 when all children have ended well after a signal, 1 if not.

        ``beat`` is called each time that the loop comes round.
        """
        self._due_s = dict.fromkeys(range(1, self._count + 1), time.monotonic())
        try:
            while True:
                beat()
                self._start_due()
                if not self._children and not self._due_s:
                    break
                self._listen()
                self._heed_signals()
                self._bury()
        finally:
            for child in self._children.values():  # only after an error of ours
                child.send(signal.SIGKILL)
            self._selector.close()
        _log.info("all worker processes have ended", clean=not self._failed)
        return 1 if self._failed else 0

    def samples(self) -> Iterator[Sample]:
        """Yield what the living children told last, with a label ``worker``, and our own numbers;
        for any thread.
        """
        yield Sample("streamcore_workers_replaced_total", (), self._replaced)
        for child in self._children.values():
            yield from child.link.snapshot.samples

    def lags(self) -> Lags:
        """Return the lags of the stores of all living children; for any thread."""
        return merged(child.link.snapshot.lags for child in self._children.values())

    # -- the loop ----------------------------------------------------------------------------

    def _start_due(self) -> None:
        now_s = time.monotonic()
        for number in [number for number, due_s in self._due_s.items() if due_s <= now_s]:
            if self._due_s.pop(number, None) is None:
                return  # we are stopping: one before it could not be started
            try:
                child = _Child(self._group, number, self._command)
            except OSError as error:
                self._died(number, f"it cannot be started: {error}", 0.0)
                continue
            self._children = {**self._children, number: child}
            self._replaced += number in self._deaths
            self._selector.register(child.link, selectors.EVENT_READ, child)

    def _listen(self) -> None:
        for key, _ in self._selector.select(LOOK_S):
            if not key.data.link.read():
                self._selector.unregister(key.fileobj)

    def _bury(self) -> None:
        for child in [child for child in self._children.values() if child.ended]:
            if child.link.fileno() in self._selector.get_map():
                child.link.read()  # it may have become ready just before its end
                self._selector.unregister(child.link)
            child.link.close()
            self._children = {n: c for n, c in self._children.items() if c is not child}
            self._judge(child)

    def _judge(self, child: _Child) -> None:
        if self._kill_at_s is not None or self._signals.requested:
            # One that heeded no signals yet had nothing to lose, however it ended.
            if child.link.ready and not child.ended_well:
                _log.error("worker process did not stop well", worker=child.number, how=child.how)
                self._failed = True
        elif child.ended_well:
            _log.warning("worker process was stopped from outside", worker=child.number)
        else:
            self._died(child.number, child.how, time.monotonic() - child.began_s)

    def _died(self, number: int, how: str, lived_s: float) -> None:
        deaths = 1 if lived_s >= LIVED_S else self._deaths.get(number, 0) + 1
        self._deaths[number] = deaths
        again = self._replace and deaths <= REPLACED_MAX
        wait_s = min(BACKOFF_MAX_S, 2.0 ** (deaths - 1))
        _log.error(
            "worker process died",
            worker=number,
            how=how,
            lived_s=round(lived_s, 1),
            deaths_in_a_row=deaths,
            then=f"it is started again in {wait_s:.0f} s" if again else "all others are stopped",
        )
        if again:
            self._due_s[number] = time.monotonic() + wait_s
        else:
            self._failed = True
            self._stop(self._stop_ms)

    # -- the end -----------------------------------------------------------------------------

    def _heed_signals(self) -> None:
        if self._kill_at_s is None and self._signals.requested:
            _log.info("stopping", reason=self._signals.reason)
            self._stop(self._signals.left_ms(self._stop_ms))
        elif self._kill_at_s is not None and time.monotonic() >= self._kill_at_s:
            for child in self._children.values():
                _log.error("worker process does not end, killed", worker=child.number)
                child.send(signal.SIGKILL)
            self._failed = True
            self._kill_at_s = time.monotonic() + 1.0

    def _stop(self, budget_ms: int) -> None:
        """Ask all children to stop, once."""
        if self._kill_at_s is not None:
            return
        self._kill_at_s = time.monotonic() + budget_ms / 1_000
        self._due_s.clear()
        for child in self._children.values():
            child.send(signal.SIGTERM)
