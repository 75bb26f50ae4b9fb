"""The simulation can fail: it finds each bug that somebody plants, within its 300 seeds."""

import pytest
from tests.sim.history import quietly, simulate
from tests.sim.planted import BUGS

SEEDS = 300


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(bug: str) -> None:
    quietly()
    with BUGS[bug]():
        found = next((seed for seed in range(SEEDS) if _fails(seed)), None)
    assert found is not None, f"{bug} was not found in {SEEDS} seeds"


def _fails(seed: int) -> bool:
    try:
        simulate(seed)
    except Exception:
        return True
    return False
