"""Records that are no ordinary ones, through the services on real servers."""

import struct
from typing import Any

import pytest
from tests.integration.conftest import MakeStack
from tests.integration.harness import (
    AGGREGATOR,
    CHANGELOG,
    COUNTS,
    INGEST,
    LINES,
    REPARTITION,
    SINK,
    WORDS,
    Record,
    Stack,
    difference,
    line,
    wait_until,
    windowed_key,
)

from devstack.processes import Child

DEAD = "dead-letters"
PARTITION_OF = {"cat": 5, "to": 0, "a": 4, "b": 2, "word-7": 3, "na\u00efve": 3, "\U0001f4a5": 2}


@pytest.fixture(autouse=True)
def _quick(stack: Stack) -> None:
    stack.settings = {"STREAMCORE_COMMIT_INTERVAL_MS": "200"}


def stopped_at(stack: Stack, child: Child, topic: str, partition: int, offset: int) -> None:
    """Wait for the end of a worker that a record has stopped, and look at how it ended."""
    assert child.wait(30), f"alive, and stuck:\n{child.tail(30)}"
    assert child.returncode not in (0, None)
    told = child.tail(40)
    place = f"{stack.name(topic)} partition {partition} offset {offset}"
    assert sum(place in row for row in told.splitlines()) == 1, told
    assert "Traceback" not in told
    assert stack.committed(AGGREGATOR, topic)[topic, partition] == offset


def assert_in_front_is_counted_once(
    stack: Stack, wanted: dict[tuple[str, int], int], error: str
) -> None:
    """What stood in front of the record went on, and comes to nothing twice once it is passed."""
    assert len([r for r in stack.read(REPARTITION) if r.key is not None]) == 1
    worker = stack.start("aggregator", **{f"AGGREGATOR_{error}_ERROR": "continue"})
    stack.wait_for_lag_0(AGGREGATOR, alive=[worker])
    stack.stop(worker)
    assert stack.counts_in_topic() == wanted


# --- timestamps -----------------------------------------------------------------------------

TAIL_WITHOUT_TIME = [line(0, 12_000, "x"), *(line(0, -1, "y") for _ in range(3))]


def test_a_tail_without_timestamps_is_skipped_counted_and_committed(stack: Stack) -> None:
    stack.settings["AGGREGATOR_TIMESTAMP_ERROR"] = "continue"
    stack.create(WORDS, COUNTS, partitions=1)
    stack.produce(WORDS, TAIL_WITHOUT_TIME)
    assert [record.stamp_ms for record in stack.read(WORDS)] == [12_000, -1, -1, -1]
    worker = stack.start("aggregator")
    stack.wait_for_lag_0(AGGREGATOR, alive=[worker])
    wait_until(lambda: stack.dropped("aggregator") == {"timestamp": 3}, "three to be counted")
    assert stack.counts_in_topic() == {("x", 10_000): 1}
    stack.stop(worker)

    worker = stack.start("aggregator")
    stack.produce(WORDS, [line(0, 13_000, "x")])
    stack.wait_for_lag_0(AGGREGATOR, alive=[worker])
    wait_until(lambda: stack.processed("aggregator") == 2, lambda: str(stack.metrics("aggregator")))
    assert stack.dropped("aggregator") == {}
    assert stack.counts_in_topic() == {("x", 10_000): 2}
    stack.stop(worker)


def test_a_record_without_timestamp_stops_the_worker_by_default(stack: Stack) -> None:
    stack.create(WORDS, COUNTS, partitions=1)
    stack.produce(WORDS, TAIL_WITHOUT_TIME)
    for _start in range(2):
        stopped_at(stack, stack.start("aggregator"), WORDS, 0, 1)
    assert_in_front_is_counted_once(stack, {("x", 10_000): 1}, "TIMESTAMP")


# --- nulls ----------------------------------------------------------------------------------


def test_nulls_and_empty_lines_become_no_words(stack: Stack) -> None:
    stack.create(LINES, WORDS, COUNTS, partitions=1)
    lines = [
        Record(0, 1_000, b"to be"),
        Record(0, 1_000, b"to be", b""),
        Record(0, 1_000, None, b"k"),
        Record(0, 1_000, b"", b"k"),
        Record(0, 1_000, b"  \n", b"k"),
    ]
    stack.produce(LINES, lines)
    workers = [stack.start("ingest"), stack.start("aggregator")]
    stack.wait_for_lag_0(INGEST, AGGREGATOR, alive=workers)
    stack.produce(REPARTITION, [Record(0, 1_000, b"nobody")])
    stack.produce(WORDS, [Record(0, 1_000, b""), Record(0, 1_000, None)])
    stack.wait_for_lag_0(INGEST, AGGREGATOR, alive=workers)
    assert stack.counts_in_topic() == {("to", 0): 2, ("be", 0): 2, ("", 0): 1}
    counted = {"foreign_repartition_record": 1, "null_key": 1}
    wait_until(
        lambda: stack.dropped("aggregator") == counted, lambda: str(stack.dropped("aggregator"))
    )
    wait_until(
        lambda: stack.dropped("ingest") == {"null_value": 1}, lambda: str(stack.dropped("ingest"))
    )
    stack.stop(*workers)


# --- partitions -----------------------------------------------------------------------------


def test_each_key_is_where_the_java_client_would_put_it(stack: Stack) -> None:
    """The trial with a Java producer beside ours is parity/test_java_partitions.py."""
    stack.create(WORDS, COUNTS, partitions=6)
    stack.produce(
        WORDS, [line(number % 6, 1_000 + number, word) for number, word in enumerate(PARTITION_OF)]
    )
    worker = stack.start("aggregator", STREAMCORE_REPARTITION_PURGE_INTERVAL_MS="3600000")
    stack.wait_for_lag_0(AGGREGATOR, alive=[worker])
    stack.stop(worker)
    for topic, word_of in (
        (REPARTITION, lambda key: key.decode()),
        (COUNTS, lambda key: windowed_key(key, 8)[0]),
        (CHANGELOG, lambda key: windowed_key(key, 12)[0]),
    ):
        found = {word_of(r.key): r.partition for r in stack.read(topic) if r.key is not None}
        assert found == PARTITION_OF, topic


# --- poison ---------------------------------------------------------------------------------

BAD = b"\xff\xfe{"
POISONED = [
    line(0, 1_000, "good"),
    Record(0, 1_001, BAD, b"its key", (("trace", b"1"), ("empty", None))),
    line(0, 1_002, "good"),
    line(0, 1_003, "good"),
]


def test_a_record_that_cannot_be_decoded_stops_the_worker_and_the_restart_again(
    stack: Stack,
) -> None:
    stack.create(WORDS, COUNTS, partitions=1)
    stack.produce(WORDS, POISONED)
    for _start in range(2):
        stopped_at(stack, stack.start("aggregator"), WORDS, 0, 1)
    assert_in_front_is_counted_once(stack, {("good", 0): 3}, "DESERIALIZATION")


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
@pytest.mark.parametrize("policy", ["continue", "dead-letter"])
def test_a_record_that_cannot_be_decoded_is_passed_over_where_one_says_so(
    stack: Stack, policy: str, guarantee: str
) -> None:
    stack.settings |= {
        "AGGREGATOR_DESERIALIZATION_ERROR": policy,
        "STREAMCORE_PROCESSING_GUARANTEE": guarantee,
        **({"STREAMCORE_DEAD_LETTER_TOPIC": DEAD} if policy == "dead-letter" else {}),
    }
    stack.create(WORDS, COUNTS, DEAD, partitions=1)
    stack.produce(WORDS, POISONED)
    worker = stack.start("aggregator")
    stack.wait_for_lag_0(AGGREGATOR, alive=[worker])
    wait_until(
        lambda: stack.dropped("aggregator") == {"deserialization": 1},
        lambda: str(stack.dropped("aggregator")),
    )
    assert stack.counts_in_topic() == {("good", 0): 3}
    stack.stop(worker)
    dead = stack.read(DEAD)
    if policy == "continue":
        assert dead == []
        return
    (letter,) = dead
    assert (letter.key, letter.value, letter.stamp_ms) == (b"its key", BAD, 1_001)
    headers = dict(letter.headers)
    assert letter.headers[:2] == (("trace", b"1"), ("empty", None))
    assert headers["sc-dead-topic"] == stack.name(WORDS).encode()
    assert headers["sc-dead-partition"] == b"0"
    assert headers["sc-dead-offset"] == b"1"


# --- the sink -------------------------------------------------------------------------------


def counted(word: str, count: int, start_ms: int = 0) -> Record:
    return Record(0, 1_000, struct.pack(">q", count), word.encode() + struct.pack(">q", start_ms))


def sink_with(stacks: MakeStack, broker: Any, table: str, records: list[Record]) -> Stack:
    stack = stacks(broker, database_url=table)
    stack.settings["STREAMCORE_COMMIT_INTERVAL_MS"] = "200"
    stack.create(COUNTS, partitions=1)
    stack.migrate()
    stack.produce(COUNTS, records)
    return stack


def test_a_word_with_nul_takes_no_other_word_down(
    broker: object, stacks: MakeStack, table: str
) -> None:
    words = [*(f"ordinary{number}" for number in range(10)), "ab\0cd", "abcd", "ab"]
    records = [counted(word, number) for number, word in enumerate(words, start=1)]
    stack = sink_with(stacks, broker, table, records)
    sink = stack.start("sink")
    stack.wait_for_lag_0(SINK, alive=[sink])
    wanted = {(word, 0): number for number, word in enumerate(words, start=1)}
    wanted["ab\\u0000cd", 0] = wanted.pop(("ab\0cd", 0))
    assert difference(wanted, stack.counts_in_database()) == {}
    stack.stop(sink)


def test_the_same_word_and_window_twice_in_one_batch_and_again(
    broker: object, stacks: MakeStack, table: str
) -> None:
    four = [counted("cat", 1), counted("cat", 2), counted("dog", 1), counted("cat", 3)]
    stack = sink_with(stacks, broker, table, four)
    for _delivery in range(2):
        sink = stack.start("sink")
        stack.wait_for_lag_0(SINK, alive=[sink])
        assert stack.counts_in_database() == {("cat", 0): 3, ("dog", 0): 1}
        stack.stop(sink)
        stack.produce(COUNTS, four)
