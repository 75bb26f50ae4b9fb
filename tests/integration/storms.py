"""P05 and P14: workers that come and go all the time, and processes that share a state folder."""

import signal
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

from devstack.processes import Child

PARTITIONS = 4
TASKS = 2 * PARTITIONS
STARTS_S = 10  # a program, with its libraries, on a busy machine
SETTLED_WITHIN_S = 10 + STARTS_S
OPENS_WITHIN_S = 10 + STARTS_S


def a_change_a_second(
    stack: Stack, guarantee: str, *, changes: int, words_a_second: int, work_ms: int
) -> None:
    """P05: B and C come and go while A works; nobody ends by himself, and nothing is lost.

    All stops are clean, so under at-least-once, too, no count may differ.
    """
    stack.settings = {
        "STREAMCORE_PROCESSING_GUARANTEE": guarantee,
        "STREAMCORE_COMMIT_INTERVAL_MS": "1000",
        "STREAMCORE_SESSION_TIMEOUT_MS": "6000",
        "STREAMCORE_MAX_POLL_INTERVAL_MS": "10000",
        "AGGREGATOR_RETENTION_MS": "3600000",
        "AGGREGATOR_POLL_ROWS_MAX": "50",
        "TRIAL_WORK_MS": str(work_ms),
    }
    stack.create(WORDS, COUNTS, partitions=PARTITIONS)
    stack.produce(WORDS, [line(n, 1_000, "first") for n in range(PARTITIONS)])
    words = [line(n, 1_000, "first") for n in range(PARTITIONS)]
    workers = {"a": trials.start_worker(stack, "-a")}
    trials.wait_for_one_owner_each(stack, TASKS, *workers.values())

    def feed(turn: int) -> None:
        more = _some_words(turn, words_a_second // 5)
        stack.produce(WORDS, more)
        words.extend(more)

    leaving: list[Child] = []
    with trials.fed(feed, every_s=0.2):
        for change in range(changes):
            name = "bc"[change % 2]
            if name in workers:
                leaves = workers.pop(name)
                wait_until(partial(leaves.tail, 1), "a first word", alive=[leaves])  # it hears now
                leaves.send(signal.SIGTERM)
                leaving.append(leaves)
            else:
                workers[name] = trials.start_worker(stack, f"-{name}{change}")
            pause_s(1)
            assert [w.name for w in workers.values() if w.returncode is not None] == []
    trials.wait_for_one_owner_each(stack, TASKS, *workers.values(), patience_s=SETTLED_WITHIN_S)
    stack.wait_for_lag_0(AGGREGATOR, alive=list(workers.values()))
    for child in leaving:
        assert child.wait(30), child.tail(40)
        assert child.returncode == 0, child.tail(40)
    stack.stop(*workers.values())
    trials.assert_exact(stack, recount(words))


def _some_words(turn: int, count: int) -> list[Record]:
    return [
        line(number % PARTITIONS, 1_000 + 50 * turn, f"w{(turn + number) % 23}")
        for number in range(count)
    ]


def moved_in_one_state_folder(stack: Stack, *, threads: int, moves: int) -> None:
    """P14: two instances in one folder, one of them stopped and started again; then killed."""
    stack.settings = {
        "STREAMCORE_PROCESSING_GUARANTEE": "exactly_once_v2",
        "STREAMCORE_COMMIT_INTERVAL_MS": "200",
        "STREAMCORE_SESSION_TIMEOUT_MS": "3000",
        "STREAMCORE_NUM_STREAM_THREADS": str(threads),
        "AGGREGATOR_RETENTION_MS": "3600000",
    }
    stack.create(WORDS, COUNTS, partitions=PARTITIONS)
    words: list[Record] = []

    def feed(turn: int) -> None:
        more = _some_words(turn, 20)
        stack.produce(WORDS, more)
        words.extend(more)

    feed(0)
    stays = stack.start("aggregator", "-stays")
    moves_about = stack.start("aggregator", "-moves")
    trials.wait_for_one_owner_each(stack, TASKS, stays, moves_about)
    with trials.fed(lambda turn: feed(turn + 1), every_s=0.2):
        for move in range(moves):
            stack.stop(moves_about)
            moves_about = stack.start("aggregator", f"-moves{move}")
            trials.wait_for_one_owner_each(
                stack, TASKS, stays, moves_about, patience_s=OPENS_WITHIN_S
            )
        moves_about.kill()
        again = stack.start("aggregator", "-again")  # at once: nothing stands between the two
        trials.wait_for_one_owner_each(stack, TASKS, stays, again, patience_s=OPENS_WITHIN_S)
    stack.wait_for_lag_0(AGGREGATOR, alive=[stays, again])
    stack.stop(stays, again)
    for child in stack.children:
        assert "open elsewhere" not in child.tail(100_000), child.tail(40)
    trials.assert_exact(stack, recount(words))
