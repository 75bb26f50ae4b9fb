"""Watchdog: a loop that has gone silent ends the process, with the stacks of all its threads.

A worker that hangs in foreign code keeps its partitions from everybody else as long as its client's
threads say that it is alive. A platform starts a process again that has ended; one that stands
still it does not notice.

Silence is counted in looks of a thread of ours, not by a clock: a process that is frozen as a whole
(or starved) looks as rarely as it works. Code that holds the interpreter's lock keeps that thread
from looking as well; ``faulthandler``'s timer needs no lock, goes by the clock, and is put forward
at each look, so it gets ``BACKUP`` times as long. There is one such timer for a process, and a
signal to stop takes it for itself: ``StopSignals.back_up`` leaves it alone from then on.
"""

import faulthandler
import os
import threading
from collections.abc import Callable
from typing import Self

import structlog

BACKUP = 3
LOOKS = 60
"""Looks that make up a whole silence."""
LOOK_S_MAX = 1.0

_STDERR = 2

_log = structlog.get_logger("streamcore.app")


class Watchdog:
    """Watches while the context is open; ``beat`` says that the loop goes on."""

    def __init__(
        self,
        stall_timeout_ms: int,
        back_up: Callable[[float | None], None] = lambda _timeout_s: None,
        end: Callable[[int], object] = os._exit,
    ) -> None:
        """``stall_timeout_ms`` 0: never. ``back_up`` sets the timer off anew, None: not at all."""
        self._stall_s = stall_timeout_ms / 1_000
        self._back_up = back_up
        self._end = end
        self._beats = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def beat(self) -> None:
        """The loop has come round, or waits for something that may take its time."""
        self._beats += 1

    def __enter__(self) -> Self:
        if self._stall_s:
            self._back_up(BACKUP * self._stall_s)
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._stall_s:
            self._over.set()
            self._thread.join()
            self._back_up(None)

    def _watch(self) -> None:
        look_s = min(LOOK_S_MAX, self._stall_s / LOOKS)
        silent_s, beats = 0.0, self._beats
        while not self._over.wait(look_s):
            self._back_up(BACKUP * self._stall_s)
            silent_s = silent_s + look_s if beats == self._beats else 0.0
            beats = self._beats
            if silent_s >= self._stall_s:
                self._stop(silent_s)

    def _stop(self, silent_s: float) -> None:
        _log.critical(
            "the loop is silent; the process ends, the stacks of its threads follow",
            silent_s=round(silent_s, 1),
        )
        faulthandler.dump_traceback(file=_STDERR, all_threads=True)
        self._end(1)
