"""The three services as processes: the same counts wherever one looks, and a plain recount."""

import random

import pytest
from tests.integration.conftest import MakeStack
from tests.integration.harness import (
    AGGREGATOR,
    COUNTS,
    INGEST,
    LINES,
    SINK,
    WORDS,
    Record,
    Stack,
    difference,
    line,
    recount,
    wait_until,
    words_in,
)

BASE_MS = 1_700_000_000_000
TEXTS = (
    "the quick brown fox",
    "Don\u2019t count the THE twice, don't!",
    "",
    "a a a b",
    "it's the end: 42",
)
SERVICES = (INGEST, AGGREGATOR, SINK)


def some_lines(seed: int, partitions: int = 4, each: int = 250) -> list[Record]:
    """Return lines over two minutes, one in ten out of order, by up to 15 s."""
    chance = random.Random(seed)
    lines: list[Record] = []
    for partition in range(partitions):
        now_ms = BASE_MS + 7_000 * partition
        for _ in range(each):
            now_ms += chance.randrange(1_000)
            back_ms = chance.randrange(15_000) if chance.random() < 0.1 else 0
            lines.append(line(partition, now_ms - back_ms, chance.choice(TEXTS)))
    return lines


@pytest.mark.parametrize(
    ("guarantee", "grace_ms"), [("at_least_once", 0), ("exactly_once_v2", 2_000)]
)
def test_the_same_numbers_everywhere_and_nothing_is_read_twice(
    broker: object, stacks: MakeStack, table: str, guarantee: str, grace_ms: int
) -> None:
    stack = stacks(broker, database_url=table)
    stack.settings = {
        "STREAMCORE_PROCESSING_GUARANTEE": guarantee,
        "STREAMCORE_COMMIT_INTERVAL_MS": "200",
        "GRACE_MS": str(grace_ms),
    }
    stack.create(LINES, WORDS, COUNTS)
    stack.migrate()
    lines = some_lines(seed=grace_ms)
    stack.produce(LINES, lines[: len(lines) // 2])
    children = [stack.start(service) for service in ("ingest", "aggregator", "sink")]
    stack.produce(LINES, lines[len(lines) // 2 :])
    stack.wait_for_lag_0(*SERVICES, alive=children)

    wanted = recount(lines, grace_ms=grace_ms)
    late = sum(recount(lines, grace_ms=60_000).values()) - sum(wanted.values())
    assert late > 0, "no line is late: the test proves nothing"
    assert_equal_everywhere(stack, wanted)
    assert stack.dropped("aggregator").get("late") == late

    stack.stop(*children)
    more = [line(0, BASE_MS + 400_000 + number, "once more") for number in range(5)]
    stack.produce(LINES, more)
    children = [stack.start(service) for service in ("ingest", "aggregator", "sink")]
    stack.wait_for_lag_0(*SERVICES, alive=children)
    assert_equal_everywhere(stack, recount([*lines, *more], grace_ms=grace_ms))
    # 5 lines; 10 words, each again behind the repartition topic.
    wait_until(lambda: stack.processed("ingest") == 5, lambda: str(stack.processed("ingest")))
    wait_until(
        lambda: stack.processed("aggregator") == 20, lambda: str(stack.processed("aggregator"))
    )
    stack.stop(*children)


def assert_equal_everywhere(stack: Stack, wanted: dict[tuple[str, int], int]) -> None:
    assert difference(wanted, stack.counts_in_topic()) == {}
    assert difference(wanted, stack.counts_in_changelog()) == {}
    assert difference(wanted, stack.counts_in_database()) == {}


def test_the_recount_splits_as_the_texts_say() -> None:
    assert words_in(TEXTS[1]) == ["don't", "count", "the", "the", "twice", "don't"]
    assert words_in(TEXTS[4]) == ["it's", "the", "end", "42"]
