"""P07: hard kills under exactly-once, at chance moments and the worst ones, disk kept or lost."""

import random
import signal
from collections.abc import Sequence
from functools import partial

from tests.integration import trials
from tests.integration.harness import (
    AGGREGATOR,
    COUNTS,
    WORDS,
    Record,
    Stack,
    line,
    pause_s,
    recount,
    wait_until,
)

DISTINCT = 20
PARTITIONS = 4
MOMENTS = ("sent", "committed", "stored")


def prepared(stack: Stack) -> None:
    stack.settings = {
        "STREAMCORE_PROCESSING_GUARANTEE": "exactly_once_v2",
        "STREAMCORE_COMMIT_INTERVAL_MS": "100",
        "STREAMCORE_SESSION_TIMEOUT_MS": "2000",
        "AGGREGATOR_RETENTION_MS": "3600000",
        "AGGREGATOR_POLL_ROWS_MAX": "50",
    }
    stack.create(WORDS, COUNTS, partitions=PARTITIONS)


def some_words(count: int) -> list[Record]:
    """Return records of a few words over three windows."""
    return [
        line(number % PARTITIONS, 1_000 + number * 30_000 // count, f"w{number % DISTINCT}")
        for number in range(count)
    ]


def killed_again_and_again(stack: Stack, seed: int, records: int, kills: int) -> None:
    """Kill a worker that is busy, at moments of the seed; lose the disk every other time."""
    chance = random.Random(seed)
    prepared(stack)
    words = some_words(records)
    stack.produce(WORDS, words)
    lost = set(chance.sample(range(kills), kills // 2))
    for number in range(kills):
        worker = trials.start_worker(stack, TRIAL_WORK_MS="1")
        wait_until(partial(committed_beyond, stack, committed(stack)), "a commit", alive=[worker])
        pause_s(chance.uniform(0, 0.5))
        worker.kill()
        trials.assert_no_store_is_ahead(stack)
        if number in lost:
            stack.wipe()
    assert committed(stack) < records, "all was counted already: the last kill met nobody at work"
    finish(stack, words)


def committed_beyond(stack: Stack, before: int) -> bool:
    return committed(stack) > before


def killed_at_the_worst_moments(stack: Stack, moments: Sequence[str] = MOMENTS) -> None:
    """A kill at each step of a commit, while words come in; the disk is kept."""
    prepared(stack)
    words: list[Record] = []

    def feed(turn: int) -> None:
        more = [line(n % PARTITIONS, 1_000 + 50 * turn, f"w{n % DISTINCT}") for n in range(40)]
        stack.produce(WORDS, more)
        words.extend(more)

    with trials.fed(feed, every_s=0.1):
        for moment in moments:
            worker = trials.start_worker(stack, TRIAL_KILL_AT=f"{moment}:2")
            assert worker.wait(40), worker.tail(40)
            assert worker.returncode == -signal.SIGKILL, worker.tail(40)
            assert stack.counts_in_changelog(), "it was killed before it had counted anything"
            trials.assert_no_store_is_ahead(stack)
    finish(stack, words)


def committed(stack: Stack) -> int:
    return sum(stack.committed(AGGREGATOR, WORDS).values())


def finish(stack: Stack, words: list[Record]) -> None:
    """Let a last worker come to the end: EXACT, to the last unit."""
    worker = trials.start_worker(stack)
    stack.wait_for_lag_0(AGGREGATOR, alive=[worker])
    stack.stop(worker)
    wanted = recount(words)
    assert sum(wanted.values()) == len(words), "late words prove nothing"
    trials.assert_exact(stack, wanted)
