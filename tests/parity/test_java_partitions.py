"""A Java producer and ours put a word into the same partition, and so it is counted once.

librdkafka's own default hashes with CRC32, Java's with murmur2: mixed, a word has two homes.
"""

import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.integration.harness import (
    AGGREGATOR,
    CHANGELOG,
    COUNTS,
    REPARTITION,
    WORDS,
    Record,
    Stack,
    windowed_key,
)

from ingest.settings import Settings
from ingest.topology import build
from streamcore import StreamsConfig
from streamcore.app import open_producer
from streamcore.model import Send
from streamcore.topology.partitioning import partition_of

if TYPE_CHECKING:
    from benchmarks.jvm import Compiled
    from devstack.kafka import Broker
    from devstack.pytest_plugin import Names

PARTITIONS = 6
LISTED = {"cat": 5, "to": 0, "a": 4, "b": 2, "word-7": 3, "na\u00efve": 3, "\U0001f4a5": 2}
# Of every length modulo 4, as murmur2 takes four bytes at once, and with bytes above 0x7F, which
# are negative numbers in Java.
OTHERS = ["x" * (n % 5) + str(n) + "\u00e9" * (n % 3) for n in range(43)]
WORDS_50 = [*LISTED, *OTHERS]
TIMES = 10
WRITTEN = WORDS_50 * TIMES
HOMES = {word: {partition_of(word.encode(), PARTITIONS)} for word in WORDS_50}
"""The one partition of each word."""


def homes(records: Iterable[Record], word_of: Callable[[bytes], str]) -> dict[str, set[int]]:
    """Return the partitions in which each word is found; markers, without a key, are no words."""
    found: dict[str, set[int]] = {}
    for record in records:
        if record.key is not None:
            found.setdefault(word_of(record.key), set()).add(record.partition)
    return found


def write_with_java(programs: "Compiled", stack: Stack, first_ms: int) -> None:
    command = programs.command("WordProducer", stack.bootstrap, stack.name(WORDS), str(first_ms))
    text = "".join(f"{word}\n" for word in WRITTEN).encode()
    done = subprocess.run(command, input=text, capture_output=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr.decode()
    assert int(done.stdout) == len(WRITTEN)


def write_with_ours(stack: Stack, first_ms: int) -> None:
    producer = open_producer(
        StreamsConfig(
            application_id="writer", prefix=stack.prefix, bootstrap_servers=stack.bootstrap
        ),
        build(Settings()),
    )
    try:
        words = [word.encode() for word in WRITTEN]
        stamps_ms = range(first_ms, first_ms + len(words))
        assert producer.send(Send(WORDS, words, words, stamps_ms)) is None
        assert producer.flush(30_000)
    finally:
        producer.close()


@pytest.fixture
def stack(broker: "Broker", names: "Names", tmp_path: Path) -> Iterable[Stack]:
    made = Stack(broker.bootstrap, names.prefix, tmp_path)
    yield made
    made.close()


def test_the_listed_words_have_the_listed_partitions() -> None:
    assert len(HOMES) == 50
    assert {len(word.encode()) % 4 for word in OTHERS} == {0, 1, 2, 3}
    assert {word: HOMES[word] for word in LISTED} == {w: {home} for w, home in LISTED.items()}
    assert {home for (home,) in HOMES.values()} == set(range(PARTITIONS))


@pytest.mark.java
def test_words_of_a_java_producer_and_of_ours_meet_in_one_partition(
    stack: Stack, java_programs: "Compiled"
) -> None:
    stack.create(WORDS, COUNTS, partitions=PARTITIONS)
    write_with_java(java_programs, stack, 1_000)
    assert homes(stack.read(WORDS), bytes.decode) == HOMES
    write_with_ours(stack, 2_000)
    written = stack.read(WORDS)
    assert len(written) == 2 * len(WRITTEN)
    assert homes(written, bytes.decode) == HOMES

    worker = stack.start("aggregator", STREAMCORE_REPARTITION_PURGE_INTERVAL_MS="3600000")
    stack.wait_for_lag_0(AGGREGATOR, alive=[worker])
    stack.stop(worker)
    assert homes(stack.read(REPARTITION), bytes.decode) == HOMES
    assert homes(stack.read(COUNTS), lambda key: windowed_key(key, 8)[0]) == HOMES
    assert homes(stack.read(CHANGELOG), lambda key: windowed_key(key, 12)[0]) == HOMES
    counts = {(word, 0): 2 * TIMES for word in WORDS_50}
    assert stack.counts_in_topic() == counts
    assert stack.counts_in_changelog() == counts
