"""``python -m ingest`` on the real broker, as a process: lines in, words out."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from devstack.kafka import Broker
from devstack.pytest_plugin import Names
from devstack.topics import Topic, create_topics

IDLE_STOP_S = 5.0
PARTITIONS = 4
LINES = [
    (number % PARTITIONS, f"Line {number}", 1_700_000_000_000 + number) for number in range(40)
]
WORDS = [
    (partition, word, stamp_ms)
    for partition, line, stamp_ms in LINES
    for word in line.lower().split()
]


class Ingest:
    """The worker's process and its two topics, under a prefix of this test's own."""

    def __init__(self, broker: Broker, prefix: str, folder: Path) -> None:
        self.prefix, self.servers = prefix, {"bootstrap.servers": broker.bootstrap}
        ours = ("STREAMCORE_", "INGEST_", "KAFKA_")
        self.env = {name: text for name, text in os.environ.items() if not name.startswith(ours)}
        self.env |= {
            "KAFKA_URL": broker.url,
            "KAFKA_PREFIX": prefix,
            "STREAMCORE_STATE_DIR": str(folder / "state"),
            "STREAMCORE_COMMIT_INTERVAL_MS": "200",
        }

    def create(self, lines: int, words: int) -> None:
        counts = {"textlines": lines, "words": words}
        create_topics(
            self.servers,
            [Topic(f"{self.prefix}{topic}", count) for topic, count in counts.items()],
        )

    def write(self, lines: list[tuple[int, str | None, int]]) -> None:
        producer = Producer(self.servers)
        for partition, line, stamp_ms in lines:
            producer.produce(
                f"{self.prefix}textlines",
                None if line is None else line.encode(),
                b"key",
                partition,
                timestamp=stamp_ms,
            )
        assert producer.flush(30) == 0

    def start(self) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [sys.executable, "-m", "ingest"],
            env=self.env,
            stderr=subprocess.PIPE,
            text=True,
        )

    def words(self, count: int) -> list[tuple[int, bytes | None, str, int]]:
        """Wait for so many words, and return them in the order of each partition."""
        consumer = Consumer(self.servers | {"group.id": f"{self.prefix}reader"})
        consumer.assign([TopicPartition(f"{self.prefix}words", n, 0) for n in range(PARTITIONS)])
        found: list[tuple[int, bytes | None, str, int]] = []
        try:
            while len(found) < count:
                row = consumer.poll(30)
                assert row is not None, f"{len(found)} of {count} words came"
                assert row.error() is None, row.error()
                partition, value = row.partition(), row.value()
                assert partition is not None
                assert isinstance(value, bytes)
                found.append((partition, row.key(), value.decode(), row.timestamp()[1]))
        finally:
            consumer.close()
        return found

    def committed(self) -> list[int]:
        """Return the committed offset of each partition of the lines."""
        consumer = Consumer(self.servers | {"group.id": f"{self.prefix}ingest-app"})
        try:
            asked = [TopicPartition(f"{self.prefix}textlines", n) for n in range(PARTITIONS)]
            return [at.offset for at in consumer.committed(asked, 30)]
        finally:
            consumer.close()


@pytest.fixture
def ingest(broker: Broker, names: Names, tmp_path: Path) -> Ingest:
    return Ingest(broker, names.prefix, tmp_path)


def test_lines_become_words_in_their_own_partition_and_a_signal_ends_it(ingest: Ingest) -> None:
    ingest.create(PARTITIONS, PARTITIONS)
    ingest.write([*LINES, (0, None, LINES[-1][2])])
    with ingest.start() as worker:
        words = ingest.words(len(WORDS))
        worker.send_signal(signal.SIGTERM)
        _, log = worker.communicate(timeout=IDLE_STOP_S)
    assert worker.returncode == 0, log
    for partition in range(PARTITIONS):
        came = [word for word in words if word[0] == partition]
        expected = [(at, None, word, stamp) for at, word, stamp in WORDS if at == partition]
        assert came == expected
    assert ingest.committed() == [11, 10, 10, 10]  # the null line is done with as well


def test_fewer_partitions_for_words_than_for_lines_are_refused(ingest: Ingest) -> None:
    ingest.create(PARTITIONS, PARTITIONS - 1)
    ingest.write([*LINES])
    with ingest.start() as worker:
        _, log = worker.communicate(timeout=30)
    assert worker.returncode == 1
    told = log.splitlines()[-1]
    assert told.startswith("ingest: ")
    for fact in ("textlines", "words", "4", "3"):
        assert fact in told
