"""Field report P24, short: lag is told by the owner of a partition and by nobody else."""

import os
import re
import signal

import pytest
from tests.integration import lags
from tests.integration.harness import COUNTS, WORDS, Stack, wait_until


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_metrics_follow_their_partitions(stack: Stack, guarantee: str) -> None:
    lags.metrics_follow_their_partitions(stack, guarantee, words=3_000)


def test_of_two_workers_under_one_parent_too_also_when_one_is_replaced(stack: Stack) -> None:
    stack.settings |= {
        "STREAMCORE_NUM_STREAM_THREADS": "2",
        "STREAMCORE_WORKER_FAILURE": "replace",
        "STREAMCORE_SESSION_TIMEOUT_MS": "3000",
        "STREAMCORE_COMMIT_INTERVAL_MS": "200",
    }
    stack.create(WORDS, COUNTS, partitions=lags.PARTITIONS)
    parent = stack.start("aggregator")
    with lags.lag_held(stack, rows=3):
        held = lags.PARTITIONS * 3
        wait_until(
            lambda: workers_that_tell(stack, parent.name) == {"1", "2"}, "both", alive=[parent]
        )
        lags.wait_until_told(stack, [parent], held=held)
        found = re.findall(r"worker process started +pid=(\d+) worker=2", parent.tail(10_000))
        os.kill(int(found[-1]), signal.SIGKILL)
        wait_until(
            lambda: (
                lags.lags_told(stack, parent.name)
                and stack.metrics(parent.name)["streamcore_workers_replaced_total"] == 1
                and workers_that_tell(stack, parent.name) == {"1", "2"}
            ),
            "a replacement with a share",
            alive=[parent],
        )
        lags.wait_until_told(stack, [parent], held=held)
    stack.stop(parent)


def workers_that_tell(stack: Stack, name: str) -> set[str]:
    """Return the numbers of the worker processes that tell of lag."""
    told = " ".join(series for series in stack.metrics(name) if "lag_records" in series)
    return set(re.findall(r'topic="[^"]+",worker="(\d+)"', told))
