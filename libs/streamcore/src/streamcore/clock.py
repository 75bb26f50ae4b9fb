"""Clock: the one question that an edge may ask; everybody else is told the time."""

from typing import Protocol


class Clock(Protocol):
    """Wall-clock time in milliseconds since the epoch; it may leap ahead, but never goes back."""

    def now_ms(self) -> int: ...

    def steady_ms(self) -> int:
        """Milliseconds since some moment, for measuring: nobody sets them."""
        ...
