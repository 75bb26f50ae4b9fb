"""P05: commits while the group changes all the time end no worker, lose nothing, double nothing."""

import pytest
from tests.integration import storms
from tests.integration.harness import Stack


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_a_change_a_second(stack: Stack, guarantee: str) -> None:
    storms.a_change_a_second(stack, guarantee, changes=8, words_a_second=100, work_ms=5)
