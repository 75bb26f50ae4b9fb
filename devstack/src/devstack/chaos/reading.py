"""What stands on the broker and in the database, read back by plain clients."""

import struct
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import psycopg
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from devstack.chaos.recount import Counts, Key, Line
from devstack.errors import StackError

_TIMEOUT_S: Final = 10.0
_READ_S: Final = 120.0  # the topic of lines, as a whole
_ROWS = """
    select word, (extract(epoch from window_start) * 1000)::bigint,
        (extract(epoch from window_end) * 1000)::bigint, count
    from windowed_counts
"""
_TOTAL = "select coalesce(sum(count), 0)::bigint from windowed_counts"


class Groups:
    """How far the services are behind: each group, with the topics that it reads."""

    def __init__(self, bootstrap: str, inputs: Mapping[str, Sequence[str]]) -> None:
        self._inputs = inputs
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})

    def lag(self) -> dict[str, int] | None:
        """Return the records that are not committed yet by partition, or None without an answer.

        Those of transactions that are still open count too, and a partition with records but
        without a committed offset lags by all of them. An empty answer means that all is done:
        groups are asked from the first to the last, so what one has done the next cannot miss.
        """
        lags: dict[str, int] = {}
        try:
            for group, topics in self._inputs.items():
                lags.update(self._lag(group, topics))
        except KafkaException:
            return None
        return lags

    def _lag(self, group: str, topics: Sequence[str]) -> Iterator[tuple[str, int]]:
        known = self._admin.list_topics(timeout=_TIMEOUT_S).topics
        for topic in topics:
            if topic not in known:
                yield f"{group} {topic}", -1  # its service has not even made it yet
        wanted = [
            TopicPartition(topic, number)
            for topic in topics
            if topic in known
            for number in known[topic].partitions
        ]
        if not wanted:
            return
        asked = [ConsumerGroupTopicPartitions(group, wanted)]
        answer = self._admin.list_consumer_group_offsets(asked, request_timeout=_TIMEOUT_S)
        found = answer[group].result(_TIMEOUT_S).topic_partitions
        done = {(each.topic, each.partition): each.offset for each in found}
        for each, end in self._ends(wanted).items():
            behind = end - max(0, done.get(each, 0))
            if behind:
                yield f"{group} {each[0]}-{each[1]}", behind

    def _ends(self, wanted: Sequence[TopicPartition]) -> dict[tuple[str, int], int]:
        spec: Any = OffsetSpec
        answer = self._admin.list_offsets(
            dict.fromkeys(wanted, spec.latest()),
            isolation_level=IsolationLevel.READ_UNCOMMITTED,
            request_timeout=_TIMEOUT_S,
        )
        return {
            (each.topic, each.partition): future.result(_TIMEOUT_S).offset
            for each, future in answer.items()
        }


def read_lines(bootstrap: str, topic: str) -> list[Line]:
    """Return all lines of a topic, each partition in order."""
    lines = [
        Line(_partition(message), message.timestamp()[1], (message.value() or b"").decode())
        for message in _messages(bootstrap, topic)
    ]
    return sorted(lines, key=lambda line: line.partition)  # stable: offsets stay in order


def counts_in_topic(bootstrap: str, topic: str, size_ms: int) -> Counts:
    """Return the last count of each word and window in the aggregator's topic."""
    counts: dict[Key, int] = {}
    for message in _messages(bootstrap, topic):
        key, value = message.key(), message.value()
        assert isinstance(key, bytes)
        start_ms: int = struct.unpack(">q", key[-8:])[0]
        where = Key(key[:-8].decode(), start_ms, start_ms + size_ms)
        if value is None:
            counts.pop(where, None)
        else:
            counts[where] = struct.unpack(">q", value)[0]
    return counts


def counts_in_database(url: str) -> Counts:
    """Return the sink's table."""
    with psycopg.connect(url) as connection:
        rows = connection.execute(_ROWS).fetchall()
    return {Key(word, start_ms, end_ms): count for word, start_ms, end_ms, count in rows}


def words_in_database(url: str) -> int | None:
    """Return the sum of all counts, or None while the database does not answer."""
    try:
        with psycopg.connect(url, connect_timeout=2) as connection:
            row = connection.execute(_TOTAL).fetchone()
    except psycopg.OperationalError:
        return None
    assert row is not None
    found: int = row[0]
    return found


def _messages(bootstrap: str, topic: str) -> Iterator[Message]:
    """Yield what is committed of a topic, from its beginning to its end."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "chaos-reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 50,
            "log_level": 0,
        }
    )
    try:
        found = consumer.list_topics(topic, timeout=_TIMEOUT_S).topics[topic].partitions
        unread = set(found)
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in found])
        deadline = time.monotonic() + _READ_S
        while unread:
            if time.monotonic() > deadline:
                raise StackError(f"topic {topic} cannot be read to its end in {_READ_S:.0f} s")
            for message in consumer.consume(10_000, 0.2):
                error = message.error()
                if error is None:
                    yield message
                elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public name
                    unread.discard(_partition(message))
                else:
                    raise KafkaException(error)
    finally:
        consumer.close()


def _partition(message: Message) -> int:
    number = message.partition()
    assert number is not None
    return number
