"""The outages of the field reports at their full length."""

from pathlib import Path

import pytest
from tests.integration import outages
from tests.integration.conftest import MakeStack, stacks, table

__all__ = ["stacks", "table"]

pytestmark = [pytest.mark.broker, pytest.mark.long]


def test_a_broker_frozen_for_20_s(tmp_path: Path, stacks: MakeStack) -> None:
    outages.frozen_while_forwarding(tmp_path, stacks, frozen_s=20)


def test_no_broker_for_60_s_and_again_for_5_min(
    tmp_path: Path,
    stacks: MakeStack,
    table: str,
) -> None:
    outages.away_at_the_start_and_in_mid_run(tmp_path, stacks, table, start_s=60, mid_s=300)
