"""What the services do for the broker: repartition topics do not grow for ever."""

import pytest
from tests.integration.harness import (
    AGGREGATOR,
    COUNTS,
    REPARTITION,
    WORDS,
    Stack,
    line,
    wait_until,
)


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_repartition_topics_are_purged_behind_committed_offsets(
    stack: Stack, guarantee: str
) -> None:
    stack.settings = {
        "STREAMCORE_PROCESSING_GUARANTEE": guarantee,
        "STREAMCORE_COMMIT_INTERVAL_MS": "100",
        "STREAMCORE_REPARTITION_PURGE_INTERVAL_MS": "300",
    }
    stack.create(WORDS, COUNTS, partitions=2)
    stack.produce(WORDS, [line(n % 2, 1_000 + n, f"w{n % 20}") for n in range(2_000)])
    worker = stack.start("aggregator")
    stack.wait_for_lag_0(AGGREGATOR, alive=[worker])

    def purged() -> bool:
        lowest = stack.ends(REPARTITION, latest=False)
        committed = stack.committed(AGGREGATOR, REPARTITION)
        assert all(at <= committed.get(tp, 0) for tp, at in lowest.items())
        return all(at == committed.get(tp) for tp, at in lowest.items())

    wait_until(purged, lambda: str(stack.ends(REPARTITION, latest=False)), alive=[worker])
    assert min(stack.ends(REPARTITION, latest=False).values()) > 0
    stack.stop(worker)
    assert sum(stack.counts_in_topic().values()) == 2_000
