"""Field reports at their full length: numbers, waits and repetitions as they are written down."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.integration import idle, kills, lags, meetings, restores, stops, storms
from tests.integration.conftest import MakeStack, stack, stacks, table
from tests.integration.harness import Stack

if TYPE_CHECKING:
    from devstack.kafka import Broker

__all__ = ["stack", "stacks", "table"]

pytestmark = pytest.mark.long


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_twenty_changes_one_a_second(stack: Stack, guarantee: str) -> None:
    storms.a_change_a_second(stack, guarantee, changes=20, words_a_second=500, work_ms=5)


def test_a_restore_of_300_000_entries_in_three_poll_intervals(stack: Stack) -> None:
    restores.slow_restore_keeps_membership(
        stack, entries=300_000, max_poll_interval_ms=10_000, session_timeout_ms=6_000
    )


def test_holes_and_markers_while_six_members_come_and_go(stack: Stack) -> None:
    restores.holes_and_markers_while_members_change(stack, changes=6)


@pytest.mark.parametrize("seed", range(3))
def test_six_kills_in_100_000_words(stack: Stack, seed: int) -> None:
    kills.killed_again_and_again(stack, seed=seed, records=100_000, kills=6)


def test_kills_at_each_step_of_a_commit_again_and_again(stack: Stack) -> None:
    kills.killed_at_the_worst_moments(stack, kills.MOMENTS * 3)


def test_five_moves_in_one_state_folder(stack: Stack) -> None:
    storms.moved_in_one_state_folder(stack, threads=2, moves=5)


def test_a_lock_that_outlasts_the_drain(broker: "Broker", stacks: MakeStack, table: str) -> None:
    stops.flush_that_cannot_end(
        stacks(broker, database_url=table), locked_s=60, budget_s=stops.GIVES_UP_WITHIN_S
    )


def test_a_full_queue_for_20_s_while_the_group_changes(tmp_path: Path, stacks: MakeStack) -> None:
    meetings.full_queue_while_the_group_changes(tmp_path, stacks, frozen_s=20)


def test_a_worker_killed_while_the_broker_is_away_for_5_min(
    tmp_path: Path, stacks: MakeStack
) -> None:
    meetings.killed_while_the_broker_is_away(tmp_path, stacks, away_s=300)


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_lag_is_told_by_its_owner_alone_and_not_by_50_000_words(
    stack: Stack, guarantee: str
) -> None:
    lags.metrics_follow_their_partitions(stack, guarantee, words=50_000)


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_ten_minutes_without_input(
    broker: "Broker", stacks: MakeStack, table: str, guarantee: str
) -> None:
    idle.idle_services(
        stacks(broker, database_url=table),
        guarantee,
        warm_up_s=60,
        idle_s=600,
        growth_bytes=idle.GROWTH_BYTES_MAX,
    )
