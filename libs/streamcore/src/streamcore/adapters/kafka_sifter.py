"""SiftingProducer: finds the records that the broker refuses, and writes all the others in order.

A broker refuses whole batches and librdkafka does not say for which record's sake. So this
producer stops behind the first refused batch (``enable.gapless.guarantee``: nothing that was sent
later is written), sends that batch again in halves, and what is refused alone is the culprit. All
others keep the order in which they were sent. It is for at-least-once alone: a transaction is lost
with the first record that is refused.
"""

import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import KafkaError

from streamcore.adapters.kafka_errors import NOT_DELIVERED, REFUSED, TOPIC_MISSING, translate
from streamcore.adapters.kafka_producer import KafkaProducer
from streamcore.adapters.kafka_rows import Failure, resend
from streamcore.errors import NotDeliveredError, ProductionError
from streamcore.model import OffsetAndMetadata, Refused, Send, TopicPartition

# Given back without having been judged: they stood behind a refused batch, or nobody answered.
_UNJUDGED = NOT_DELIVERED | {
    KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER,
    KafkaError._FATAL,  # noqa: SLF001 - how the binding spells local codes
    KafkaError._GAPLESS_GUARANTEE,  # noqa: SLF001
}
_NO_TRANSACTIONS = "a transaction cannot go on without a record"
_UNKNOWN_PARTITION = KafkaError._UNKNOWN_PARTITION  # noqa: SLF001


class SiftingProducer:
    """Port ``Producer`` for the policies that go on without refused records.

    ``make`` gives producers that keep their rows; one that has met a refused batch is replaced.
    """

    def __init__(self, make: Callable[[], KafkaProducer]) -> None:
        self._make = make
        self._client = make()
        self._groups: deque[list[Failure]] = deque()  # to be sent again, one after the other
        self._sent = False  # the first group is under way
        self._refused: list[Refused] = []

    def send(self, send: Send) -> Send | None:
        """Queue the rows; while older ones are sifted nothing fits."""
        if self._groups or self._client.stuck:
            return send
        return self._client.send(send)

    def flush(self, timeout_ms: int) -> bool:
        """Return True when everything queued is acknowledged, False while something is not yet.

        :raises ProductionError: with the records that the broker refuses; all others are written.
        :raises NotDeliveredError: if the broker did not answer in time.
        """
        deadline_s = time.monotonic() + timeout_ms / 1_000
        while self._step(deadline_s):
            pass
        if self._groups or not self._client.settle(0):
            return False
        if self._refused:
            refused, self._refused = tuple(self._refused), []
            first = refused[0]
            at = TopicPartition(first.send.topic, first.partition)
            raise ProductionError(at, -1, first.reason, refused)
        return True

    def _step(self, deadline_s: float) -> bool:
        """Wait for what is under way and go on to the next group; False: nothing to do, or late."""
        if self._groups and not self._sent:
            self._begin_group()
        left_ms = max(0, round(1_000 * (deadline_s - time.monotonic())))
        if not self._client.settle(left_ms):
            return False
        if failures := self._client.take_failures():
            self._sift(failures)
            return True
        if self._sent:
            self._groups.popleft()
            self._sent = False
        return bool(self._groups)

    def _begin_group(self) -> None:
        """Send the first group; what does not fit, or comes too late, is a group of its own."""
        group, left = self._groups[0], 0
        for send in resend(group):
            if left == 0:
                rest = self._client.send(send)
                left = 0 if rest is None else len(rest.values)
            else:
                left += len(send.values)
        if left:
            self._groups[0] = group[:-left]
            self._groups.insert(1, group[-left:])
        self._sent = True

    def _sift(self, failures: list[Failure]) -> None:
        """Take apart what failed: culprits, halves of refused batches, and what stood behind."""
        failures.sort(key=lambda failure: failure.number)
        judged: dict[TopicPartition, list[Failure]] = {}
        unjudged: list[Failure] = []
        for failure in failures:
            code = failure.error.code()
            if failure.alone or code == _UNKNOWN_PARTITION:
                self._refused.append(failure.refused())
            elif code in _UNJUDGED:
                unjudged.append(failure)
            elif code in REFUSED or code in TOPIC_MISSING:  # no fault of any record
                raise translate(failure.error, f"producing to {failure.source.topic}")
            else:
                judged.setdefault(failure.source, []).append(failure)
        if unjudged and not judged:
            first = unjudged[0]
            raise NotDeliveredError(
                f"records for {first.source} were not acknowledged: {first.reason}"
            )
        self._regroup(judged, unjudged)

    def _regroup(
        self, judged: dict[TopicPartition, list[Failure]], unjudged: list[Failure]
    ) -> None:
        groups: list[list[Failure]] = []
        for batch in judged.values():
            if len(batch) == 1:
                self._refused.append(batch[0].refused())
            else:
                middle = len(batch) // 2
                groups += [batch[:middle], batch[middle:]]
        if unjudged:
            groups.append(unjudged)
        if self._sent:  # what failed is (part of) the first group, and goes in its place
            self._groups.popleft()
            self._sent = False
        self._groups.extendleft(reversed(groups))
        if judged or self._client.stuck:
            self._client.close()
            self._client = self._make()

    # -- what passes through

    def serve(self) -> None:
        """Take away reports and events that have piled up while nothing was sent."""
        self._client.serve()

    def partitions(self, topic: str) -> int:
        """Return the partition count of the topic as it was when first asked for."""
        return self._client.partitions(topic)

    def close(self) -> None:
        """Throw away what is queued and let go."""
        self._client.close()

    # -- what must not be asked

    def init_transactions(self, timeout_ms: int) -> None:  # noqa: ARG002
        raise AssertionError(_NO_TRANSACTIONS)

    def begin_transaction(self) -> None:
        raise AssertionError(_NO_TRANSACTIONS)

    def commit_transaction(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],  # noqa: ARG002
        group_metadata: Any,  # noqa: ARG002
        timeout_ms: int,  # noqa: ARG002
    ) -> None:
        raise AssertionError(_NO_TRANSACTIONS)

    def abort_transaction(self, timeout_ms: int) -> None:  # noqa: ARG002
        raise AssertionError(_NO_TRANSACTIONS)
