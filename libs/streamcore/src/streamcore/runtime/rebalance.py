"""Rebalance: what happens inside the consumer's callbacks, which run inside ``poll``.

An assignment is only noted, and nothing is read until the tasks exist: every way out of the
callback assigns, or the binding would assign the coordinator's list by itself. A revocation
commits before it returns, within one budget, or abandons. What is lost is dropped without a
commit. Errors are kept for the worker, which raises them when ``poll`` has returned.
"""

from collections.abc import Callable, Sequence
from typing import Any

import structlog

from streamcore.errors import StreamsError
from streamcore.model import TopicPartition
from streamcore.runtime.ports import Consumer

_log = structlog.get_logger("streamcore.rebalance")


class Callbacks:
    """The listener of one consumer. It goes deaf when that consumer is given up."""

    def __init__(
        self,
        consumer: Consumer,
        commit_and_drop: Callable[[], None],
        drop: Callable[[], None],
        *,
        needs_metadata: bool,
    ) -> None:
        self._consumer = consumer
        self._commit_and_drop = commit_and_drop
        self._drop = drop
        self._needs_metadata = needs_metadata
        self._deaf = False
        self.group_metadata: Any = None
        """Proof of membership for the transactions of this generation."""
        self.assigned: tuple[TopicPartition, ...] | None = None
        """A new generation's share, until the worker has taken it."""
        self.joined = False
        """True between an assignment and its end."""
        self.error: StreamsError | None = None
        """What went wrong in a callback, until the worker has raised it."""

    def on_assigned(self, shares: Sequence[TopicPartition]) -> None:
        self._consumer.assign({})
        if self._deaf:
            return
        _log.info("assigned", partitions=_listed(shares))
        if self._needs_metadata:
            try:
                self.group_metadata = self._consumer.group_metadata()
            except StreamsError as error:
                self.error = error
                return
        self.assigned = tuple(shares)
        self.joined = True

    def on_revoked(self, shares: Sequence[TopicPartition]) -> None:
        self._end("revoked", shares, self._commit_and_drop)

    def on_lost(self, shares: Sequence[TopicPartition]) -> None:
        self._end("lost", shares, self._drop)

    def take(self) -> tuple[TopicPartition, ...]:
        """Return the share of a new generation, which the worker takes over now."""
        shares, self.assigned = self.assigned, None
        assert shares is not None, "nothing was assigned"
        return shares

    def go_deaf(self) -> None:
        """Hear nothing any more: the consumer is about to be closed."""
        self._deaf = True

    def _end(self, what: str, shares: Sequence[TopicPartition], end: Callable[[], None]) -> None:
        try:
            if not self._deaf:
                _log.info(what, partitions=_listed(shares))
                self.joined, self.assigned = False, None
                end()
        except StreamsError as error:
            self.error = error
        finally:
            self._consumer.assign({})


def _listed(shares: Sequence[TopicPartition]) -> str:
    return " ".join(map(str, sorted(shares))) or "none"
