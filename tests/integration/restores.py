"""P06 and P04 under faults: restores that take long, while members come and go."""

import signal
from collections.abc import Mapping, Sequence
from functools import partial

from tests.integration import trials
from tests.integration.harness import (
    AGGREGATOR,
    CHANGELOG,
    COUNTS,
    REPARTITION,
    WORDS,
    Record,
    Stack,
    line,
    recount,
    wait_until,
)

from devstack.processes import Child

PARTITIONS = 2
TASKS = 2 * PARTITIONS
STARTS = "trial: restore of "


def slow_restore_keeps_membership(
    stack: Stack, *, entries: int, max_poll_interval_ms: int, session_timeout_ms: int
) -> None:
    """P06: a restore of three times the longest time between polls; half-way a second worker."""
    stack.settings = {
        "STREAMCORE_PROCESSING_GUARANTEE": "exactly_once_v2",
        "STREAMCORE_COMMIT_INTERVAL_MS": "200",
        "STREAMCORE_SESSION_TIMEOUT_MS": str(session_timeout_ms),
        "STREAMCORE_MAX_POLL_INTERVAL_MS": str(max_poll_interval_ms),
        "AGGREGATOR_RETENTION_MS": "3600000",
    }
    stack.create(WORDS, COUNTS, partitions=PARTITIONS)
    words = [line(n % PARTITIONS, 1_000, f"w{n}") for n in range(entries)]
    counted_and_lost(stack, words)
    more = [line(n % PARTITIONS, 2_000, f"w{n}") for n in range(0, entries, 10)]
    stack.produce(WORDS, more)
    before = stack.committed(AGGREGATOR, WORDS, REPARTITION)

    row_us = 3 * 1_000 * max_poll_interval_ms // entries
    slow = {"TRIAL_RESTORE_ROWS": "200", "TRIAL_RESTORE_ROW_US": str(row_us)}
    first = trials.start_worker(stack, "-first", **slow)
    seen: list[list[str]] = []

    def restored(share: float) -> bool:
        seen.append(trials.members(stack))
        assert_nothing_counted_while_restoring(stack, first, before)
        return len(seen[-1]) > 0 and restored_rows(stack, first) >= share * entries

    wait_until(lambda: restored(0.1), "a tenth of the restore", alive=[first])
    second = trials.start_worker(stack, "-second", **slow)  # its program takes its time to start
    wait_until(
        lambda: restored(0) and len(trials.members(stack)) == 2,
        "the second one to join",
        alive=[first, second],
    )
    trials.wait_for_one_owner_each(stack, TASKS, first, second, patience_s=60)
    (member,) = {ids[0] for ids in seen if len(ids) == 1}
    assert all(member in ids for ids in seen if ids)
    assert member in trials.members(stack)
    stack.wait_for_lag_0(AGGREGATOR, alive=[first, second])
    stack.stop(first, second)
    assert_begun_once_from_zero(first)
    trials.assert_exact(stack, recount([*words, *more]))


def restored_rows(stack: Stack, worker: Child) -> float:
    return stack.metrics(worker.name).get("streamcore_rows_restored_total", 0)


def restored_by_any(stack: Stack, workers: Sequence[Child]) -> bool:
    return any(restored_rows(stack, worker) > 0 for worker in workers)


def assert_nothing_counted_while_restoring(
    stack: Stack, worker: Child, before: Mapping[tuple[str, int], int]
) -> None:
    """No record goes into a task before its restore has ended; the others go on meanwhile."""
    told = worker.tail(10_000)
    if any(f"{STARTS}1_{n} ends" in told for n in range(PARTITIONS)):
        return
    after = stack.committed(AGGREGATOR, REPARTITION)
    told = worker.tail(10_000)
    if not any(f"{STARTS}1_{n} ends" in told for n in range(PARTITIONS)):
        assert after == {tp: at for tp, at in before.items() if tp[0] == REPARTITION}


def assert_begun_once_from_zero(worker: Child) -> None:
    """A generation more does not make it begin again: it goes on where it was."""
    rows = [row for row in worker.tail(10_000).splitlines() if row.startswith(STARTS)]
    for number in range(PARTITIONS):
        begun = [row for row in rows if f"1_{number} starts" in row]
        assert begun, rows
        assert len([row for row in begun if " starts at 0 of" in row]) == 1, begun


def counted_and_lost(stack: Stack, words: list[Record]) -> None:
    """Have the words counted, stop cleanly, lose the disk."""
    stack.produce(WORDS, words)
    worker = trials.start_worker(stack, "-before")
    stack.wait_for_lag_0(AGGREGATOR, alive=[worker])
    stack.stop(worker)
    stack.wipe()


def holes_and_markers_while_members_change(stack: Stack, *, changes: int) -> None:
    """P04 under faults: a changelog of markers and holes, its writer killed in a transaction.

    The restore on an empty disk is slow, and members come and go all the time.
    """
    stack.settings = {
        "STREAMCORE_PROCESSING_GUARANTEE": "exactly_once_v2",
        "STREAMCORE_COMMIT_INTERVAL_MS": "100",
        "STREAMCORE_SESSION_TIMEOUT_MS": "3000",
        "AGGREGATOR_RETENTION_MS": "3600000",
        "TRIAL_RESTORE_ROWS": "20",
        "TRIAL_RESTORE_ROW_US": "2000",
    }
    stack.create(WORDS, COUNTS, partitions=PARTITIONS)
    stack.create(CHANGELOG, partitions=PARTITIONS, cleanup_policy="compact", segment_ms="500",
                 min_cleanable_dirty_ratio="0.01")  # fmt: skip
    words: list[Record] = []

    def feed(turn: int) -> None:
        more = [line(n % PARTITIONS, 1_000 + turn, f"w{n % 300}") for n in range(100)]
        stack.produce(WORDS, more)
        words.extend(more)

    def has_holes() -> bool:
        return len(stack.read(CHANGELOG)) < sum(stack.ends(CHANGELOG).values()) * 2 // 3

    with trials.fed(feed, every_s=0.1):
        killed = trials.start_worker(stack, "-killed")
        wait_until(lambda: len(words) > 3_000 and has_holes(), "holes", alive=[killed])
        killed.kill()
        stack.wipe()
        stays = trials.start_worker(stack, "-stays")
        for change in range(changes):
            other = trials.start_worker(stack, f"-other{change}")
            # Whoever was a guest beside the other may have read it all before it joined.
            restored = partial(restored_by_any, stack, (stays, other))
            wait_until(restored, "a restore", alive=[stays, other])
            wait_until(lambda: len(trials.members(stack)) > 1, "it to join", alive=[stays, other])
            other.send(signal.SIGTERM)
            assert other.wait(30), other.tail(40)
            assert other.returncode == 0, other.tail(40)
    trials.wait_for_one_owner_each(stack, TASKS, stays)
    stack.wait_for_lag_0(AGGREGATOR, alive=[stays])
    stack.stop(stays)
    trials.assert_exact(stack, recount(words))
