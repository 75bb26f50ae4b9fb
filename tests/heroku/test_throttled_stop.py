"""A worker that is stopped while a quota holds it back: what waits is committed in time."""

import re
import time
from random import Random

from tests.integration.harness import (
    AGGREGATOR,
    CHANGELOG,
    COUNTS,
    REPARTITION,
    WORDS,
    Stack,
    difference,
    line,
    recount,
    wait_until,
)

from devstack.heroku.sandbox import Sandbox
from devstack.processes import Child

WORD_COUNT = 40_000
"""All of them different and long: some 15 MB of changes, and a minute of the quota."""
SETTINGS = {
    "STREAMCORE_COMMIT_INTERVAL_MS": "60000",
    "STREAMCORE_METRICS_LOG_INTERVAL_MS": "1000",
}
STOPPED_AT = 8_000
"""So many have used up what the quota lets pass at once."""
HELD_BACK_MS = 1_000
"""For more than this the worker is held back, by its own log, before it is stopped."""


def test_a_stop_while_throttled_changes_no_count(heroku: Sandbox, stack: Stack) -> None:
    for topic in (WORDS, COUNTS, REPARTITION, CHANGELOG):
        compaction = " --compaction" if topic == CHANGELOG else ""
        heroku.run(f"kafka:topics:create {topic} --partitions 4 --retention-time 49h{compaction}")
    heroku.run("kafka:consumer-groups:create aggregator-app")
    random, now_ms = Random(3), time.time_ns() // 1_000_000
    words = [line(n % 4, now_ms, random.randbytes(30).hex()) for n in range(WORD_COUNT)]
    stack.produce(WORDS, words)
    heroku.throttle(on=True)
    # A long interval does no harm: little may wait until it is known that more goes through.
    child = stack.start("aggregator", **SETTINGS)
    wait_until(lambda: stack.processed("aggregator") >= STOPPED_AT, "rows", alive=[child])
    wait_until(
        lambda: held_back_ms(child) > HELD_BACK_MS,
        lambda: f"the log to tell that the quota holds it back; told: {held_back_ms(child)} ms",
        alive=[child],
    )
    stack.stop(child)
    left = [topic for topic, _ in stack.lag(AGGREGATOR)]
    assert WORDS in left, "all was done before the stop: nothing was held back any more"
    heroku.throttle(on=False)
    child = stack.start("aggregator")
    stack.wait_for_lag_0(AGGREGATOR, alive=[child])
    stack.stop(child)
    assert difference(recount(words), stack.counts_in_topic()) == {}


def held_back_ms(child: Child) -> int:
    """Return for how long, by the lines that tell its metrics: each tells what came to the last."""
    return sum(map(int, re.findall(r"count#streamcore\.throttle_ms=(\d+)", child.tail(10_000))))
