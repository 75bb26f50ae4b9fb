"""Field report P24: whose lag is told by whom while partitions move between workers."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from confluent_kafka import Producer
from tests.integration.harness import (
    AGGREGATOR,
    COUNTS,
    REPARTITION,
    WORDS,
    Stack,
    line,
    wait_until,
)

from devstack.processes import Child

PARTITIONS: Final = 6
_LAG: Final = re.compile(r'streamcore_lag_records\{partition="(\d+)",topic="([^"]+)"')

Lags = dict[tuple[str, int], int]


def lags_told(stack: Stack, name: str) -> Lags:
    """Return what one process says of each partition."""
    found: Lags = {}
    for series, value in stack.metrics(name).items():
        if match := _LAG.match(series):
            at = (match[2], int(match[1]))
            assert at not in found, f"{at} twice in {name}"
            found[at] = int(value)
    return found


def all_told(stack: Stack, *names: str) -> Lags:
    """Return what all of them say; no partition may be told by two, at any moment."""
    together: Lags = {}
    for name in names:
        found = lags_told(stack, name)
        assert not found.keys() & together.keys(), (name, found, together)
        together |= found
    return together


@contextmanager
def lag_held(stack: Stack, rows: int) -> Iterator[None]:
    """Keep rows in front of everybody: nobody reads past a transaction that is open."""
    producer = Producer(
        {
            "bootstrap.servers": stack.bootstrap,
            "transactional.id": stack.name("foreign"),
            "transaction.timeout.ms": 300_000,
            "log_level": 0,
        }
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    for number in range(PARTITIONS * rows):
        producer.produce(stack.name(WORDS), value=b"held", partition=number % PARTITIONS)
    assert producer.flush(30) == 0
    yield
    producer.abort_transaction(30)


def wait_until_told(stack: Stack, workers: Sequence[Child], *, held: int) -> None:
    """Wait until each partition is told by one worker, and all together say what the group says."""
    names = [worker.name for worker in workers]

    def right() -> bool:
        told = all_told(stack, *names)
        return (
            told.keys() == {(topic, n) for topic in (WORDS, REPARTITION) for n in range(PARTITIONS)}
            and {at: n for at, n in told.items() if n} == stack.lag(AGGREGATOR)
            and sum(told.values()) == held
        )

    wait_until(
        right,
        lambda: f"{stack.lag(AGGREGATOR)}: {[lags_told(stack, name) for name in names]}",
        alive=workers,
    )


def metrics_follow_their_partitions(stack: Stack, guarantee: str, *, words: int) -> None:
    stack.settings |= {
        "STREAMCORE_PROCESSING_GUARANTEE": guarantee,
        "STREAMCORE_COMMIT_INTERVAL_MS": "200",
        "STREAMCORE_SESSION_TIMEOUT_MS": "6000",
    }
    stack.create(WORDS, COUNTS, partitions=PARTITIONS)
    a, b = stack.start("aggregator", "-a"), stack.start("aggregator", "-b")
    wait_until_told(stack, [a, b], held=0)
    stack.produce(WORDS, [line(n % PARTITIONS, 1_000, f"few-{n % 50}") for n in range(300)])
    stack.wait_for_lag_0(AGGREGATOR, alive=[a, b])
    wait_until_told(stack, [a, b], held=0)
    wait_until(
        lambda: delays(stack, a, b) == 2 * PARTITIONS, "event time to be known", alive=[a, b]
    )
    before = {child: series(stack, child.name) for child in (a, b)}

    stack.produce(WORDS, [line(n % PARTITIONS, 2_000 + 5 * n, f"word-{n}") for n in range(words)])
    stack.wait_for_lag_0(AGGREGATOR, alive=[a, b])
    wait_until_told(stack, [a, b], held=0)
    for child, those in before.items():
        assert series(stack, child.name) == those, series(stack, child.name) ^ those

    with lag_held(stack, rows=7):
        held = PARTITIONS * 7
        wait_until_told(stack, [a, b], held=held)
        stack.stop(b)
        assert lags_told(stack, b.name) == {}
        wait_until_told(stack, [a], held=held)
        c = stack.start("aggregator", "-c")
        wait_until(
            lambda: (
                all_told(stack, a.name, c.name)
                and [len(lags_told(stack, child.name)) for child in (a, c)] == [PARTITIONS] * 2
            ),
            lambda: f"equal shares: {[(c.name, stack.metrics(c.name)) for c in (a, c)]}",
            alive=[a, c],
        )
        wait_until_told(stack, [a, c], held=held)
        wait_until(
            lambda: len(series(stack, a.name)) == len(before[a]),
            lambda: f"as many series as before: {series(stack, a.name) ^ before[a]}",
            alive=[a, c],
        )
    stack.stop(a, c)


def delays(stack: Stack, *workers: Child) -> int:
    """Return of how many tasks it is known how far behind event time is."""
    name = "streamcore_task_watermark_delay_ms"
    return sum(found.startswith(name) for child in workers for found in series(stack, child.name))


def series(stack: Stack, name: str) -> set[str]:
    """Return which series a process has."""
    return set(stack.metrics(name))
