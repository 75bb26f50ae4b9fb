"""Faults: which call of a port fails next, asked for by name.

>>> faults = Faults()
>>> faults.next("producer.flush", False, times=2)
>>> faults.take("producer.flush"), faults.take("producer.flush"), faults.take("producer.flush")
(False, False, None)
"""

from collections import Counter, deque
from typing import Any


class Faults:
    """A queue of outcomes per call; an exception is raised, anything else is the answer."""

    def __init__(self) -> None:
        self._queued: dict[str, deque[Any]] = {}
        self.met: Counter[str] = Counter()
        """How often somebody met a fault, by call."""

    def next(self, call: str, outcome: Any, times: int = 1) -> None:
        """Let the next ``times`` calls end like this."""
        self._queued.setdefault(call, deque()).extend([outcome] * times)

    def take(self, call: str) -> Any:
        """Return the outcome that is due for this call, raising it if it is an error; else None."""
        queue = self._queued.get(call)
        if not queue:
            return None
        outcome = queue.popleft()
        self.met[call] += 1
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    @property
    def left(self) -> list[str]:
        """The calls whose faults nobody has met yet: a test that ends with some tested nothing."""
        return sorted(call for call, queue in self._queued.items() if queue)

    def clear(self) -> None:
        """Let nothing fail any more."""
        self._queued.clear()
