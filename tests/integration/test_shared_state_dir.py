"""P14: instances, and processes of one instance, share a state folder without trouble."""

from tests.integration import storms
from tests.integration.harness import Stack


def test_moves_and_a_kill_in_one_state_folder(stack: Stack) -> None:
    storms.moved_in_one_state_folder(stack, threads=2, moves=2)
