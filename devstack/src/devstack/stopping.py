"""SIGINT, SIGTERM and SIGHUP as a question that the run asks itself."""

import signal
import threading
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StopSignals:
    """Counts the signals: the first asks for a clean end, the next for a quick one.

    Handlers only note; nothing is ever interrupted half-way, so no child can be lost.
    """

    def __init__(self) -> None:
        self._count = 0
        self._event = threading.Event()

    @property
    def asked(self) -> bool:
        """Whether the run should end."""
        return self._count > 0

    @property
    def urgent(self) -> bool:
        """Whether it should end without waiting for anybody."""
        return self._count > 1

    def install(self) -> None:
        """Take the signals over."""
        for number in _SIGNALS:
            signal.signal(number, self._note)

    def wait(self, seconds: float) -> None:
        """Wait, but not on after the first signal."""
        self._event.wait(seconds)

    def _note(self, _number: int, _frame: FrameType | None) -> None:
        self._count += 1
        self._event.set()
