"""Orphans: transactions that dead workers left open, until one of the survivors has ended them.

An open transaction holds up whoever reads committed data, and the offsets that were sent with it,
until the broker's time-out. A producer that says it has the dead one's id ends it at once. That
takes the broker some time, so it goes on from turn to turn; only tasks that had been the dead
one's wait for it.
"""

from collections.abc import Callable, Collection, Mapping

import structlog

from streamcore.errors import ProducerFencedError, RetriableError
from streamcore.model import TaskId
from streamcore.runtime.ports import Producer

_log = structlog.get_logger("streamcore.orphans")

SLICE_MS = 20
"""What one turn may wait."""

AT_ONCE = 3
"""So many in one turn; after a restart of everything there may be dozens, and nothing to end."""

PATIENCE_MS = 15_000
"""After so long it is left to the broker's own time-out."""


class Orphans:
    """The dead workers whose transactions are for us to end."""

    def __init__(self, make: Callable[[str], Producer]) -> None:
        """``make`` returns a producer with the transactional id of a process of that name."""
        self._make = make
        self._tasks: dict[str, frozenset[TaskId]] = {}
        self._producers: dict[str, Producer] = {}
        self._since_ms: dict[str, int] = {}

    @property
    def tasks(self) -> frozenset[TaskId]:
        """The tasks that must not begin yet: their offsets may be pending."""
        return frozenset[TaskId]().union(*self._tasks.values())

    def add(self, tasks: Mapping[str, Collection[TaskId]]) -> None:
        """Take note of dead workers, by name, and of their tasks that are ours now."""
        for name, had in tasks.items():
            self._tasks[name] = self._tasks.get(name, frozenset()) | frozenset(had)

    def keep_dead(self, alive: Collection[str]) -> None:
        """Forget whoever turns out to be alive."""
        for name in self._tasks.keys() & set(alive):
            self._forget(name)

    def end(self, now_ms: int) -> None:
        """Go on ending them; waits for a moment at most.

        :raises AuthorizationError: if their ids may not be used.
        """
        held_first = sorted(self._tasks, key=lambda name: (not self._tasks[name], name))
        for name in held_first[:AT_ONCE]:
            since_ms = self._since_ms.setdefault(name, now_ms)
            if name not in self._producers:
                self._producers[name] = self._make(name)
            try:
                self._producers[name].init_transactions(SLICE_MS)
            except RetriableError as error:
                if 0 <= now_ms - since_ms < PATIENCE_MS:
                    continue
                _log.warning(
                    "the transaction of a dead worker is left to the broker",
                    worker=name,
                    reason=str(error),
                )
            except ProducerFencedError:
                _log.info("somebody else has ended the transaction of a dead worker", worker=name)
            else:
                _log.info("the transaction of a dead worker is ended", worker=name)
            self._forget(name)

    def close(self) -> None:
        """Forget all of them."""
        for name in list(self._tasks):
            self._forget(name)

    def _forget(self, name: str) -> None:
        del self._tasks[name]
        self._since_ms.pop(name, None)
        producer = self._producers.pop(name, None)
        if producer is not None:
            producer.close()
