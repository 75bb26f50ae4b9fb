"""Allowance: how much may be unacknowledged at a time, so that nothing waits longer than it may.

A record that is not acknowledged in time is given up, and its tasks go back to their last commit.
Where a quota lets 64 kB a second through, a queue of megabytes would be given up and sent again for
ever. A broker measures over ten seconds, and lets whoever is over its quota wait for each request
anew, those that are under way already one after the other: with each of four partitions 100 kB too
many make some 15 s. So little is under way before it is known that more goes through.
"""

import time
from collections import deque
from collections.abc import Callable, Sequence

BEGIN_BYTES = 32 * 1024
"""May be under way when nothing is known: half a second of the smallest quota there is."""

WINDOW_S = 10.0
"""What a broker measures a quota over, by default."""

_SAMPLE = 32


class Allowance:
    """A second's worth of what was acknowledged in the last ten, and a bit to begin with.

    Without a quota it grows by a tenth with each answer, some milliseconds, and is in nobody's way.
    """

    def __init__(self, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._monotonic_s = monotonic_s
        self._acknowledged: deque[tuple[float, float]] = deque()  # when, bytes
        self._lately_bytes = 0.0
        self._rows = 0
        self._bytes = 0.0

    def room(self, rows_under_way: int, row_bytes: float) -> int:
        """Return how many more rows of this size may be sent; ``rows_under_way`` is so by now."""
        now_s = self._monotonic_s()
        done = self._rows - rows_under_way
        if done > 0:
            done_bytes = self._bytes * done / self._rows
            self._rows -= done
            self._bytes -= done_bytes
            self._acknowledged.append((now_s, done_bytes))
            self._lately_bytes += done_bytes
        while self._acknowledged and self._acknowledged[0][0] < now_s - WINDOW_S:
            self._lately_bytes -= self._acknowledged.popleft()[1]
        allowed_bytes = BEGIN_BYTES + self._lately_bytes / WINDOW_S
        room = int((allowed_bytes - self._bytes) / row_bytes)
        return max(room, 0 if self._rows else 1)  # one goes always, however large

    def sent(self, rows: int, row_bytes: float) -> None:
        """So many more are under way."""
        self._rows += rows
        self._bytes += rows * row_bytes

    def throttled(self) -> None:
        """More than a quota allows went through: begin anew."""
        self._acknowledged.clear()
        self._lately_bytes = 0.0


def mean_bytes(keys: Sequence[bytes | None], values: Sequence[bytes | None]) -> float:
    """Return about how many bytes one of these rows has, by looking at some of them."""
    step = len(values) // _SAMPLE | 1  # odd: rows may alternate
    some, more = values[::step], keys[::step]
    total = sum(map(len, filter(None, some))) + sum(map(len, filter(None, more)))
    return max(1.0, total / max(1, len(some)))
