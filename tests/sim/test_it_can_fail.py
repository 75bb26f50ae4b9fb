"""The simulation can fail: it finds each bug that somebody plants, within its 300 seeds."""

import pytest
from tests.sim.checks import ViolationError
from tests.sim.history import History, quietly
from tests.sim.planted import BUGS

SEEDS = 300
BUGS_LEAST = 15


def test_there_are_bugs_enough() -> None:
    assert len(BUGS) >= BUGS_LEAST


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(bug: str) -> None:
    """Found means a violation; an engine that breaks by itself proves nothing."""
    quietly()
    with BUGS[bug]():
        violations = (History(seed).failure() for seed in range(SEEDS))
        found = any(isinstance(violation, ViolationError) for violation in violations)
    assert found, f"{bug} was not found in {SEEDS} seeds"
