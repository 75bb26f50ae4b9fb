"""Another worker takes over: warm when there is a standby, and warm when a worker is added."""

import signal
import time
from collections import Counter

import pytest
from tests.integration.harness import (
    AGGREGATOR,
    COUNTS,
    WORDS,
    Counts,
    Record,
    Stack,
    wait_until,
)

from devstack.processes import Child

pytestmark = pytest.mark.broker

PARTITIONS = 4
KEYS = 20_000
SESSION_MS = 6_000
SETTINGS = {
    "STREAMCORE_SESSION_TIMEOUT_MS": str(SESSION_MS),
    "STREAMCORE_COMMIT_INTERVAL_MS": "200",
    "STREAMCORE_ACCEPTABLE_RECOVERY_LAG": "100",
}
COUNTING_S = 20
"""What counting all the words may take on a busy machine; takeovers alone are measured by
``benchmarks.takeover``, which holds them to the session timeout and 2 s."""
TAIL_MAX = 500
"""Entries that whoever takes over may read first, of the thousands that it would read cold."""


def fill(stack: Stack, round_: int) -> list[Record]:
    """Have every one of many words said once more, all within one window."""
    records = [
        Record(number % PARTITIONS, round_ * 1_000, f"w{number}".encode()) for number in range(KEYS)
    ]
    stack.produce(WORDS, records)
    return records


def begin(stack: Stack, instance: str, **settings: str) -> Child:
    state = str(stack.folder / f"state{instance}")
    return stack.start("aggregator", instance, **SETTINGS, STREAMCORE_STATE_DIR=state, **settings)


def tasks(stack: Stack, instance: str) -> float:
    return stack.metrics(f"aggregator{instance}").get("streamcore_tasks", 0)


def lags(stack: Stack, instance: str) -> list[float]:
    found = stack.metrics(f"aggregator{instance}")
    return [v for series, v in found.items() if series.startswith("streamcore_store_lag_records")]


def restored(stack: Stack, instance: str) -> float:
    return stack.metrics(f"aggregator{instance}").get("streamcore_rows_restored_total", 0)


def recount(*rounds: list[Record]) -> Counts:
    words = (record.value for records in rounds for record in records)
    return {(word.decode(), 0): n for word, n in Counter(filter(None, words)).items()}


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_after_a_kill_the_standby_goes_on_without_a_restore(stack: Stack, guarantee: str) -> None:
    stack.create(WORDS, COUNTS, partitions=PARTITIONS)
    settings = {
        "STREAMCORE_NUM_STANDBY_REPLICAS": "1",
        "STREAMCORE_PROCESSING_GUARANTEE": guarantee,
    }
    first = fill(stack, 1)
    one, two = begin(stack, "-1", **settings), begin(stack, "-2", **settings)
    stack.wait_for_lag_0(AGGREGATOR, alive=[one, two])
    wait_until(
        lambda: all(lags(stack, i) == [0.0] * PARTITIONS for i in ("-1", "-2")),
        lambda: f"both to have all stores, {lags(stack, '-1')} {lags(stack, '-2')}",
        alive=[one, two],
    )
    assert tasks(stack, "-1") == tasks(stack, "-2") == PARTITIONS
    before = restored(stack, "-2")
    one.send(signal.SIGKILL)
    killed = time.monotonic()
    second = fill(stack, 2)
    stack.wait_for_lag_0(AGGREGATOR, alive=[two])
    took_s = time.monotonic() - killed
    assert took_s < SESSION_MS / 1_000 + 2 + COUNTING_S, "session timeout, 2 s, and counting it all"
    wait_until(lambda: tasks(stack, "-2") == 2 * PARTITIONS, "all tasks on the survivor")
    assert restored(stack, "-2") - before < TAIL_MAX
    counts, wanted = stack.counts_in_topic(), recount(first, second)
    assert counts.keys() == wanted.keys()
    if guarantee == "exactly_once_v2":
        assert counts == wanted
    assert not {k for k in wanted if counts[k] < wanted[k]}
    stack.stop(two)


def test_a_worker_that_is_added_reads_first_and_then_takes_its_share(stack: Stack) -> None:
    stack.create(WORDS, COUNTS, partitions=PARTITIONS)
    rounds = [fill(stack, 1)]
    one = begin(stack, "-1")
    stack.wait_for_lag_0(AGGREGATOR, alive=[one])
    two = begin(stack, "-2")
    wait_until(
        lambda: tasks(stack, "-1") == tasks(stack, "-2") == PARTITIONS,
        "the tasks to be shared",
        alive=[one, two],
    )
    assert "reading state before joining" in two.tail(1_000)
    assert restored(stack, "-2") < TAIL_MAX
    rounds.append(fill(stack, 2))
    stack.wait_for_lag_0(AGGREGATOR, alive=[one, two])
    stack.stop(one)
    rounds.append(fill(stack, 3))
    stack.wait_for_lag_0(AGGREGATOR, alive=[two])
    assert stack.counts_in_topic() == recount(*rounds)
    stack.stop(two)
