"""Outbound: what leaves a worker. One producer, what did not fit into it, and its transaction.

Order is kept: as long as something waits outside the producer's queue, everything later queues up
behind it. Nobody else holds the producer, so it can be replaced by a new one.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import structlog

from streamcore.clock import Clock
from streamcore.errors import ProductionError, RetriableError, StreamsError
from streamcore.model import OffsetAndMetadata, Send, TopicPartition
from streamcore.runtime.aftermath import Aftermath
from streamcore.runtime.ports import Producer
from streamcore.runtime.settings import Policy
from streamcore.task.dead_letter import dead_result

_log = structlog.get_logger("streamcore.outbound")


class Outbound:
    """The one producer of a worker and all that is on its way to it."""

    def __init__(
        self,
        make: Callable[[], Producer],
        clock: Clock,
        aftermath: Aftermath,
        *,
        transactional: bool,
        production_error: Policy = "stop",
        dead_letter_topic: str | None = None,
    ) -> None:
        self._make = make
        self._clock = clock
        self._transactional = transactional
        self._production_error = production_error
        self._dead_letter_topic = dead_letter_topic
        self._aftermath = aftermath
        self._begun: Producer | None = None  # it waits for what the one before has left
        self._producer: Producer | None = None
        self._waiting: deque[Send] = deque()
        self._in_transaction = False
        self.unflushed = False
        self.refused = 0
        self.sent_rows = 0

    def open(self, timeout_ms: int) -> None:
        """Make the producer if there is none; under exactly-once end what a predecessor left open.

        :raises RetriableError: if the cluster did not answer; call again.
        """
        if self._producer is not None:
            return
        if self._begun is None:
            self._begun = self._begin(timeout_ms)
        if self._transactional and not self._aftermath.over(self._clock.now_ms()):
            raise RetriableError("rows of an ended transaction are not decided yet")
        self._producer, self._begun = self._begun, None

    def _begin(self, timeout_ms: int) -> Producer:
        producer = self._make()
        if self._transactional:
            try:
                producer.init_transactions(timeout_ms)
            except BaseException:
                producer.close()
                raise
        return producer

    @property
    def is_open(self) -> bool:
        return self._producer is not None

    @property
    def blocked(self) -> bool:
        """True while something waits outside the producer's queue: take no more input then."""
        return bool(self._waiting)

    def send(self, sends: Iterable[Send]) -> None:
        """Queue these behind everything that was sent before."""
        before = len(self._waiting)
        self._waiting.extend(sends)
        if before == 0 and self._waiting:
            self.push()

    def push(self) -> None:
        """Hand over what waits, as far as the producer's queue has room."""
        if not self._waiting:
            return
        producer = self._in_use()
        self.unflushed = True
        while self._waiting:
            send = self._waiting[0]
            rest = producer.send(send)
            if rest is not None:
                self.sent_rows += len(send.values) - len(rest.values)
                self._waiting[0] = rest
                return
            self.sent_rows += len(send.values)
            self._waiting.popleft()

    def flush(self, timeout_ms: int) -> bool:
        """Return True when everything sent so far is acknowledged.

        A refused record is an error, unless the policy says to count it and go on, or to put it
        into the topic of dead letters: then that one is waited for, too.
        """
        self.push()
        if not self.unflushed:
            return True
        assert self._producer is not None
        try:
            done = self._producer.flush(timeout_ms)
        except ProductionError as error:
            self._pass(error)
            return False
        if done and not self._waiting:
            self.unflushed = False
            return True
        self.push()
        return False

    def commit_transaction(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        group_metadata: Any,
        timeout_ms: int,
    ) -> None:
        """Commit what was sent together with the offsets; raises as ``Producer`` does."""
        self._in_use().commit_transaction(offsets, group_metadata, timeout_ms)
        self._in_transaction = False

    def write_rest(self, timeout_ms: int) -> None:
        """Write what follows a commit under at-least-once, before the next owner says more."""
        try:
            if self.flush(timeout_ms):
                return
        except StreamsError as error:
            _log.warning("what followed the last commit is not written", reason=str(error))
        self.discard()

    def abandon(self, timeout_ms: int) -> None:
        """Forget what is not committed: abort, or take a new producer where that fails."""
        self._waiting.clear()
        if not self._in_transaction:
            return
        assert self._producer is not None
        try:
            self._producer.abort_transaction(timeout_ms)
        except StreamsError as error:
            _log.warning("the transaction could not be aborted; a new producer", reason=str(error))
            self.discard()
            return
        self._in_transaction = False
        self.unflushed = False

    def discard(self) -> None:
        """Throw the producer away with everything in it; ``open`` makes a new one."""
        self._waiting.clear()
        self._in_transaction = False
        self.unflushed = False
        producer, self._producer, self._begun = self._producer or self._begun, None, None
        if producer is not None:
            self._aftermath.begin()
            producer.close()

    def _pass(self, error: ProductionError) -> None:
        """Go on without the records that were refused, as the policy says.

        :raises ProductionError: the same, if there is no way to go on.
        """
        topic = self._dead_letter_topic
        if self._production_error == "stop" or not error.refused:
            raise error
        if self._production_error == "dead-letter":
            if any(refused.send.topic == topic for refused in error.refused):
                raise error  # nothing is dropped silently
            assert topic is not None, "checked with the settings"
            now_ms = self._clock.now_ms()
            self._waiting.extend(dead_result(topic, r, now_ms) for r in error.refused)
        self.refused += len(error.refused)
        _log.warning(
            "records were refused and are left out",
            records=len(error.refused),
            partition=str(error.partition),
            reason=error.reason,
            dead_letters=topic if self._production_error == "dead-letter" else None,
        )

    def _in_use(self) -> Producer:
        assert self._producer is not None, "nothing may be sent before the producer is open"
        if self._transactional and not self._in_transaction:
            self._producer.begin_transaction()
            self._in_transaction = True
        return self._producer
