"""P08: a changelog that was deleted and made anew replaces the local store, with one warning."""

import struct

from tests.integration import trials
from tests.integration.harness import (
    AGGREGATOR,
    CHANGELOG,
    COUNTS,
    WORDS,
    Record,
    Stack,
    line,
    wait_until,
)

UNFIT = "the local store does not fit its changelog and is rebuilt"
WRITTEN = 5_000


def entry(word: str, count: int, start_ms: int = 0) -> Record:
    """Return a changelog record: word, start, sequence -> count."""
    key = word.encode() + struct.pack(">qi", start_ms, 0)
    return Record(0, start_ms + 1, struct.pack(">q", count), key)


def prepared(stack: Stack, partitions: int) -> None:
    stack.settings = {
        "STREAMCORE_COMMIT_INTERVAL_MS": "100",
        "STREAMCORE_SESSION_TIMEOUT_MS": "3000",
        "AGGREGATOR_RETENTION_MS": "3600000",
    }
    stack.create(WORDS, COUNTS, partitions=partitions)


def test_a_store_ahead_of_a_changelog_made_anew_is_discarded(stack: Stack) -> None:
    prepared(stack, partitions=1)
    stack.produce(WORDS, [line(0, 1_000, f"old{number}") for number in range(WRITTEN)])
    worker = stack.start("aggregator")
    stack.wait_for_lag_0(AGGREGATOR, alive=[worker])
    stack.stop(worker)
    assert stack.ends(CHANGELOG)[CHANGELOG, 0] >= WRITTEN

    name = stack.name(CHANGELOG)
    stack.admin.delete_topics([name])[name].result(timeout=20)
    wait_until(lambda: not stack.partitions(CHANGELOG), "the end of the topic")
    stack.create(CHANGELOG, partitions=1, cleanup_policy="compact")
    stack.produce(CHANGELOG, [entry(f"hand{number}", 100 + number) for number in range(10)])
    by_hand = {(f"hand{number}", 0): 100 + number for number in range(10)}

    again = stack.start("aggregator", "-2")
    stack.produce(WORDS, [line(0, 2_000, "hand3"), line(0, 2_000, "old3")])
    stack.wait_for_lag_0(AGGREGATOR, alive=[again])
    stack.stop(again)
    assert again.tail(10_000).count(UNFIT) == 1, again.tail(40)
    assert name in again.tail(10_000)
    wanted = by_hand | {("hand3", 0): 104, ("old3", 0): 1}
    assert stack.counts_in_changelog() == wanted
    assert trials.counts_in_stores(stack) == wanted
    found = stack.counts_in_topic()
    assert (found["hand3", 0], found["old3", 0]) == (104, 1)


def test_rebalances_discard_no_store(stack: Stack) -> None:
    prepared(stack, partitions=2)
    stack.produce(WORDS, [line(n % 2, 1_000, f"w{n % 40}") for n in range(400)])
    stays = stack.start("aggregator", "-stays")
    stack.wait_for_lag_0(AGGREGATOR, alive=[stays])
    for turn in range(2):
        other = stack.start("aggregator", f"-other{turn}")
        trials.wait_for_one_owner_each(stack, 4, stays, other)
        stack.produce(WORDS, [line(n % 2, 1_000, f"w{n % 40}") for n in range(400)])
        stack.wait_for_lag_0(AGGREGATOR, alive=[stays, other])
        stack.stop(other)
        trials.wait_for_one_owner_each(stack, 4, stays)
    stack.stop(stays)
    for child in stack.children:
        assert UNFIT not in child.tail(10_000), child.tail(60)
        assert "set aside" not in child.tail(10_000), child.tail(60)
    trials.assert_exact(stack, {(f"w{n}", 0): 30 for n in range(40)})
