"""Backoff: how long to leave the world alone after it did not answer, and how often to say so."""

import structlog

_log = structlog.get_logger("streamcore.backoff")

FIRST_MS = 100
MOST_MS = 5_000
TELL_MS = 10_000


class Backoff:
    """Grows with each failure in a row and is forgotten at the first success."""

    def __init__(self) -> None:
        self._next_ms = FIRST_MS
        self._until_ms = 0
        self._told_at_ms: int | None = None
        self._untold = 0

    @property
    def failing(self) -> bool:
        """True from a failure on until ``succeeded``."""
        return self._next_ms != FIRST_MS

    def failed(self, reason: str, now_ms: int) -> None:
        """Hold from now on; one log line per ten seconds, however often this is called."""
        self._until_ms = now_ms + self._next_ms
        self._next_ms = min(2 * self._next_ms, MOST_MS)
        self._untold += 1
        if self._told_at_ms is None or now_ms - self._told_at_ms >= TELL_MS:
            _log.warning("waiting, it is tried again", reason=reason, times=self._untold)
            self._told_at_ms, self._untold = now_ms, 0

    def holds(self, now_ms: int) -> bool:
        """Tell whether it is too early to try again."""
        return now_ms < self._until_ms

    def succeeded(self) -> None:
        """Begin anew with short waits. What failed has succeeded, and not just something else."""
        if self.failing:
            self._next_ms, self._until_ms, self._untold = FIRST_MS, 0, 0
            if self._told_at_ms is not None:
                _log.info("going on")
                self._told_at_ms = None
