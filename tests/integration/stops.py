"""P15: SIGTERM while the sink's database does not let it write, and in the middle of a batch."""

import signal
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from tests.integration import trials
from tests.integration.harness import (
    AGGREGATOR,
    COUNTS,
    SINK,
    WORDS,
    Record,
    Stack,
    line,
    recount,
    wait_until,
)

from devstack.processes import Child

ENDS_WITHIN_S = 30
GIVES_UP_WITHIN_S = 25


def counted(word: str, count: int) -> Record:
    return Record(0, 1_000, struct.pack(">q", count), word.encode() + bytes(8))


@contextmanager
def row_locked(stack: Stack, word: str, for_s: float) -> Iterator[None]:
    """Hold the row of a word in another session for so long, or until the block ends."""
    with psycopg.connect(stack.database_url) as holder:
        found = holder.execute(
            "select count from windowed_counts where word = %s for update", (word,)
        )
        assert found.rowcount == 1
        over = threading.Event()

        def hold() -> None:
            over.wait(for_s)
            holder.rollback()

        thread = threading.Thread(target=hold)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


def sink_with_one_row(stack: Stack) -> Child:
    stack.settings |= {
        "STREAMCORE_COMMIT_INTERVAL_MS": "500",
        "STREAMCORE_SESSION_TIMEOUT_MS": "6000",
        "STREAMCORE_MAX_POLL_INTERVAL_MS": "60000",
    }
    stack.create(COUNTS, partitions=1)
    stack.migrate()
    stack.produce(COUNTS, [counted("cat", 1)])
    sink = stack.start("sink")
    wait_until(lambda: stack.counts_in_database() == {("cat", 0): 1}, "the row", alive=[sink])
    stack.wait_for_lag_0(SINK, alive=[sink])
    return sink


def wait_until_held_up(stack: Stack, sink: Child) -> None:
    """Wait until the sink's transaction waits for the lock."""
    statement = (
        "select count(*) from pg_stat_activity"
        " where datname = current_database() and wait_event_type = 'Lock'"
    )

    def waits() -> bool:
        with psycopg.connect(stack.database_url) as connection:
            row = connection.execute(statement).fetchone()
            return row is not None and row[0] > 0

    wait_until(waits, "the sink to wait for the lock", alive=[sink])


def flush_held_up_for_a_while(stack: Stack, locked_s: float) -> None:
    """The lock goes in time: all is written, committed and left behind, in that order."""
    sink = sink_with_one_row(stack)
    with row_locked(stack, "cat", locked_s):
        stack.produce(COUNTS, [counted("cat", 2), counted("dog", 7)])
        wait_until_held_up(stack, sink)
        told = time.monotonic()
        sink.send(signal.SIGTERM)
        stack.produce(COUNTS, [counted("emu", 9)])  # after the signal nothing more is read
        sink.send(signal.SIGTERM)  # a second one changes nothing
        assert sink.wait(ENDS_WITHIN_S), sink.tail(40)
    assert time.monotonic() - told < ENDS_WITHIN_S
    assert sink.returncode == 0, sink.tail(40)
    assert trials.members(stack, SINK) == [], "it did not leave the group"
    assert stack.counts_in_database() == {("cat", 0): 2, ("dog", 0): 7}
    assert sum(stack.lag(SINK).values()) == 1
    again = stack.start("sink", "-2")
    stack.wait_for_lag_0(SINK, alive=[again])
    wait_until(lambda: stack.processed(again.name) == 1, lambda: str(stack.processed(again.name)))
    stack.stop(again)
    assert stack.counts_in_database() == {("cat", 0): 2, ("dog", 0): 7, ("emu", 0): 9}


def flush_that_cannot_end(stack: Stack, locked_s: float, budget_s: float) -> None:
    """The lock stays: it gives up in time, commits nothing unwritten, and the restart mends it."""
    stack.settings["STREAMCORE_SHUTDOWN_TIMEOUT_MS"] = str(int(budget_s * 1_000))
    sink = sink_with_one_row(stack)
    before = stack.committed(SINK, COUNTS)
    with row_locked(stack, "cat", locked_s):
        stack.produce(COUNTS, [counted("cat", 2), counted("dog", 7)])
        wait_until_held_up(stack, sink)
        told = time.monotonic()
        sink.send(signal.SIGTERM)
        assert sink.wait(budget_s + 1), f"it goes on:\n{sink.tail(40)}"
        assert time.monotonic() - told < budget_s + 0.5
        assert sink.returncode == 1, sink.tail(40)
        assert stack.committed(SINK, COUNTS) == before
        assert stack.counts_in_database() == {("cat", 0): 1}
        again = stack.start("sink", "-2")
        wait_until_held_up(stack, again)
    stack.wait_for_lag_0(SINK, alive=[again])
    stack.stop(again)
    assert stack.counts_in_database() == {("cat", 0): 2, ("dog", 0): 7}


def aggregator_in_the_middle_of_a_batch(stack: Stack, guarantee: str) -> None:
    """No word is processed twice, none is left out, though the signal came while it was busy."""
    stack.settings |= {
        "STREAMCORE_PROCESSING_GUARANTEE": guarantee,
        "STREAMCORE_COMMIT_INTERVAL_MS": "5000",
        "AGGREGATOR_RETENTION_MS": "3600000",
    }
    stack.create(WORDS, COUNTS, partitions=2)
    words = [line(n % 2, 1_000 + n, f"w{n % 17}") for n in range(4_000)]
    stack.produce(WORDS, words[:2])
    worker = trials.start_worker(stack, TRIAL_WORK_MS="2", AGGREGATOR_POLL_ROWS_MAX="500")
    trials.wait_for_one_owner_each(stack, 4, worker)
    stack.produce(WORDS, words[2:])
    wait_until(lambda: stack.processed(worker.name) > 300, "the middle", alive=[worker])
    told = time.monotonic()
    worker.send(signal.SIGTERM)
    assert worker.wait(ENDS_WITHIN_S), worker.tail(40)
    assert time.monotonic() - told < ENDS_WITHIN_S
    assert worker.returncode == 0, worker.tail(40)
    done = sum(stack.committed(AGGREGATOR, WORDS).values())
    assert 0 < done < len(words), "it ended before or after the work"
    assert trials.members(stack) == [], "it did not leave the group"

    again = trials.start_worker(stack, "-2")
    stack.wait_for_lag_0(AGGREGATOR, alive=[again])
    stack.stop(again)
    assert sum(stack.counts_in_topic().values()) == len(words)
    trials.assert_exact(stack, recount(words))
