"""ManualClock: time that stands until somebody moves it."""


class ManualClock:
    """Port ``streamcore.clock.Clock``.

    >>> clock = ManualClock(1_000)
    >>> clock.advance(500)
    >>> clock.now_ms()
    1500
    """

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._steady_ms = 0

    def now_ms(self) -> int:
        return self._now_ms

    def steady_ms(self) -> int:
        return self._steady_ms

    def advance(self, by_ms: int) -> None:
        """Let time pass. A clock may also be set back: machines do that."""
        self._now_ms += by_ms
        self._steady_ms += max(0, by_ms)
