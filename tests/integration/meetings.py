"""P17 and P18 under faults: what happens when two faults come at once."""

import signal
from pathlib import Path

from tests.integration import trials
from tests.integration.conftest import MakeStack
from tests.integration.harness import (
    AGGREGATOR,
    COUNTS,
    INGEST,
    LINES,
    WORDS,
    Record,
    Stack,
    line,
    pause_s,
    recount,
    wait_until,
)
from tests.integration.outages import BACK_WITHIN_S, NUMBERED, QUEUE_LIMIT

from devstack.kafka import Broker
from devstack.processes import Child
from devstack.pytest_plugin import TEST_SETTINGS

PARTITIONS = 2


def full_queue_while_the_group_changes(folder: Path, stacks: MakeStack, frozen_s: float) -> None:
    """P17: the broker stands still with a full queue, a member comes, the first one goes.

    Under exactly-once each number comes out once, and in order: a number that is in no partition's
    order twice, nor missing, was handed over well.
    """
    with Broker(folder / "kafka", settings=dict(TEST_SETTINGS)) as broker:
        stack = stacks(broker)
        stack.settings = {
            "STREAMCORE_PROCESSING_GUARANTEE": "exactly_once_v2",
            "STREAMCORE_COMMIT_INTERVAL_MS": "500",
            "STREAMCORE_KAFKA_SETTINGS": (
                f'{{"producer.queue.buffering.max.messages": {QUEUE_LIMIT}}}'
            ),
            "STREAMCORE_SESSION_TIMEOUT_MS": str(int(2_000 * frozen_s)),
            "STREAMCORE_TRANSACTION_TIMEOUT_MS": str(int(4_000 * frozen_s)),
        }
        stack.create(LINES, WORDS, partitions=PARTITIONS)
        records = [line(n % PARTITIONS, 1_000 + n, f"w{n}") for n in range(NUMBERED)]
        stack.produce(LINES, records)
        leaves = stack.start("ingest", "-leaves")
        wait_until(lambda: stack.processed(leaves.name) > 0, "the first word", alive=[leaves])
        broker.pause()
        try:
            stays = stack.start("ingest", "-stays")
            pause_s(frozen_s)
            assert stack.processed(leaves.name) < NUMBERED, "all was forwarded before it froze"
            assert (leaves.returncode, stays.returncode) == (None, None)
        finally:
            broker.resume()
        trials.wait_for_one_owner_each(stack, PARTITIONS, leaves, stays)
        leaves.send(signal.SIGTERM)
        stack.wait_for_lag_0(INGEST, alive=[stays])
        assert leaves.wait(30), leaves.tail(40)
        assert leaves.returncode == 0, leaves.tail(40)
        stack.stop(stays)
        for partition in range(PARTITIONS):
            found = [r.value for r in stack.read(WORDS) if r.partition == partition]
            wanted = [r.value for r in records if r.partition == partition]
            assert found == wanted, (len(found), len(wanted))


def killed_while_the_broker_is_away(folder: Path, stacks: MakeStack, away_s: float) -> None:
    """P18: one of two workers dies while nobody can be told, and its disk is lost with it.

    The broker dies hard, and comes back before transactions expire. One that is stopped cleanly in
    the middle of commits was seen to leave offsets without their marker for ever; and one that
    finds an expired transaction when it starts was seen to call it aborted without a marker in the
    data, so that the next commit of that producer made the old rows count, too. Nothing that a
    client does mends either.
    """
    with Broker(folder / "kafka", settings=dict(TEST_SETTINGS)) as broker:
        stack = stacks(broker)
        stack.settings = {
            "STREAMCORE_PROCESSING_GUARANTEE": "exactly_once_v2",
            "STREAMCORE_COMMIT_INTERVAL_MS": "200",
            "STREAMCORE_SESSION_TIMEOUT_MS": "3000",
            "STREAMCORE_TRANSACTION_TIMEOUT_MS": str(int(1_000 * (away_s + 120))),
            "AGGREGATOR_RETENTION_MS": "3600000",
        }
        stack.create(WORDS, COUNTS, partitions=PARTITIONS)
        words = some_words(0)
        stack.produce(WORDS, words)
        survives = trials.start_worker(stack, "-survives", TRIAL_WORK_MS="1")
        dies = start_elsewhere(stack, "-dies")
        trials.wait_for_one_owner_each(stack, 2 * PARTITIONS, survives, dies)
        more = some_words(1)
        stack.produce(WORDS, more)
        before = stack.processed(survives.name)
        wait_until(lambda: stack.processed(survives.name) > before, "work", alive=[survives, dies])
        broker.kill()
        dies.kill()
        pause_s(away_s)
        assert survives.returncode is None, survives.tail(40)
        broker.start()
        last = some_words(2)
        stack.produce(WORDS, last)
        stack.wait_for_lag_0(AGGREGATOR, alive=[survives], patience_s=BACK_WITHIN_S)
        trials.wait_for_one_owner_each(stack, 2 * PARTITIONS, survives)
        stack.stop(survives)
        trials.assert_exact(stack, recount([*words, *more, *last]))


def start_elsewhere(stack: Stack, instance: str) -> Child:
    """Start a worker as on another machine: with a disk of its own, empty."""
    folder = stack.state_dir / "elsewhere" / instance
    return trials.start_worker(stack, instance, TRIAL_WORK_MS="1", STREAMCORE_STATE_DIR=str(folder))


def some_words(turn: int) -> list[Record]:
    return [line(n % PARTITIONS, 1_000 + 5_000 * turn + n, f"w{n % 31}") for n in range(2_000)]
