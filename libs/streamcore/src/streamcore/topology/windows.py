"""Windows: arithmetic only. Aligned to the epoch, [start, end): the end is left out."""

from dataclasses import dataclass

from streamcore.errors import TopologyError
from streamcore.serde.windowed import Window, Windowed

__all__ = ["Window", "Windowed", "Windows", "hopping", "tumbling"]


@dataclass(frozen=True, slots=True)
class Windows:
    """Hopping windows of ``size_ms`` that start every ``advance_ms``; tumbling when both are equal.

    A record is late for a window when ``end + grace_ms`` is not above its clock.

    >>> hopping(size_ms=10, advance_ms=5).starts(12)
    range(5, 13, 5)
    >>> list(tumbling(size_ms=10).starts(9))
    [0]
    """

    size_ms: int
    advance_ms: int
    grace_ms: int = 0

    def __post_init__(self) -> None:
        if self.size_ms <= 0:
            raise TopologyError(f"a window's size_ms is {self.size_ms}; it must be above 0")
        if not 0 < self.advance_ms <= self.size_ms:
            raise TopologyError(
                f"advance_ms is {self.advance_ms}; it must be above 0 and at most size_ms "
                f"({self.size_ms})"
            )
        if self.grace_ms < 0:
            raise TopologyError(f"grace_ms is {self.grace_ms}; it must not be negative")

    def starts(self, stamp_ms: int) -> range:
        """Return the starts of the windows that hold ``stamp_ms``, oldest first, none below 0."""
        oldest = max(0, stamp_ms - self.size_ms + self.advance_ms) // self.advance_ms
        return range(oldest * self.advance_ms, stamp_ms + 1, self.advance_ms)

    def closes_ms(self, start_ms: int) -> int:
        """Return the watermark at which the window that starts there is closed."""
        return start_ms + self.size_ms + self.grace_ms

    def oldest_open_ms(self, watermark_ms: int) -> int:
        """Return the start of the oldest window that this watermark leaves open.

        What a windowed step may still emit is not older: it is the watermark that it passes on.
        """
        behind = watermark_ms - self.size_ms - self.grace_ms
        return 0 if behind < 0 else (behind // self.advance_ms + 1) * self.advance_ms


def tumbling(*, size_ms: int, grace_ms: int = 0) -> Windows:
    """Return windows that follow each other without a gap or an overlap."""
    return Windows(size_ms, size_ms, grace_ms)


def hopping(*, size_ms: int, advance_ms: int, grace_ms: int = 0) -> Windows:
    """Return windows of ``size_ms`` that start every ``advance_ms``."""
    return Windows(size_ms, advance_ms, grace_ms)
