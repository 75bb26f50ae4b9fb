"""P06, and P04 under faults: no restore, however long, costs a membership or begins again."""

from tests.integration import restores
from tests.integration.harness import Stack


def test_a_restore_of_three_poll_intervals_with_a_second_worker_half_way(stack: Stack) -> None:
    restores.slow_restore_keeps_membership(
        stack, entries=20_000, max_poll_interval_ms=3_000, session_timeout_ms=3_000
    )


def test_holes_and_markers_while_members_come_and_go(stack: Stack) -> None:
    restores.holes_and_markers_while_members_change(stack, changes=2)
