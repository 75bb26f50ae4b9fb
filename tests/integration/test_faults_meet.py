"""P17 and P18 again, while another fault is under way: a full queue in a rebalance, a kill while
the broker is away.
"""

from pathlib import Path

import pytest
from tests.integration import meetings
from tests.integration.conftest import MakeStack

pytestmark = pytest.mark.broker


def test_a_full_queue_while_the_group_changes(tmp_path: Path, stacks: MakeStack) -> None:
    meetings.full_queue_while_the_group_changes(tmp_path, stacks, frozen_s=6)


def test_a_worker_killed_while_the_broker_is_away(tmp_path: Path, stacks: MakeStack) -> None:
    meetings.killed_while_the_broker_is_away(tmp_path, stacks, away_s=4)
