"""Trials with a broker that is away: short in every run of the tests, at full length in soak."""

from pathlib import Path

from tests.integration.conftest import MakeStack
from tests.integration.harness import (
    AGGREGATOR,
    COUNTS,
    INGEST,
    LINES,
    SINK,
    WORDS,
    Stack,
    difference,
    line,
    pause_s,
    recount,
    wait_until,
)

from devstack.kafka import Broker
from devstack.processes import Child
from devstack.pytest_plugin import TEST_SETTINGS

BACK_WITHIN_S = 30
SERVICES = ("ingest", "aggregator", "sink")
QUEUE_LIMIT = 1_000
NUMBERED = 50_000
LOG_LINES_PER_10_S = 12  # of one service


def frozen_while_forwarding(folder: Path, stacks: MakeStack, frozen_s: float) -> None:
    """P17: a small queue, and a broker that stands still while numbered records are forwarded."""
    with Broker(folder / "kafka", settings=dict(TEST_SETTINGS)) as broker:
        stack = stacks(broker)
        session_ms = max(10_000, int(frozen_s * 2_000))
        stack.settings = {
            "STREAMCORE_KAFKA_SETTINGS": (
                f'{{"producer.queue.buffering.max.messages": {QUEUE_LIMIT}}}'
            ),
            "STREAMCORE_SESSION_TIMEOUT_MS": str(session_ms),
        }
        stack.create(LINES, WORDS, partitions=2)
        records = [line(number % 2, 1_000 + number, f"w{number}") for number in range(NUMBERED)]
        stack.produce(LINES, records)
        ingest = stack.start("ingest")
        wait_until(lambda: stack.processed("ingest") > 0, "the first word", alive=[ingest])
        broker.pause()
        try:
            pause_s(frozen_s)
            processed = stack.processed("ingest")
            assert processed < NUMBERED, "all was forwarded before the broker froze"
            assert ingest.returncode is None, ingest.tail(30)
        finally:
            broker.resume()
        stack.wait_for_lag_0(INGEST, alive=[ingest])
        stack.stop(ingest)
        for partition in range(2):
            found = [r.value for r in stack.read(WORDS) if r.partition == partition]
            wanted = [r.value for r in records if r.partition == partition]
            assert found == wanted, (len(found), len(wanted))


def away_at_the_start_and_in_mid_run(
    folder: Path, stacks: MakeStack, table: str, start_s: float, mid_s: float
) -> None:
    """P18: three services, and no broker to talk to; then one that goes away for a while."""
    broker = Broker(folder / "kafka", settings=dict(TEST_SETTINGS))
    broker.start()
    stack = stacks(broker, database_url=table)
    stack.settings = {
        "STREAMCORE_PROCESSING_GUARANTEE": "exactly_once_v2",
        "STREAMCORE_COMMIT_INTERVAL_MS": "200",
        # No transaction shall expire while the broker is away: see decision 0016.
        "STREAMCORE_TRANSACTION_TIMEOUT_MS": str(int(1_000 * (mid_s + 120))),
    }
    stack.create(LINES, WORDS, COUNTS, partitions=2)
    stack.migrate()
    lines = [line(number % 2, 1_000 + 10 * number, f"w{number % 9}") for number in range(3_000)]
    thirds = [lines[:1_000], lines[1_000:2_000], lines[2_000:]]
    stack.produce(LINES, thirds[0])
    broker.stop()

    children = [stack.start(service) for service in SERVICES]
    pause_s(start_s)
    assert_alive_and_calm(children, start_s)
    broker.start()
    wait_for_everything(stack, children)

    stack.produce(LINES, thirds[1])
    wait_until(lambda: stack.processed("ingest") > 1_000, "the second third", alive=children)
    broker.kill()  # not a clean stop: see decision 0016
    pause_s(mid_s)
    assert_alive_and_calm(children, start_s + mid_s)
    broker.start()
    stack.produce(LINES, thirds[2])
    wait_for_everything(stack, children)
    stack.stop(*children)

    wanted = recount(lines)
    assert difference(wanted, stack.counts_in_topic()) == {}
    assert difference(wanted, stack.counts_in_changelog()) == {}
    assert difference(wanted, stack.counts_in_database()) == {}
    broker.stop()


def wait_for_everything(stack: Stack, children: list[Child]) -> None:
    stack.wait_for_lag_0(INGEST, AGGREGATOR, SINK, alive=children, patience_s=BACK_WITHIN_S)


def assert_alive_and_calm(children: list[Child], seconds: float) -> None:
    for child in children:
        assert child.returncode is None, child.tail(30)
        written = len(child.tail(100_000).splitlines())
        assert written < 30 + LOG_LINES_PER_10_S * seconds / 10, child.tail(60)
