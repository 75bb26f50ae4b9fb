"""Restore ends by position: logs that end in a marker, with holes, or with nothing at all."""

import struct
import time

import pytest
from tests.integration.harness import (
    AGGREGATOR,
    CHANGELOG,
    COUNTS,
    WORDS,
    Record,
    Stack,
    line,
    wait_until,
)

from devstack.processes import Child

RUNNING_WITHIN_S = 10
WORKER_STARTS_S = 5  # Python and its libraries, on a busy machine


@pytest.fixture(autouse=True)
def _two_partitions(stack: Stack) -> None:
    stack.settings = {
        "STREAMCORE_PROCESSING_GUARANTEE": "exactly_once_v2",
        "STREAMCORE_COMMIT_INTERVAL_MS": "100",
    }
    stack.create(WORDS, COUNTS, partitions=2)


def some_words(times: int) -> list[Record]:
    return [line(number % 2, 1_000, f"w{number % 5}") for number in range(5 * times)]


def counted(stack: Stack, records: list[Record], **settings: str) -> None:
    """Have the records counted, stop cleanly, and lose the disk."""
    stack.produce(WORDS, records)
    worker = stack.start("aggregator", **settings)
    stack.wait_for_lag_0(AGGREGATOR, alive=[worker])
    stack.stop(worker)
    stack.wipe()


def running(stack: Stack, **settings: str) -> Child:
    """Start the aggregator; all its tasks must run within ten seconds."""
    worker = stack.start("aggregator", **settings)
    begun = time.monotonic()
    wait_until(
        lambda: stack.metrics("aggregator").get("streamcore_tasks") == 4,
        "all tasks to run",
        patience_s=RUNNING_WITHIN_S + WORKER_STARTS_S,
        alive=[worker],
    )
    assert time.monotonic() - begun < RUNNING_WITHIN_S + WORKER_STARTS_S
    assert len(worker.tail(1_000).splitlines()) < 60, "the log is flooded"
    return worker


def assert_goes_on(stack: Stack, worker: Child, before: int) -> None:
    stack.produce(WORDS, some_words(1))
    stack.wait_for_lag_0(AGGREGATOR, alive=[worker])
    wanted = {(f"w{number}", 0): before + 1 for number in range(5)}
    assert stack.counts_in_topic() == wanted
    assert stack.counts_in_changelog() == wanted
    stack.stop(worker)


@pytest.mark.parametrize("reset", ["earliest", "latest"])
def test_a_log_that_ends_in_a_commit_marker(stack: Stack, reset: str) -> None:
    counted(stack, some_words(3))
    worker = running(stack, AGGREGATOR_AUTO_OFFSET_RESET=reset)
    assert_goes_on(stack, worker, before=3)


def test_a_log_that_was_deleted_up_to_its_end(stack: Stack) -> None:
    # Nobody can delete from a topic that is compacted only, as ours are.
    # What tells that rows are missing, and stops: tests/unit/runtime/test_lost_rows.py.
    stack.create(CHANGELOG, partitions=2, cleanup_policy="compact,delete")
    counted(stack, some_words(3))
    ends = stack.ends(CHANGELOG)
    assert min(ends.values()) > 0
    stack.delete_records(ends)
    assert stack.ends(CHANGELOG, latest=False) == ends
    worker = running(stack, AGGREGATOR_MISSING_RECORDS="continue")
    assert_goes_on(stack, worker, before=0)


def test_a_log_with_holes_of_compaction(stack: Stack) -> None:
    """One key rewritten a thousand times, and most of that compacted away."""
    stack.create(CHANGELOG, partitions=2, cleanup_policy="compact", segment_ms="1000",
                 min_cleanable_dirty_ratio="0.01")  # fmt: skip
    rounds = 1_000
    for chunk in range(0, rounds, 200):  # a batch goes into one segment
        stack.produce(
            CHANGELOG,
            [
                Record(0, 1 + 8 * number, struct.pack(">q", number + 1), b"dog" + bytes(12))
                for number in range(chunk, chunk + 200)
            ],
        )
    wait_until(lambda: len(stack.read(CHANGELOG)) < rounds // 2, "the broker to compact")
    assert stack.ends(CHANGELOG)[CHANGELOG, 0] >= rounds
    # No worker has written this changelog, so no offset stands beside it.
    worker = running(stack, AGGREGATOR_MISSING_RECORDS="continue")
    stack.produce(WORDS, [line(0, 9_000, "dog")])
    stack.wait_for_lag_0(AGGREGATOR, alive=[worker])
    assert stack.counts_in_topic() == {("dog", 0): rounds + 1}
    stack.stop(worker)
