"""MemoryProducer and MemoryAdmin: the writing side of the in-memory broker."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from streamcore.errors import GroupRefusedError, ProductionError, TopicCreationRefusedError
from streamcore.model import Headers, OffsetAndMetadata, Refused, Send, TopicPartition
from streamcore.runtime.ports import GroupView, TopicSpec
from streamcore.testing.cluster import Cluster, Topic
from streamcore.testing.group import Membership
from streamcore.testing.partition_log import Transaction
from streamcore.topology.partitioning import partition_of


class MemoryProducer:
    """Port ``Producer``. While the cluster is away rows wait in a bounded queue."""

    def __init__(self, cluster: Cluster, transactional_id: str | None) -> None:
        self._cluster = cluster
        self._id = transactional_id
        self._epoch = 0
        self._queue: list[Send] = []
        self._failed: list[Refused] = []
        self._missing_topic: str | None = None
        self._began = False
        self._next_null = 0

    def send(self, send: Send) -> Send | None:
        self._check()
        assert self._id is None or self._began, "no transaction has begun"
        room = self._cluster.queue_rows_max - sum(len(s.values) for s in self._queue)
        rest = None
        if room < len(send.values):
            send, rest = _part(send, 0, room), _part(send, room, len(send.values))
        self._queue.append(send)
        self._cluster.faults.take("producer.send")
        if not self._cluster.lingers:
            self._deliver()
        return rest

    def flush(self, timeout_ms: int) -> bool:
        self._check()
        if self._cluster.faults.take("producer.flush") is False or self._cluster.away:
            self._cluster.clock.advance(timeout_ms)
            return False
        self._deliver()
        if self._missing_topic is not None:  # no fault of any record
            raise ProductionError(TopicPartition(self._missing_topic, -1), -1, "unknown topic")
        if self._failed:
            failed, self._failed = self._failed, []
            at = TopicPartition(failed[0].send.topic, failed[0].partition)
            raise ProductionError(at, -1, failed[0].reason, failed)
        return True

    def init_transactions(self, timeout_ms: int) -> None:
        self._cluster.must_answer(timeout_ms)
        self._cluster.faults.take("producer.init_transactions")
        assert self._id is not None
        self._epoch = self._cluster.fence(self._id)
        self._cluster.complete(self._id)

    def begin_transaction(self) -> None:
        self._check()
        self._began = True

    def commit_transaction(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        group_metadata: Any,
        timeout_ms: int,
    ) -> None:
        self._cluster.must_answer(timeout_ms)
        self._cluster.faults.take("producer.commit_transaction")
        self._check()
        if not self._began:  # asked again: it was committed the first time
            return
        assert not self._queue, "committed before everything was acknowledged"
        assert isinstance(group_metadata, Membership)
        group = self._cluster.groups[group_metadata.group]
        group.check(group_metadata, offsets)
        transaction = self._transaction()
        group.pending[transaction] = dict(offsets)
        self._cluster.faults.take("producer.commit_transaction.offsets_sent")
        self._began = False
        self._cluster.end(transaction, "committed")
        self._cluster.faults.take("producer.commit_transaction.after")

    def abort_transaction(self, timeout_ms: int) -> None:
        self._cluster.must_answer(timeout_ms)
        self._cluster.faults.take("producer.abort_transaction")
        self._check()
        self._queue.clear()
        self._failed.clear()
        self._began = False
        assert self._id is not None
        transaction = self._cluster.transactions.get(self._id)
        if transaction is not None:
            self._cluster.end(transaction, "aborted")

    def close(self) -> None:
        self._queue.clear()

    def _check(self) -> None:
        if self._id is not None:
            self._cluster.expire_transactions()
            self._cluster.check_epoch(self._id, self._epoch)

    def _transaction(self) -> Transaction:
        assert self._id is not None
        transaction = self._cluster.transactions.get(self._id)
        if transaction is None:
            self._cluster.complete(self._id)
            transaction = Transaction(self._id, self._cluster.clock.now_ms())
            self._cluster.transactions[self._id] = transaction
        return transaction

    def _deliver(self) -> None:
        if self._cluster.away:
            return
        sends, self._queue = self._queue, []
        for send in sends:
            self._write(send)

    def _write(self, send: Send) -> None:
        topic = self._cluster.topics.get(send.topic)
        if topic is None:
            self._missing_topic = send.topic
            return
        transaction = None if self._id is None else self._transaction()
        for partition, key, value, stamp_ms, headers in self._rows(send, len(topic.partitions)):
            reason = self._refusal(topic, partition, key, value, stamp_ms)
            if reason is None:
                log = topic.partitions[partition]
                log.append(key, value, stamp_ms, headers, transaction)
            else:
                row = Send(send.topic, [key], [value], [stamp_ms], [headers], partition)
                self._failed.append(Refused(row, partition, reason))

    def _refusal(
        self, topic: Topic, partition: int, key: bytes | None, value: bytes | None, stamp_ms: int
    ) -> str | None:
        """Return why a broker would not take this record."""
        ahead_ms = int(topic.settings.get("message.timestamp.after.max.ms", 1 << 62))
        size_max = int(topic.settings.get("max.message.bytes", 1 << 20))
        reasons = {
            f"unknown partition {partition}": partition >= len(topic.partitions),
            "a compacted topic takes no record without key": (
                key is None and "compact" in topic.settings.get("cleanup.policy", "")
            ),
            "the timestamp is too far ahead": stamp_ms > self._cluster.clock.now_ms() + ahead_ms,
            "the record is too large": len(key or b"") + len(value or b"") > size_max,
        }
        return next((reason for reason, holds in reasons.items() if holds), None)

    def _rows(
        self, send: Send, partitions: int
    ) -> Iterator[tuple[int, bytes | None, bytes | None, int, Headers]]:
        where = send.partition_keys or send.keys
        for i, key in enumerate(send.keys):
            if isinstance(send.partition, int):
                partition = send.partition
            elif send.partition is not None:
                partition = send.partition[i]
            else:
                partition = self._by_key(where[i], partitions)
            headers = () if send.headers is None else tuple(send.headers[i])
            yield partition, key, send.values[i], send.stamps_ms[i], headers

    def _by_key(self, key: bytes | None, partitions: int) -> int:
        if key is not None:
            return partition_of(key, partitions)
        self._next_null += 1
        return self._next_null % partitions


class MemoryAdmin:
    """Port ``Admin``, with the rights that the cluster grants."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def group(self, name: str, timeout_ms: int) -> GroupView | None:
        if name in self._cluster.refused_groups:
            raise GroupRefusedError(f"the broker refuses the consumer group {name}")
        if self._cluster.faults.take("admin.group") is False or self._cluster.away:
            self._cluster.clock.advance(timeout_ms)
            return None
        self._cluster.put_out_the_silent()
        return self._cluster.group(name).describe()

    def partitions(self, topics: Iterable[str], timeout_ms: int) -> dict[str, int | None]:
        self._cluster.must_answer(timeout_ms)
        known = self._cluster.topics
        return {t: len(known[t].partitions) if t in known else None for t in topics}

    def topic_ids(self, topics: Iterable[str], timeout_ms: int) -> dict[str, str]:
        self._cluster.must_answer(timeout_ms)
        known = self._cluster.topics
        return {t: known[t].id if t in known else "" for t in topics}

    def settings(self, topics: Iterable[str], timeout_ms: int) -> dict[str, dict[str, str]]:
        self._cluster.must_answer(timeout_ms)
        known = self._cluster.topics
        if "settings" in self._cluster.refused:
            return {}
        return {t: dict(known[t].settings) for t in topics if t in known}

    def create(
        self, topics: Iterable[TopicSpec], timeout_ms: int, *, only_ask: bool = False
    ) -> None:
        self._cluster.must_answer(timeout_ms)
        missing = [spec for spec in topics if spec.name not in self._cluster.topics]
        if missing and "create" in self._cluster.refused:
            raise TopicCreationRefusedError([spec.name for spec in missing])
        for spec in missing if not only_ask else ():
            self._cluster.create(spec.name, spec.partitions, spec.settings)

    def offsets(
        self, partitions: Iterable[TopicPartition], where: str, timeout_ms: int
    ) -> dict[TopicPartition, int]:
        self._cluster.must_answer(timeout_ms)
        self._cluster.faults.take(f"admin.offsets.{where}")
        logs = {tp: self._cluster.log(tp) for tp in partitions}
        if where == "stable":
            return {tp: log.stable_end for tp, log in logs.items()}
        assert where in ("earliest", "latest"), where
        return {tp: log.start if where == "earliest" else log.end for tp, log in logs.items()}

    def delete_records(
        self, before: Mapping[TopicPartition, int], timeout_ms: int
    ) -> frozenset[str]:
        self._cluster.must_answer(timeout_ms)
        self._cluster.faults.take("admin.delete_records")
        if "delete_records" in self._cluster.refused:
            return frozenset(tp.topic for tp in before)
        for tp, offset in before.items():
            self._cluster.log(tp).delete_before(offset)
        return frozenset()

    def close(self) -> None:
        """Nothing to let go of."""


def _part(send: Send, low: int, high: int) -> Send:
    partition = send.partition
    return replace(
        send,
        keys=send.keys[low:high],
        values=send.values[low:high],
        stamps_ms=send.stamps_ms[low:high],
        headers=None if send.headers is None else send.headers[low:high],
        partition=partition
        if partition is None or isinstance(partition, int)
        else partition[low:high],
        partition_keys=None if send.partition_keys is None else send.partition_keys[low:high],
    )
