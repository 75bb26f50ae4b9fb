"""The catch-up: 200,000 lines wait, grace 0, and not one word is lost.

One partition is ten times larger than the next, one is an hour ahead in time, one is empty, one
falls silent and wakes late. The aggregator is stopped twice on the way, each time with its disk
wiped; it goes on with one, then with two instances. By Kafka Streams' own rule the same run loses
words, or it would prove nothing.
"""

import random
from collections import Counter
from collections.abc import Iterator

import pytest
from tests.integration.conftest import MakeStack
from tests.integration.harness import (
    AGGREGATOR,
    COUNTS,
    INGEST,
    LINES,
    WORDS,
    Record,
    Stack,
    difference,
    fold,
    line,
    recount,
    wait_until,
    windowed_key,
)

from devstack.processes import Child

BASE_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
SPAN_MS = 600_000
LARGE, SMALL, AHEAD, EMPTY, SLEEPER = range(5)
SIZES = {LARGE: 165_000, SMALL: 16_500, AHEAD: 16_500, SLEEPER: 2_000}
WAKING = 500
DICTIONARY = [f"w{number}" for number in range(40)]


def lines_of(partition: int, size: int, begin_ms: int, span_ms: int = SPAN_MS) -> Iterator[Record]:
    """Yield short lines in order of time, evenly spread."""
    chance = random.Random(partition)
    for number in range(size):
        yield line(partition, begin_ms + number * span_ms // size, chance.choice(DICTIONARY))


def waiting_lines() -> list[Record]:
    return [
        *lines_of(LARGE, SIZES[LARGE], BASE_MS),
        *lines_of(SMALL, SIZES[SMALL], BASE_MS),
        *lines_of(AHEAD, SIZES[AHEAD], BASE_MS + HOUR_MS),
        *lines_of(SLEEPER, SIZES[SLEEPER], BASE_MS, SPAN_MS // 2),
    ]


def test_no_word_is_lost_with_updates(broker: object, stacks: MakeStack, guarantee: str) -> None:
    stack = prepared(stacks(broker), guarantee, "updates")
    lines = waiting_lines()
    workers = caught_up_with_stops(stack, lines)
    # By now everybody is idle and the watermark is an hour ahead of what the sleeper has to say.
    waking = list(lines_of(SLEEPER, WAKING, BASE_MS + SPAN_MS // 2, SPAN_MS // 2))
    stack.produce(LINES, waking)
    stack.wait_for_lag_0(INGEST, AGGREGATOR, alive=workers)
    stack.stop(*workers)
    wanted = recount([*lines, *waking])
    assert sum(wanted.values()) == len(lines) + len(waking), "no line is late by its own clock"
    assert difference(wanted, stack.counts_in_topic()) == {}
    assert difference(wanted, stack.counts_in_changelog()) == {}


def test_each_final_count_is_complete_and_comes_once(
    broker: object, stacks: MakeStack, guarantee: str
) -> None:
    stack = prepared(stacks(broker), guarantee, "final")
    lines = waiting_lines()
    workers = caught_up_with_stops(stack, lines)
    # What the sleeper brings is newer than anything that has passed everywhere.
    waking = list(lines_of(SLEEPER, WAKING, BASE_MS + 2 * HOUR_MS))
    last = [line(LARGE, BASE_MS + 3 * HOUR_MS, "last")]
    stack.produce(LINES, waking)
    stack.wait_for_lag_0(INGEST, AGGREGATOR, alive=workers)
    stack.produce(LINES, last)
    wanted = recount([*lines, *waking])
    wait_until(
        lambda: len(stack.read(COUNTS)) >= len(wanted),
        lambda: f"{len(wanted)} final counts, there are {len(stack.read(COUNTS))}",
        alive=workers,
    )
    stack.wait_for_lag_0(INGEST, AGGREGATOR, alive=workers)
    stack.stop(*workers)
    finals = stack.read(COUNTS)
    times = Counter(windowed_key(record.key or b"") for record in finals)
    assert {key: n for key, n in times.items() if n != 1} == {}
    assert difference(wanted, fold(finals, tail_bytes=8)) == {}


def test_by_kafka_streams_rule_the_same_run_loses_words(broker: object, stacks: MakeStack) -> None:
    stack = prepared(stacks(broker), "at_least_once", "updates")
    stack.settings["STREAMCORE_EVENT_TIME"] = "operator"
    lines = waiting_lines()
    workers = caught_up_with_stops(stack, lines)
    lost = len(lines) - sum(stack.counts_in_topic().values())
    assert lost > 0
    stack.stop(*workers)


@pytest.fixture(params=["at_least_once", "exactly_once_v2"])
def guarantee(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


def prepared(stack: Stack, guarantee: str, emit: str) -> Stack:
    stack.settings = {
        "STREAMCORE_PROCESSING_GUARANTEE": guarantee,
        "STREAMCORE_COMMIT_INTERVAL_MS": "300",
        "STREAMCORE_IDLE_AFTER_MS": "2000",
        # Slowly, so that there is a half-way, and quick to take others in.
        "AGGREGATOR_POLL_ROWS_MAX": "50",
        "AGGREGATOR_KAFKA_SETTINGS": '{"consumer.heartbeat.interval.ms": 300}',
        "EMIT": emit,
        "GRACE_MS": "0",
    }
    stack.create(LINES, WORDS, COUNTS, partitions=5)
    return stack


def caught_up_with_stops(stack: Stack, lines: list[Record]) -> list[Child]:
    """Let 200,000 words pile up and be counted, with two stops; return who runs then."""
    stack.produce(LINES, lines)
    ingest = stack.start("ingest")
    stack.wait_for_lag_0(INGEST, alive=[ingest])
    assert len(lines) == 200_000

    one = [stack.start("aggregator")]
    stop_with_wiped_disk(stack, one, until=20_000)
    two = [stack.start("aggregator"), stack.start("aggregator", "-2")]
    stop_with_wiped_disk(stack, two, until=60_000)
    two = [stack.start("aggregator"), stack.start("aggregator", "-2")]
    workers = [ingest, *two]
    stack.wait_for_lag_0(AGGREGATOR, alive=workers)
    return workers


def stop_with_wiped_disk(stack: Stack, workers: list[Child], until: int) -> None:
    def done() -> int:
        words = sum(stack.committed(AGGREGATOR, WORDS).values())
        assert words < 200_000, "all is counted already: this was no half-way"
        return words

    wait_until(
        lambda: done() >= until and all(stack.processed(worker.name) for worker in workers),
        lambda: f"{until} words, it is {done()}, and that each worker has a part in it",
        alive=workers,
    )
    stack.stop(*workers)
    stack.wipe()
