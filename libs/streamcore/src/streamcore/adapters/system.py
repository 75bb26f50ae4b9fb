"""The clock of the machine, and the signals that ask us to stop."""

import signal
import time
from types import FrameType
from typing import Self

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class SystemClock:
    """Wall-clock time."""

    def now_ms(self) -> int:
        """Return milliseconds since the epoch."""
        return time.time_ns() // 1_000_000


class StopSignals:
    """Notes that SIGTERM or SIGINT came, while the context is open; sent twice, it counts once.

    Only notes it: the worker ends its turn, commits and leaves. Must be entered in the main thread.
    """

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self._before: dict[signal.Signals, object] = {}

    @property
    def requested(self) -> bool:
        """Whether we were asked to stop."""
        return self.received is not None

    def __enter__(self) -> Self:
        for number in STOP_SIGNALS:
            self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for number, before in self._before.items():
            # None: the handler was not set from Python, and cannot be put back.
            signal.signal(number, signal.SIG_DFL if before is None else before)  # type: ignore[arg-type]
        self._before.clear()

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self.received = self.received or signal.Signals(number)
