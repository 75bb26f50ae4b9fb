"""Clock: the one question that an edge may ask; everybody else is told the time."""

from typing import Protocol


class Clock(Protocol):
    """Wall-clock time in milliseconds since the epoch."""

    def now_ms(self) -> int: ...
