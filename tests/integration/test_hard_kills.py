"""P07: no hard kill costs or adds a unit under exactly-once."""

from tests.integration import kills
from tests.integration.harness import Stack


def test_kills_at_chance_moments_with_the_disk_kept_or_lost(stack: Stack) -> None:
    kills.killed_again_and_again(stack, seed=7, records=10_000, kills=6)


def test_a_kill_at_each_step_of_a_commit(stack: Stack) -> None:
    kills.killed_at_the_worst_moments(stack)
