"""P15: SIGTERM drains: flush, commit, leave; and gives up in time when that cannot be."""

import pytest
from tests.integration import stops
from tests.integration.conftest import MakeStack
from tests.integration.harness import Stack


@pytest.fixture
def with_table(broker: object, stacks: MakeStack, table: str) -> Stack:
    return stacks(broker, database_url=table)


def test_a_flush_that_takes_12_s_ends_before_it_leaves(with_table: Stack) -> None:
    stops.flush_held_up_for_a_while(with_table, locked_s=12)


def test_a_flush_that_cannot_end_is_given_up_in_time(with_table: Stack) -> None:
    stops.flush_that_cannot_end(with_table, locked_s=60, budget_s=8)


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_an_aggregator_in_the_middle_of_a_batch(stack: Stack, guarantee: str) -> None:
    stops.aggregator_in_the_middle_of_a_batch(stack, guarantee)
