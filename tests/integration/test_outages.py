"""A broker that is away or stands still: nothing is lost, and work goes on by itself."""

from pathlib import Path

import pytest
from tests.integration import outages
from tests.integration.conftest import MakeStack

pytestmark = pytest.mark.broker


def test_a_frozen_broker_and_a_full_queue_lose_and_repeat_nothing(
    tmp_path: Path, stacks: MakeStack
) -> None:
    outages.frozen_while_forwarding(tmp_path, stacks, frozen_s=8)


def test_services_wait_for_a_broker_and_survive_its_absence(
    tmp_path: Path, stacks: MakeStack, table: str
) -> None:
    outages.away_at_the_start_and_in_mid_run(tmp_path, stacks, table, start_s=10, mid_s=15)
