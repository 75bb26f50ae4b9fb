"""The benchmark's view of the broker: topics, progress of a group, counts in an output topic."""

import struct
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec
from confluent_kafka.cimpl import NewTopic

TIMEOUT_S = 30.0
# What a broker answers for a moment about a topic or a group that is new.
_PASSING = frozenset(
    {
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
    }
)


@dataclass(frozen=True, slots=True)
class Counted:
    """What an output topic says in the end."""

    words: int
    pairs: int
    records: int


class Broker:
    """The calls that the benchmark makes, all on one admin client."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})

    def topics(self) -> dict[str, int]:
        """Return each topic with its number of partitions."""
        found = self._admin.list_topics(timeout=TIMEOUT_S).topics
        return {name: len(topic.partitions) for name, topic in found.items()}

    def create(self, topic: str, partitions: int) -> None:
        """Create a topic whose records stay, whatever their timestamps."""
        wanted = NewTopic(topic, partitions, 1, config={"retention.ms": "-1"})
        for future in self._admin.create_topics([wanted]).values():
            future.result(TIMEOUT_S)

    def delete(self, topics: Iterable[str]) -> None:
        """Delete topics; one that is gone already is no error."""
        names = list(topics)
        if not names:
            return
        for future in self._admin.delete_topics(names).values():
            try:
                future.result(TIMEOUT_S)
            except KafkaException as problem:
                if problem.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise

    def ends(self, topic: str, partitions: int) -> list[int]:
        """Return the end offset of each partition, open transactions included."""
        return _patiently(lambda: self._ends(topic, partitions))

    def committed(self, group: str, topic: str, partitions: int) -> list[int]:
        """Return the group's committed offset of each partition, 0 where there is none."""
        return _patiently(lambda: self._committed(group, topic, partitions))

    def _ends(self, topic: str, partitions: int) -> list[int]:
        end = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        asked = {TopicPartition(topic, p): end for p in range(partitions)}
        answers = self._admin.list_offsets(
            asked, isolation_level=IsolationLevel.READ_UNCOMMITTED, request_timeout=TIMEOUT_S
        )
        ends = {key.partition: future.result().offset for key, future in answers.items()}
        return [ends[partition] for partition in range(partitions)]

    def _committed(self, group: str, topic: str, partitions: int) -> list[int]:
        asked = ConsumerGroupTopicPartitions(
            group, [TopicPartition(topic, p) for p in range(partitions)]
        )
        answers = self._admin.list_consumer_group_offsets([asked], request_timeout=TIMEOUT_S)
        found = answers[group].result().topic_partitions or []
        offsets = {entry.partition: max(entry.offset, 0) for entry in found}
        return [offsets.get(partition, 0) for partition in range(partitions)]

    def count(self, topic: str, partitions: int) -> Counted:
        """Return the sum of the last value of every (word, window), committed records only."""
        reader = self._reader()
        try:
            reader.assign([TopicPartition(topic, p, 0) for p in range(partitions)])
            last: dict[bytes, bytes] = {}
            records = 0
            for message in _rows(reader, partitions):
                last[_bytes(message.key())] = _bytes(message.value())
                records += 1
            words = sum(struct.unpack(">q", value)[0] for value in last.values())
            return Counted(words, len(last), records)
        finally:
            reader.close()

    def _reader(self) -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "benchmark-reader",
                "log_level": 2,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
            }
        )


def _patiently(ask: Callable[[], list[int]]) -> list[int]:
    """Ask again while the broker says that topic or group is not ready yet."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        try:
            return ask()
        except KafkaException as problem:
            if problem.args[0].code() not in _PASSING or time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def _rows(reader: Consumer, partitions: int) -> Iterable[Message]:
    """Yield the rows of an assigned reader until each partition's end was seen."""
    open_partitions = partitions
    deadline = time.monotonic() + TIMEOUT_S
    while open_partitions:
        # A larger timeout would be waited out: `consume` returns early only with a full batch.
        batch = reader.consume(1_000, 0.05)
        if batch:
            deadline = time.monotonic() + TIMEOUT_S
        elif time.monotonic() > deadline:
            raise TimeoutError("the broker sent neither a record nor an end of partition")
        for message in batch:
            error = message.error()
            if error is None:
                yield message
            elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001
                open_partitions -= 1
            else:
                raise KafkaException(error)


def _bytes(data: str | bytes | None) -> bytes:
    if not isinstance(data, bytes):
        raise TypeError(f"expected bytes, not {data!r}")
    return data
