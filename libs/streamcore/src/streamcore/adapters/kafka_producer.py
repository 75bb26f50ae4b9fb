"""Producer port over confluent-kafka: plain idempotent, or transactional."""

import logging
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import count, repeat
from operator import length_hint
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer, ThrottleEvent, murmur2

from streamcore.adapters.allowance import Allowance, mean_bytes
from streamcore.adapters.bounded import Bounded
from streamcore.adapters.kafka_consumer import places_of
from streamcore.adapters.kafka_errors import NOT_DELIVERED, REFUSED, error_of, made, translate
from streamcore.adapters.kafka_rows import Columns, Failure, ProduceHeaders, rest_of
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
OVERDUE_S = 1.0
"""How much later than its time-out a call may end before the client counts as broken."""
WAIT_S = 0.01
WAITS_MAX = 20
"""How often one ``send`` waits that long for room: a short wait is cheaper than pausing inputs."""
METADATA_TIMEOUT_S = 10.0
_ANY_PARTITION = -1
_SILENT = logging.Logger("librdkafka")  # instead of standard error
_SILENT.addHandler(logging.NullHandler())
_REFUSED_LOCALLY = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.TOPIC_EXCEPTION,  # a name that is not legal
        KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001 - how the binding spells local codes
        KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001
    }
)


class KafkaProducer:
    """One producer for all tasks of a worker.

    Every record is queued in one call of ``map`` per batch. Failed deliveries (and only those) are
    collected by callbacks, which run inside ``send``, ``flush`` and ``serve``, and raised by
    ``flush``. A full queue is no error: what did not fit is handed back.

    With ``enable.gapless.guarantee`` it keeps its rows, and nothing is written behind a batch that
    fails: ``stuck`` is True then, and what stood behind it comes back as failed. ``settle`` and
    ``take_failures`` stand in for ``flush``.
    """

    def __init__(self, settings: Settings, log: RareLog) -> None:
        self._log = log
        self._transactional_id = settings.get("transactional.id", "")
        self._open = False  # a transaction
        self._offsets_sent = False
        self._gapless = bool(settings.get("enable.gapless.guarantee"))
        self.stuck = False
        self._number = 0  # of the next row
        self._failures: list[Failure] = []
        self._fatal: KafkaError | None = None
        self._counts: dict[str, int] = {}
        self._calls: Bounded[Any] = Bounded("transaction")
        self._allowance = Allowance()
        callbacks: dict[str, Any] = {
            "error_cb": self._on_error,
            "throttle_cb": self._on_throttle,
            "on_delivery": self._on_delivery,
            "logger": _SILENT,  # fatal errors go to standard error else, and to error_cb anyway
        }
        self._client: Producer | None = made(lambda: Producer({**settings, **callbacks}))

    def send(self, send: Send) -> Send | None:
        """Queue the rows; return what did not fit (the same order, to be sent first), or None.

        A timestamp of 0 is written as 1: librdkafka takes 0 for "now".

        :raises ProducerFencedError: if the producer can only be thrown away.
        :raises RetriableError: if the partition count of a new topic is not known yet; nothing of
            this batch was queued.
        """
        self._serve_reports(0)
        client = self._usable()
        columns = self._columns(send)
        row_bytes = mean_bytes(send.keys, send.values)
        rows, done, waits = len(columns.values), 0, 0
        while done < rows:
            room = self._allowance.room(len(client), row_bytes)
            part = columns.behind(done, room)
            taken, full = self._produce(client, part)
            self._allowance.sent(taken, row_bytes)
            done += taken
            enough = done < rows and taken == len(part.values)
            if (full or enough) and (self.stuck or waits == WAITS_MAX):
                return rest_of(send, columns, done)
            if full or enough:  # acknowledged records leave the queue when their reports are served
                self._make_room(client)
                waits += 1
        return None

    def _make_room(self, client: Producer) -> None:
        if self._gapless:  # it must not flush, see settle
            self._serve_reports(WAIT_S)
        else:
            with self._translated("producing"):
                client.flush(WAIT_S)  # what is queued does not wait for batches to be filled
        self._usable()

    def flush(self, timeout_ms: int) -> bool:
        """Return True when everything queued is acknowledged, False while something is not yet.

        :raises ProductionError: if a record was refused; one error for all that are known by now.
        :raises NotDeliveredError: if records were given up because the broker did not answer.
        :raises ProducerFencedError: if the producer can only be thrown away.
        """
        client = self._usable()
        with self._translated("flushing"):
            left = client.flush(timeout_ms / 1_000)
        self._raise_failures()
        self._usable()
        return left == 0

    def settle(self, timeout_ms: int) -> bool:
        """Return True when it is known of everything queued whether it was written.

        It polls, and does not flush: inside a flush the binding goes on to call the callbacks of
        rows when the fatal error is raised already, and they fail by it.
        """
        client, left_s = self._client, timeout_ms / 1_000
        assert client is not None, "the producer is closed"
        self._serve_reports(0)
        while len(client) and not self.stuck and left_s > 0:
            self._serve_reports(WAIT_S)
            left_s -= WAIT_S
        return len(client) == 0 or (self.stuck and self._given_back(client))

    def _given_back(self, client: Producer) -> bool:
        """Wait a moment for answers under way, then take back what has none."""
        waits = 0
        while len(client) and waits < WAITS_MAX:
            self._serve_reports(WAIT_S)
            waits += 1
        if len(client):
            client.purge()
            self._serve_reports(WAIT_S)
        return len(client) == 0

    def take_failures(self) -> list[Failure]:
        """Return the rows that were not written, as far as nobody has taken them yet."""
        failures, self._failures = self._failures, []
        return failures

    def serve(self) -> None:
        """Take away reports and events that have piled up while nothing was sent."""
        if self._client is not None:
            with suppress(ProducerFencedError):  # whoever uses it next is told
                self._serve_reports(0)

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
        doing = f"starting transactions as {self._transactional_id}"
        self._call_within(timeout_ms, doing, "init_transactions")

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
        if offsets and not self._offsets_sent:
            assert group_metadata is not None, "offsets without a membership would go in unfenced"
            self._call_within(
                timeout_ms, "sending offsets to the transaction",
                "send_offsets_to_transaction", places_of(offsets), group_metadata,
            )  # fmt: skip
            self._offsets_sent = True
        self._call_within(timeout_ms, "committing a transaction", "commit_transaction")
        self._open = False

    def abort_transaction(self, timeout_ms: int) -> None:
        """Abort; everything sent in it was never said. Without an open one nothing is to do."""
        if not self._open:
            return
        self._call_within(timeout_ms, "aborting a transaction", "abort_transaction")
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
                timeout_s = ABORT_TIMEOUT_MS / 1_000
                self._calls.run(partial(client.abort_transaction, timeout_s), timeout_s + OVERDUE_S)
        except KafkaException as failure:
            self._log.tell("closing a producer", str(translate(failure, "aborting")))
        except TimeoutError as late:
            self._log.tell("closing a producer", str(late))
        # Not client.close(): it would wait for an answer without limit. Dropping it does not.

    def _serve_reports(self, wait_s: float) -> None:
        with self._translated("producing"):
            assert self._client is not None, "the producer is closed"
            self._client.poll(wait_s)

    @contextmanager
    def _translated(self, doing: str) -> Iterator[None]:
        """Translate what librdkafka raises, wherever callbacks may run as well.

        The binding tells no callback of a fatal error, but raises it; and if a delivery report
        comes up behind it, what is raised is a SystemError that has it as its cause.
        """
        try:
            yield
        except (KafkaException, SystemError) as failure:
            origin = failure if isinstance(failure, KafkaException) else failure.__cause__
            if not isinstance(origin, KafkaException):
                raise
            error = error_of(origin)
            if error.fatal():
                self._on_error(error)
                if self._gapless:  # the rows that come back tell why
                    return
            raise translate(error, doing) from failure

    def _usable(self) -> Producer:
        assert self._client is not None, "the producer is closed"
        if self._fatal is not None:
            raise translate(self._fatal, "producing")
        return self._client

    def _call(self, doing: str, method: str, *arguments: Any) -> None:
        with self._translated(doing):
            getattr(self._usable(), method)(*arguments)

    def _call_within(self, timeout_ms: int, doing: str, method: str, *arguments: Any) -> None:
        """Make a call that has a time-out, and does not always keep to it.

        A broker that was missing from the metadata for a moment is another object afterwards; if it
        coordinates the group, ``send_offsets_to_transaction`` waits for the old one for ever.
        """
        timeout_s = timeout_ms / 1_000
        call = partial(getattr(self._usable(), method), *arguments, timeout_s)
        try:
            with self._translated(doing):
                self._calls.run(call, timeout_s + OVERDUE_S)
        except TimeoutError:
            self._fatal = KafkaError(KafkaError._FATAL, "a call does not come back")  # noqa: SLF001
            raise translate(self._fatal, doing) from None

    # -- the data plane

    def _columns(self, send: Send) -> Columns:
        stamps_ms = send.stamps_ms
        if 0 in stamps_ms:
            stamps_ms = [stamp_ms or 1 for stamp_ms in stamps_ms]
        headers: Sequence[ProduceHeaders] | None = None
        if send.headers is not None:
            headers = list(map(list, send.headers))  # the binding takes no tuples
        partitions = send.partition
        if partitions is None:
            partitions = _ANY_PARTITION
            if send.partition_keys is not None:
                count = self.partitions(send.topic)
                partitions = list(map(murmur2, send.partition_keys, repeat(count)))
        first, self._number = self._number, self._number + len(send.values)
        return Columns(send.topic, send.keys, send.values, stamps_ms, partitions, headers, first)

    def _produce(self, client: Producer, rows: Columns) -> tuple[int, bool]:
        """Queue rows until one is not taken; return how many are dealt with, and if it was full."""
        values = iter(rows.values)
        fixed = isinstance(rows.partitions, int)
        columns: list[Iterable[Any]] = [
            repeat(rows.topic),
            values,
            rows.keys,
            repeat(rows.partitions) if fixed else rows.partitions,  # type: ignore[list-item]
            self._callbacks(rows),
            repeat(None),  # on_delivery: another name for the callback, which wins
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
            if self._gapless and error_of(failure).code() == KafkaError._FATAL:  # noqa: SLF001
                self.stuck = True
                return taken, True
            self._refuse(rows, taken, failure)
            return taken + 1, False
        return len(rows.values), False

    def _callbacks(self, rows: Columns) -> Iterable[Any]:
        """Return the callback of each row; None: the producer's own."""
        if not self._gapless:
            return repeat(None)
        return map(partial, repeat(self._on_row), repeat(rows), count())

    def _refuse(self, rows: Columns, row: int, failure: KafkaException) -> None:
        error = error_of(failure)
        if error.code() not in _REFUSED_LOCALLY:
            raise translate(error, f"producing to {rows.topic}") from failure
        source = TopicPartition(rows.topic, rows.partition(row))
        self._failures.append(Failure(source, error, rows, row, alone=True))

    def _raise_failures(self) -> None:
        if failures := self.take_failures():
            raise _meaning_of(failures)

    # -- librdkafka's callbacks

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._failures.append(Failure(_where(message), error))

    def _on_row(self, rows: Columns, row: int, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.stuck = True
            self._failures.append(Failure(_where(message), error, rows, row))

    def _on_throttle(self, event: ThrottleEvent) -> None:
        self._allowance.throttled()
        self._log.on_throttle(event)

    def _on_error(self, error: KafkaError) -> None:
        if error.fatal() and self._gapless:
            self.stuck = True
            return
        if error.fatal():  # whoever uses it next is told
            self._fatal = error
        else:
            self._log.on_error(error)


def _where(message: Message) -> TopicPartition:
    partition = message.partition()
    return TopicPartition(message.topic() or "", _ANY_PARTITION if partition is None else partition)


def _meaning_of(failures: list[Failure]) -> StreamsError:
    """Return one error for all: a refused record counts more than one that came too late."""
    refused = [failure for failure in failures if failure.error.code() not in NOT_DELIVERED]
    worst = (refused or failures)[0]
    partition, error = worst.source, worst.error
    if error.fatal() or error.code() in REFUSED:
        return translate(error, f"producing to {partition.topic}")
    more = f", and {len(failures) - 1} more" if len(failures) > 1 else ""
    reason = f"{worst.reason}{more}"
    if refused:
        return ProductionError(partition, -1, reason)
    return NotDeliveredError(f"records for {partition} were not acknowledged: {reason}")
