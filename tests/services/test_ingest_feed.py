"""``python -m ingest feed`` on the real broker, as a process."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition

from devstack.kafka import Broker
from devstack.pytest_plugin import Names
from devstack.topics import Topic, create_topics

PARTITIONS = 4


class Line(NamedTuple):
    partition: int
    key: bytes | None
    text: str
    stamp_ms: int


class Feed:
    """The command and its topic, under a prefix of this test's own."""

    def __init__(self, broker: Broker, prefix: str) -> None:
        self.servers, self.topic = broker.bootstrap, f"{prefix}textlines"
        create_topics({"bootstrap.servers": self.servers}, [Topic(self.topic, PARTITIONS)])
        own = {"KAFKA_URL": broker.url, "KAFKA_PREFIX": prefix}
        ours = ("STREAMCORE_", "INGEST_", "KAFKA_")
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(ours)} | own

    def start(self, *options: str) -> "subprocess.Popen[str]":
        command = [sys.executable, "-m", "ingest", "feed", *options]
        return subprocess.Popen(
            command,
            env=self.env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *options: str, text: str = "") -> tuple[int, str, str]:
        with self.start(*options) as process:
            out, err = process.communicate(text, timeout=60)
            return process.returncode, out, err

    def lines(self) -> list[Line]:
        """Return what is in the topic, partition by partition."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.servers,
                "group.id": self.topic,
                "enable.auto.commit": False,
                "enable.partition.eof": True,
            }
        )
        consumer.assign([TopicPartition(self.topic, partition, 0) for partition in range(4)])
        found: list[Line] = []
        open_partitions = set(range(PARTITIONS))
        try:
            while open_partitions:
                row = consumer.poll(30)
                assert row is not None, f"no end of partitions {open_partitions} within 30 s"
                error, partition, value = row.error(), row.partition(), row.value()
                assert partition is not None
                if error is not None:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    open_partitions.remove(partition)
                    continue
                assert isinstance(value, bytes)
                found.append(Line(partition, row.key(), value.decode(), row.timestamp()[1]))
        finally:
            consumer.close()
        return sorted(found, key=lambda line: line.partition)


@pytest.fixture
def feed(broker: Broker, names: Names) -> Feed:
    return Feed(broker, names.prefix)


def test_lines_lie_round_robin_in_the_partitions(feed: Feed, tmp_path: Path) -> None:
    book = tmp_path / "book.txt"
    book.write_text("".join(f"line {number}\n" for number in range(10)))
    before_ms = time.time_ns() // 1_000_000
    code, out, err = feed.run(str(book))
    after_ms = time.time_ns() // 1_000_000
    assert (code, out) == (0, "10 lines are in textlines\n"), err
    lines = feed.lines()
    texts = [[line.text for line in lines if line.partition == p] for p in range(PARTITIONS)]
    assert texts == [[f"line {n}" for n in range(10) if n % PARTITIONS == p] for p in range(4)]
    assert {line.key for line in lines} == {None}
    assert all(before_ms <= line.stamp_ms <= after_ms for line in lines)


def test_standard_input_is_fed(feed: Feed) -> None:
    code, _, err = feed.run("-", text="one\ntwo")
    assert code == 0, err
    assert sorted(line.text for line in feed.lines()) == ["one", "two"]


def test_the_sample_is_fed(feed: Feed) -> None:
    code, out, err = feed.run("--sample")
    assert code == 0, err
    assert int(out.split()[0].replace(",", "")) == len(feed.lines()) > 5_000


def test_text_that_is_none_is_told_with_file_and_line(feed: Feed, tmp_path: Path) -> None:
    book = tmp_path / "book.txt"
    book.write_bytes(b"good\nfine\nbad \xff\n")
    code, out, err = feed.run(str(book))
    assert (code, out) == (1, "")
    assert err.startswith(f"ingest feed: {book}, line 3: not utf-8")
    assert len(err.splitlines()) == 1
    assert sorted(line.text for line in feed.lines()) == ["fine", "good"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_feed_that_waits_with_everything_acknowledged(
    feed: Feed, tmp_path: Path, number: signal.Signals
) -> None:
    log = tmp_path / "log"
    log.write_text("one\ntwo\nthr")
    with feed.start(str(log), "--follow") as process:
        deadline = time.monotonic() + 30
        while len(feed.lines()) < 2 and time.monotonic() < deadline:
            pass  # reading the topic takes its time
        process.send_signal(number)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (0, "2 lines are in textlines\n"), err
    assert sorted(line.text for line in feed.lines()) == ["one", "two"]


def test_a_topic_that_does_not_exist_is_named(feed: Feed) -> None:
    feed.env["LINES_TOPIC"] = "nowhere"
    code, _, err = feed.run("--sample")
    assert code == 1
    # As the worker and the plan say it, the time included.
    line = "heroku kafka:topics:create nowhere --partitions 4 --retention-time 24h"
    assert line in err.splitlines()
    assert "Traceback" not in err


def test_a_rate_is_kept(feed: Feed) -> None:
    began = time.monotonic()
    code, out, _ = feed.run("-", "--rate", "100", text="".join(f"{n}\n" for n in range(200)))
    assert (code, out) == (0, "200 lines are in textlines\n")
    assert time.monotonic() - began >= 1.8
