"""Deadline: one budget of time that several steps share."""

from streamcore.clock import Clock


class Deadline:
    """Ends ``budget_ms`` after it was made; every wait asks it for its share."""

    def __init__(self, clock: Clock, budget_ms: int) -> None:
        self._clock = clock
        self._end_ms = clock.steady_ms() + budget_ms

    @property
    def left_ms(self) -> int:
        """What is left, at least 0."""
        return max(0, self._end_ms - self._clock.steady_ms())

    @property
    def over(self) -> bool:
        return self.left_ms == 0

    def share_ms(self, most_ms: int) -> int:
        """Return what one wait may take: ``most_ms``, or what is left, but never 0."""
        return max(1, min(most_ms, self.left_ms))
