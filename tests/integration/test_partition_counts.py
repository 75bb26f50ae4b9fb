"""P09: topics whose partition counts do not match stop the worker, with both names and counts."""

import time

import pytest
from confluent_kafka.admin import NewPartitions  # type: ignore[attr-defined]  # not in its __all__
from tests.integration import trials
from tests.integration.harness import (
    AGGREGATOR,
    CHANGELOG,
    COUNTS,
    REPARTITION,
    WORDS,
    Stack,
    line,
    recount,
    wait_until,
)

STOPS_WITHIN_S = 30
LOOKS_EVERY_S = 30  # at the counts, in mid-run


@pytest.fixture(autouse=True)
def _six_partitions(stack: Stack) -> None:
    stack.settings = {"STREAMCORE_COMMIT_INTERVAL_MS": "200", "AGGREGATOR_RETENTION_MS": "3600000"}
    stack.create(WORDS, COUNTS, partitions=6)


def test_a_changelog_made_by_hand_with_another_count_is_refused_at_the_start(stack: Stack) -> None:
    stack.create(REPARTITION, partitions=6)
    stack.create(CHANGELOG, partitions=4, cleanup_policy="compact")
    stack.produce(WORDS, [line(number % 6, 1_000, f"w{number}") for number in range(60)])
    began = time.monotonic()
    worker = stack.start("aggregator")
    assert worker.wait(STOPS_WITHIN_S), worker.tail(40)
    assert time.monotonic() - began < STOPS_WITHIN_S
    assert worker.returncode not in (0, None)
    told = worker.tail(20)
    assert "Traceback" not in told
    for part in (f"{stack.name(CHANGELOG)} has 4 partitions", "must have 6", "words has 6"):
        assert part in told
    assert stack.committed(AGGREGATOR, WORDS, REPARTITION) == {}
    assert stack.read(COUNTS) == []


def test_a_repartition_topic_that_grows_in_mid_run_stops_the_worker(stack: Stack) -> None:
    # The client looks at its topics every 5 minutes by default, we at the counts every 30 s.
    stack.settings["AGGREGATOR_KAFKA_SETTINGS"] = (
        '{"consumer.topic.metadata.refresh.interval.ms": 1000}'
    )
    words = [line(number % 6, 1_000, f"w{number % 50}") for number in range(60)]
    stack.produce(WORDS, words)
    worker = stack.start("aggregator")
    stack.wait_for_lag_0(AGGREGATOR, alive=[worker])

    def feed(turn: int) -> None:
        more = [line(n % 6, 1_000 + 10 * turn, f"w{(n + turn) % 50}") for n in range(60)]
        stack.produce(WORDS, more)
        words.extend(more)

    with trials.fed(feed, every_s=0.1):
        wait_until(lambda: len(words) > 300, "records to flow", alive=[worker])
        grown = stack.name(REPARTITION)
        stack.admin.create_partitions([NewPartitions(grown, 8)])[grown].result(timeout=20)
        assert worker.wait(LOOKS_EVERY_S + 15), worker.tail(40)
    assert worker.returncode not in (0, None)
    told = worker.tail(20)
    assert f"{grown} had 6 partitions and has 8" in told, told
    assert "Traceback" not in told
    ends = stack.ends(REPARTITION)
    assert [ends[REPARTITION, number] for number in (6, 7)] == [0, 0], "a key went elsewhere"
    # Each key was counted in one place, and never more often than it came.
    partitions_of = {record.key[:-12]: set[int]() for record in stack.read(CHANGELOG) if record.key}
    for record in stack.read(CHANGELOG):
        assert record.key is not None
        partitions_of[record.key[:-12]].add(record.partition)
    assert {word: found for word, found in partitions_of.items() if len(found) != 1} == {}
    truth = recount(words)
    counted = stack.counts_in_changelog()
    assert counted
    assert {key: n for key, n in counted.items() if n > truth[key]} == {}
