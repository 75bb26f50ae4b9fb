"""A replay of old records on a broker that deletes by record timestamp wherever it may.

Kafka Streams' windowed changelogs may be deleted so; with them a restart on an empty disk begins
at nothing. Two topics of the test's own show that this broker really deletes: one is deleted by
time, one compacted and deleted, as Kafka Streams makes its changelogs.
"""

from collections.abc import Iterator
from functools import partial

import pytest
from tests.integration.conftest import MakeStack
from tests.integration.harness import (
    AGGREGATOR,
    CHANGELOG,
    COUNTS,
    WORDS,
    Record,
    Stack,
    difference,
    line,
    recount,
    wait_until,
)

from devstack.kafka import Broker
from devstack.processes import Child
from devstack.pytest_plugin import TEST_SETTINGS

pytestmark = pytest.mark.broker

OLD_MS = 1_690_000_000_000  # July 2023
SIZE_MS = 10_000


@pytest.fixture(scope="module")
def deleting_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    settings = {
        **TEST_SETTINGS,
        "log.retention.ms": "604800000",
        "log.roll.ms": "20000",  # of record time: a new segment every two windows
        "log.cleaner.threads": "1",
    }
    with Broker(tmp_path_factory.mktemp("deleting"), settings=settings) as running:
        yield running


def replayed(partition: int, begin_ms: int, span_ms: int, each_ms: int = 250) -> list[Record]:
    return [
        line(partition, begin_ms + at_ms, f"w{at_ms // each_ms % 7}")
        for at_ms in range(0, span_ms, each_ms)
    ]


def prepared(stack: Stack, guarantee: str) -> Stack:
    stack.settings = {
        "STREAMCORE_PROCESSING_GUARANTEE": guarantee,
        "STREAMCORE_COMMIT_INTERVAL_MS": "200",
        "STREAMCORE_IDLE_AFTER_MS": "1000",
    }
    stack.create(WORDS, COUNTS, partitions=2)
    return stack


def wait_for_a_deletion(stack: Stack, name: str) -> None:
    """Return when the broker has deleted old records from whatever topic lets it."""
    for policy in ("delete", "compact,delete"):
        topic = f"{name}-{policy.replace(',', '-')}"
        stack.create(topic, partitions=1, cleanup_policy=policy, retention_ms=str(24 * 3_600_000))
        stack.produce(topic, [Record(0, OLD_MS + 30_000 * n, b"1", b"k%d" % n) for n in range(10)])
        wait_until(partial(_is_empty, stack, topic), f"{topic} to be emptied")


def _is_empty(stack: Stack, topic: str) -> bool:
    return not stack.read(topic)


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_old_records_are_counted_exactly_though_the_disk_is_lost_half_way(
    deleting_broker: Broker, stacks: MakeStack, guarantee: str
) -> None:
    stack = prepared(stacks(deleting_broker), guarantee)
    # Both halves count into the same windows.
    first, second = replayed(0, OLD_MS, 600_000), replayed(1, OLD_MS + 100, 600_000)
    stack.produce(WORDS, first)
    worker = stack.start("aggregator")
    stack.wait_for_lag_0(AGGREGATOR, alive=[worker])
    assert difference(recount(first), stack.counts_in_changelog()) == {}
    stack.stop(worker)
    wait_for_a_deletion(stack, "first")
    stack.wipe()
    stack.produce(WORDS, second)
    worker = stack.start("aggregator")
    stack.wait_for_lag_0(AGGREGATOR, alive=[worker])
    stack.stop(worker)
    wanted = recount([*first, *second])
    assert difference(wanted, stack.counts_in_topic()) == {}
    assert difference(wanted, stack.counts_in_changelog()) == {}
    assert stack.settings_of(CHANGELOG)["cleanup.policy"] == "compact"


def test_the_changelog_is_trimmed_behind_windows_that_have_expired(
    deleting_broker: Broker, stacks: MakeStack
) -> None:
    stack = prepared(stacks(deleting_broker), "at_least_once")
    stack.settings["AGGREGATOR_RETENTION_MS"] = "60000"
    lines = replayed(0, OLD_MS, 1_200_000)
    half = len(lines) // 2
    stack.produce(WORDS, lines[:half])
    worker = stack.start("aggregator")
    stack.wait_for_lag_0(AGGREGATOR, alive=[worker])
    stack.stop(worker)
    wait_for_a_deletion(stack, "half")
    stack.wipe()
    stack.produce(WORDS, lines[half:])
    worker = stack.start("aggregator")
    stack.wait_for_lag_0(AGGREGATOR, alive=[worker])
    assert difference(recount(lines), stack.counts_in_topic()) == {}
    for step in range(4):  # a log's newest segment is never compacted, so let it grow
        more = replayed(0, OLD_MS + 1_300_000 + 100_000 * step, 1_000)
        stack.produce(WORDS, more)
        stack.wait_for_lag_0(AGGREGATOR, alive=[worker])
        lines += more

    wanted = recount(lines)
    assert difference(wanted, stack.counts_in_topic()) == {}
    live = {key: count for key, count in wanted.items() if key[1] + 60_000 > lines[-1].stamp_ms}
    wait_until(
        lambda: difference(live, stack.counts_in_changelog()) == {},
        lambda: f"live windows only: {difference(live, stack.counts_in_changelog())}",
        alive=[worker],
    )
    wait_until_trimmed(stack, worker)
    stack.stop(worker)


def wait_until_trimmed(stack: Stack, worker: Child) -> None:
    """The broker drops what tombstones cover, but for its newest segments."""

    def kept() -> int:
        return len({record.key for record in stack.read(CHANGELOG) if record.value is not None})

    written = len(stack.counts_in_topic())
    wait_until(
        lambda: kept() < written // 4,
        lambda: f"{kept()} of {written} counts are still in the log",
        alive=[worker],
    )
