"""The clock of the machine, the signals that ask us to stop, and the end if we do not hear them."""

import faulthandler
import os
import selectors
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Self

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
PARENT_GONE = "the parent process has ended"

_STDERR = 2
_NO_SIGNAL = 0


class SystemClock:
    """Wall-clock time that never goes back. After the machine's clock was set back this one goes
    at half its speed until the other has caught up: what waits, waits twice as long at most.
    """

    def __init__(
        self,
        wall_ns: Callable[[], int] = time.time_ns,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._wall_ns, self._monotonic_ns = wall_ns, monotonic_ns
        self._now_ns, self._asked_ns = wall_ns(), monotonic_ns()

    def now_ms(self) -> int:
        """Return milliseconds since the epoch."""
        asked_ns = self._monotonic_ns()
        slow_ns = self._now_ns + (asked_ns - self._asked_ns) // 2
        self._now_ns, self._asked_ns = max(self._wall_ns(), slow_ns), asked_ns
        return self._now_ns // 1_000_000

    def steady_ms(self) -> int:
        """Return milliseconds since some moment; nobody sets them."""
        return self._monotonic_ns() // 1_000_000


class StopSignals:
    """Notes that SIGTERM or SIGINT came, while the context is open; sent twice, it counts once.

    Only notes it, and when: the worker ends its turn, commits and leaves. With ``last_resort_ms``
    the process ends so long after the signal with exit code 1 and the stacks of all its threads on
    standard error, unless the context is left before: code that never comes back must not keep a
    platform waiting. ``parent`` is a socket whose other end is held by the process that started
    us; when that ends, it counts as a signal. ``to_the_end`` is for a process that has nothing left
    to do afterwards: behind a SIGTERM, another one is ignored until it is gone, so that it changes
    no exit code. (Process managers tell the whole group, and a parent passes it on.)

    Python runs signal handlers between two steps of the main thread, so never while that hangs in
    foreign code. A thread is told by the kernel's side of the signal instead, and starts a timer
    that needs neither of them. Must be entered in the main thread.
    """

    def __init__(
        self,
        last_resort_ms: int | None = None,
        parent: int | None = None,
        *,
        to_the_end: bool = False,
    ) -> None:
        self.received: signal.Signals | None = None
        self.reason = ""
        self._last_resort_ms = last_resort_ms
        self._parent = parent
        self._to_the_end = to_the_end
        self._arrived_s: float | None = None
        self._armed = False
        self._before: dict[signal.Signals, object] = {}
        self._wakeup_before = -1
        self._ends: tuple[int, int] = (-1, -1)
        self._watch: threading.Thread | None = None

    @property
    def requested(self) -> bool:
        """Whether we were asked to stop."""
        return self._arrived_s is not None

    def left_ms(self, budget_ms: int) -> int:
        """Return what is left of a budget that began when we were asked to stop."""
        if self._arrived_s is None:
            return budget_ms
        return max(0, budget_ms - int((time.monotonic() - self._arrived_s) * 1_000))

    def __enter__(self) -> Self:
        self._ends = os.pipe()
        for end in self._ends:
            os.set_blocking(end, False)
        _entered.append(self)
        self._watch = threading.Thread(target=self._listen, name="stop-signals", daemon=True)
        self._watch.start()
        self._wakeup_before = signal.set_wakeup_fd(self._ends[1], warn_on_full_buffer=False)
        for number in STOP_SIGNALS:
            self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        if self._to_the_end and self.received is signal.SIGTERM:
            self._before[signal.SIGTERM] = signal.SIG_IGN
        for number, before in self._before.items():
            # None: the handler was not set from Python, and cannot be put back.
            signal.signal(number, signal.SIG_DFL if before is None else before)  # type: ignore[arg-type]
        self._before.clear()
        signal.set_wakeup_fd(self._wakeup_before)
        _entered.remove(self)
        os.write(self._ends[1], bytes([_NO_SIGNAL]))
        assert self._watch is not None
        self._watch.join()
        for end in self._ends:
            os.close(end)
        if self._armed:
            faulthandler.cancel_dump_traceback_later()
            self._armed = False

    def back_up(self, timeout_s: float | None) -> None:
        """Be ``Watchdog``'s back-up: end the process then, unless told anew before; None: do not.

        Once we were asked to stop this does nothing: there is one timer for a process, and it is
        the last resort's then.
        """
        if self._arrived_s is not None:
            return
        if timeout_s is None:
            faulthandler.cancel_dump_traceback_later()
        else:
            faulthandler.dump_traceback_later(timeout_s, exit=True, file=_STDERR)
        self._arm()  # the signal may have come in between

    def leave_to_parent(self) -> None:
        """Let go, in a fork of user code: its signals are not ours and must not enter our pipe."""
        signal.set_wakeup_fd(-1)
        for number in STOP_SIGNALS:
            signal.signal(number, signal.SIG_DFL)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        self._note(signal.Signals(number))

    def _listen(self) -> None:
        """Wait for signals and for the parent's end; runs in a thread of its own."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._ends[0], selectors.EVENT_READ)
            if self._parent is not None:
                selector.register(self._parent, selectors.EVENT_READ)
            while True:
                for key, _ in selector.select():
                    if key.fd == self._parent:  # it never writes: this is the end of it
                        selector.unregister(key.fd)
                        self._note(None)
                        continue
                    came = os.read(self._ends[0], 512)
                    for number in came:
                        if number in STOP_SIGNALS:
                            self._note(signal.Signals(number))
                    if _NO_SIGNAL in came:
                        return

    def _note(self, number: signal.Signals | None) -> None:
        """Take note once. Handler and thread may both come here: what they do twice is the same."""
        if self._arrived_s is not None:
            return
        self.received = number
        self.reason = PARENT_GONE if number is None else number.name
        self._arrived_s = time.monotonic()
        self._arm()

    def _arm(self) -> None:
        if self._arrived_s is not None and self._last_resort_ms is not None:
            self._armed = True
            left_s = max(1, self.left_ms(self._last_resort_ms)) / 1_000
            faulthandler.dump_traceback_later(left_s, exit=True, file=_STDERR)


_entered: list[StopSignals] = []


def _hold_signals() -> None:
    if _entered:
        signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)


def _take_signals() -> None:
    if _entered:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)


def _leave_signals() -> None:
    for signals in _entered:
        signals.leave_to_parent()
    _take_signals()


os.register_at_fork(
    before=_hold_signals, after_in_parent=_take_signals, after_in_child=_leave_signals
)
