"""What is promised of takeovers, rebalances and exactly-once; a figure beyond it fails the run."""

import pytest

from benchmarks.bounds import dear_guarantee, long_gaps, slow_takeovers, verdict
from benchmarks.moves import Move


def move(took_over_s: float = 0.0, idle_s: float = 0.0, stayed_s: float = 0.0) -> Move:
    return Move(took_over_s, idle_s, stayed_s, normal_s=0.1, moved=2, stayed=2)


def test_a_takeover_may_take_the_session_and_two_seconds() -> None:
    assert slow_takeovers("k", [move(7.0), move(8.0)], 6_000) == []
    assert slow_takeovers("k", [move(7.0), move(8.01)], 6_000) == [
        "k: the takeover took 8.01 s, the bound is 8.00 s"
    ]


@pytest.mark.parametrize("event", ["term", "back", "scale"])
def test_a_task_that_moves_may_stand_still_for_two_seconds(event: str) -> None:
    assert long_gaps("k", {event: [move(idle_s=2.0)]}) == []
    assert long_gaps("k", {event: [move(idle_s=0.1), move(idle_s=2.01)]}) == [
        f"k {event}: the gap of a task that moved took 2.01 s, the bound is 2.00 s"
    ]


def test_without_a_standby_who_ends_leaves_what_has_to_be_restored() -> None:
    assert long_gaps("k", {"down": [move(idle_s=9.0)]}) == []


@pytest.mark.parametrize("event", ["term", "back", "scale", "down"])
def test_a_task_that_stays_may_stand_still_for_half_a_second(event: str) -> None:
    assert long_gaps("k", {event: [move(stayed_s=0.5)]}) == []
    assert long_gaps("k", {event: [move(stayed_s=0.51)]}) == [
        f"k {event}: the gap of a task that stayed took 0.51 s, the bound is 0.50 s"
    ]


def test_exactly_once_may_cost_a_fifth() -> None:
    assert dear_guarantee(100_000, 80_000) == []
    assert dear_guarantee(100_000, 79_900) == [
        "exactly_once_v2 leaves 0.799 of the rate, the bound is 0.80"
    ]


@pytest.mark.parametrize(
    ("broken", "said"), [([], ""), (["a", "b"], "takeover: beyond the bound: a; b")]
)
def test_all_that_is_broken_is_said_in_one_line(broken: list[str], said: str) -> None:
    assert verdict("takeover", broken) == said
