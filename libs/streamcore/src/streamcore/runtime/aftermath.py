"""Aftermath: after a transaction whose end nobody told us, are all of its rows decided?

A producer goes on under its old transactional id, and thus with the broker's same producer id. If
the broker has called the old transaction aborted without writing that into a partition (seen after
the outage of a single broker: decision 0016), our next commit there would make the old rows count.
So nothing is sent before every partition that we write is settled up to where it ended then.
"""

from streamcore.errors import TransactionsHangError
from streamcore.model import TopicPartition
from streamcore.runtime.blueprint import Blueprint
from streamcore.runtime.ports import Admin

PATIENCE_MS = 60_000
"""Others' open transactions may stand in front of that place, too; they end sooner, once a broker
is there to end them. So this is time that passed between its answers, and not by the clock."""

LOOK_MS = 5_000
"""The most that counts between two answers: longer gaps were outages, or we stood still ourselves.
"""


class Aftermath:
    """What must be settled before this worker's producer sends again."""

    def __init__(self, admin: Admin, blueprint: Blueprint) -> None:
        self._admin = admin
        self._partitions = blueprint.outputs()
        self._timeout_ms = blueprint.settings.request_timeout_ms
        self._pending = False
        self._undecided: dict[TopicPartition, int] | None = None  # where each of them ended
        self._looked_ms = self._waited_ms = 0

    def begin(self) -> None:
        """Look anew: a producer was given up."""
        self._pending, self._undecided = True, None

    def over(self, now_ms: int) -> bool:
        """Tell whether everything is settled; the new producer must have begun before.

        :raises RetriableError: if the cluster did not answer; call again.
        :raises TransactionsHangError: if that takes too long.
        """
        if not self._pending:
            return True
        if self._undecided is None:
            self._undecided = self._admin.offsets(self._partitions, "latest", self._timeout_ms)
            self._looked_ms, self._waited_ms = now_ms, 0
        stable = self._admin.offsets(self._undecided, "stable", self._timeout_ms)
        self._undecided = {tp: at for tp, at in self._undecided.items() if stable[tp] < at}
        if not self._undecided:
            self._pending = False
            return True
        self._waited_ms += min(max(0, now_ms - self._looked_ms), LOOK_MS)
        self._looked_ms = now_ms
        if self._waited_ms > PATIENCE_MS:
            raise TransactionsHangError(sorted(self._undecided))
        return False
