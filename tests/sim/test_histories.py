"""Histories by seed: whatever happens to workers and cluster, the counts are right in the end."""

import pytest
from tests.sim.history import simulate

SEEDS = range(40)
GUARANTEES = ("at_least_once", "exactly_once_v2")


@pytest.mark.parametrize("guarantee", GUARANTEES)
@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_happens_the_counts_are_right(seed: int, guarantee: str) -> None:
    simulate(seed, guarantee)


@pytest.mark.parametrize("guarantee", GUARANTEES)
@pytest.mark.parametrize("seed", SEEDS)
def test_clean_stops_and_rebalances_count_nothing_twice(seed: int, guarantee: str) -> None:
    simulate(seed, guarantee, gentle=True)
