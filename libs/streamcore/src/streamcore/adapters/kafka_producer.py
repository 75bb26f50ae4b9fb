"""Producer port over confluent-kafka: plain idempotent, or transactional."""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from operator import length_hint
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer, murmur2

from streamcore.adapters.kafka_consumer import places_of
from streamcore.adapters.kafka_errors import NOT_DELIVERED, REFUSED, error_of, translate
from streamcore.adapters.kafka_settings import Settings
from streamcore.adapters.rare_log import RareLog
from streamcore.errors import (
    NotDeliveredError,
    ProducerFencedError,
    ProductionError,
    RetriableError,
    StreamsError,
)
from streamcore.model import OffsetAndMetadata, Send, TopicPartition

ABORT_TIMEOUT_MS = 3_000
METADATA_TIMEOUT_S = 10.0
_ANY_PARTITION = -1
_REFUSED_LOCALLY = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.TOPIC_EXCEPTION,  # a name that is not legal
        KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001 - how the binding spells local codes
        KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001
    }
)

_Headers = list[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True)
class _Columns:
    """What ``produce`` is called with, row by row."""

    topic: str
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    stamps_ms: Sequence[int]
    partitions: int | Sequence[int]
    headers: Sequence[_Headers] | None

    def behind(self, row: int) -> "_Columns":
        """Return the rows from this one on."""
        if row == 0:
            return self
        fixed = isinstance(self.partitions, int)
        return _Columns(
            self.topic,
            self.keys[row:],
            self.values[row:],
            self.stamps_ms[row:],
            self.partitions if fixed else self.partitions[row:],  # type: ignore[index]
            None if self.headers is None else self.headers[row:],
        )


class KafkaProducer:
    """One producer for all tasks of a worker.

    Every record is queued in one call of ``map`` per batch. Failed deliveries (and only those) are
    collected by callbacks, which run inside ``send``, ``flush`` and ``serve``, and raised by
    ``flush``. A full queue is no error: what did not fit is handed back.
    """

    def __init__(self, settings: Settings, client: str) -> None:
        self._log = RareLog(client)
        self._transactional = "transactional.id" in settings
        self._open = False  # a transaction
        self._offsets_sent = False
        self._failures: list[tuple[TopicPartition, KafkaError]] = []
        self._fatal: KafkaError | None = None
        self._counts: dict[str, int] = {}
        self._client: Producer | None = Producer(
            {**settings, "error_cb": self._on_error, "on_delivery": self._on_delivery}
        )

    def send(self, send: Send) -> Send | None:
        """Queue the rows; return what did not fit (the same order, to be sent first), or None.

        A timestamp of 0 is written as 1: librdkafka takes 0 for "now".

        :raises ProducerFencedError: if the producer can only be thrown away.
        :raises RetriableError: if the partition count of a new topic is not known yet; nothing of
            this batch was queued.
        """
        client = self._usable()
        client.poll(0)
        columns = self._columns(send)
        rows, done, waited = len(columns.values), 0, False
        while done < rows:
            rest = columns.behind(done)
            taken, full = self._produce(client, rest)
            done += taken
            if full and waited:
                return _rest_of(send, columns, done)
            if full:  # acknowledged records leave the queue when their reports are served
                client.poll(0)
                waited = True
        return None

    def flush(self, timeout_ms: int) -> bool:
        """Return True when everything queued is acknowledged, False while something is not yet.

        :raises ProductionError: if a record was refused; one error for all that are known by now.
        :raises NotDeliveredError: if records were given up because the broker did not answer.
        :raises ProducerFencedError: if the producer can only be thrown away.
        """
        client = self._usable()
        try:
            left = client.flush(timeout_ms / 1_000)
        except KafkaException as failure:
            raise translate(failure, "flushing") from failure
        self._raise_failures()
        self._usable()
        return left == 0

    def serve(self) -> None:
        """Take away reports and events that have piled up while nothing was sent."""
        if self._client is not None:
            self._client.poll(0)

    def partitions(self, topic: str) -> int:
        """Return the partition count of the topic as it was when first asked for.

        Kept for good, so that a key never changes its partition while the producer lives.
        """
        if topic not in self._counts:
            try:
                metadata = self._usable().list_topics(topic, METADATA_TIMEOUT_S).topics[topic]
            except KafkaException as failure:
                raise translate(failure, f"asking for the partitions of {topic}") from failure
            if metadata.error is not None:
                raise translate(metadata.error, f"asking for the partitions of {topic}")
            if not metadata.partitions:
                raise RetriableError(f"the partitions of {topic} are not known yet")
            self._counts[topic] = len(metadata.partitions)
        return self._counts[topic]

    # -- transactions

    def init_transactions(self, timeout_ms: int) -> None:
        """Fence whoever had this transactional id before, and end what it left open."""
        self._call("starting transactions", "init_transactions", timeout_ms / 1_000)

    def begin_transaction(self) -> None:
        """Begin; what is sent from here on belongs to the transaction."""
        self._call("beginning a transaction", "begin_transaction")
        self._open, self._offsets_sent = True, False

    def commit_transaction(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        group_metadata: Any,
        timeout_ms: int,
    ) -> None:
        """Send the offsets into the transaction and commit it.

        After a RetriableError the same call goes on where this one was left. After a
        TransactionAbortedError or a MemberFencedError ``abort_transaction`` must follow.
        """
        timeout_s = timeout_ms / 1_000
        if offsets and not self._offsets_sent:
            assert group_metadata is not None, "offsets without a membership would go in unfenced"
            self._call(
                "sending offsets to the transaction",
                "send_offsets_to_transaction", places_of(offsets), group_metadata, timeout_s,
            )  # fmt: skip
            self._offsets_sent = True
        self._call("committing a transaction", "commit_transaction", timeout_s)
        self._open = False

    def abort_transaction(self, timeout_ms: int) -> None:
        """Abort; everything sent in it was never said. Without an open one nothing is to do."""
        if not self._open:
            return
        self._call("aborting a transaction", "abort_transaction", timeout_ms / 1_000)
        self._open = False
        self._failures.clear()  # most of them purged by the abort itself

    def close(self) -> None:
        """Throw away what is queued and let go. An open transaction is aborted if that is quick."""
        client, self._client = self._client, None
        if client is None:
            return
        try:
            client.purge(blocking=False)
            if self._open and self._fatal is None:
                client.abort_transaction(ABORT_TIMEOUT_MS / 1_000)
        except KafkaException as failure:
            self._log.warn("closing a producer", str(translate(failure, "aborting")))
        # Not client.close(): it would wait for an answer without limit. Dropping it does not.

    def _usable(self) -> Producer:
        assert self._client is not None, "the producer is closed"
        if self._fatal is not None:
            raise ProducerFencedError(f"producing: {self._fatal.str()} ({self._fatal.name()})")
        return self._client

    def _call(self, doing: str, method: str, *arguments: Any) -> None:
        try:
            getattr(self._usable(), method)(*arguments)
        except KafkaException as failure:
            raise translate(failure, doing) from failure

    # -- the data plane

    def _columns(self, send: Send) -> _Columns:
        stamps_ms = send.stamps_ms
        if 0 in stamps_ms:
            stamps_ms = [stamp_ms or 1 for stamp_ms in stamps_ms]
        headers: Sequence[_Headers] | None = None
        if send.headers is not None:
            headers = list(map(list, send.headers))  # the binding takes no tuples
        partitions = send.partition
        if partitions is None:
            partitions = _ANY_PARTITION
            if send.partition_keys is not None:
                count = self.partitions(send.topic)
                partitions = list(map(murmur2, send.partition_keys, repeat(count)))
        return _Columns(send.topic, send.keys, send.values, stamps_ms, partitions, headers)

    def _produce(self, client: Producer, rows: _Columns) -> tuple[int, bool]:
        """Queue rows until one is not taken; return how many are dealt with, and if it was full."""
        values = iter(rows.values)
        fixed = isinstance(rows.partitions, int)
        columns: list[Iterable[Any]] = [
            repeat(rows.topic),
            values,
            rows.keys,
            repeat(rows.partitions) if fixed else rows.partitions,  # type: ignore[list-item]
            repeat(None),  # callback and on_delivery: the producer's own
            repeat(None),
            rows.stamps_ms,
        ]
        if rows.headers is not None:
            columns.append(rows.headers)
        try:
            deque(map(client.produce, *columns), maxlen=0)
        except BufferError:
            return len(rows.values) - length_hint(values) - 1, True
        except KafkaException as failure:
            taken = len(rows.values) - length_hint(values) - 1
            self._refuse(rows, taken, failure)
            return taken + 1, False
        return len(rows.values), False

    def _refuse(self, rows: _Columns, row: int, failure: KafkaException) -> None:
        error = error_of(failure)
        if error.code() not in _REFUSED_LOCALLY:
            raise translate(error, f"producing to {rows.topic}") from failure
        fixed = isinstance(rows.partitions, int)
        partition = rows.partitions if fixed else rows.partitions[row]  # type: ignore[index]
        self._failures.append((TopicPartition(rows.topic, partition), error))  # type: ignore[arg-type]

    def _raise_failures(self) -> None:
        failures, self._failures = self._failures, []
        if failures:
            raise _meaning_of(failures)

    # -- librdkafka's callbacks

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            topic, partition = message.topic() or "", message.partition()
            source = TopicPartition(topic, _ANY_PARTITION if partition is None else partition)
            self._failures.append((source, error))

    def _on_error(self, error: KafkaError) -> None:
        if error.fatal():
            self._fatal = error
        self._log.on_error(error)


def _meaning_of(failures: list[tuple[TopicPartition, KafkaError]]) -> StreamsError:
    """Return one error for all: a refused record counts more than one that came too late."""
    refused = [failure for failure in failures if failure[1].code() not in NOT_DELIVERED]
    partition, error = (refused or failures)[0]
    if error.fatal() or error.code() in REFUSED:
        return translate(error, f"producing to {partition.topic}")
    more = f", and {len(failures) - 1} more" if len(failures) > 1 else ""
    reason = f"{error.str()} ({error.name()}){more}"
    if refused:
        return ProductionError(partition, -1, reason)
    return NotDeliveredError(f"records for {partition} were not acknowledged: {reason}")


def _rest_of(send: Send, columns: _Columns, row: int) -> Send:
    """Return what was not taken. Partitions stay as computed: a key keeps its own."""
    rest = columns.behind(row)
    computed = send.partition is None and send.partition_keys is not None
    return Send(
        topic=send.topic,
        keys=rest.keys,
        values=rest.values,
        stamps_ms=rest.stamps_ms,
        headers=None if send.headers is None else send.headers[row:],
        partition=rest.partitions if computed or send.partition is not None else None,
    )
