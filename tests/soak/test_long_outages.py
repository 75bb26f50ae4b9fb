"""The outages of the field reports at their full length."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.integration import database_outages, outages
from tests.integration.conftest import MakeStack, stacks, table

if TYPE_CHECKING:
    from devstack.kafka import Broker
    from devstack.postgres import Database

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


@pytest.mark.postgres
def test_no_database_for_2_min(broker: "Broker", tmp_path: Path, stacks: MakeStack) -> None:
    from devstack.postgres import Database  # noqa: PLC0415 - it takes its time

    with Database(tmp_path / "postgres") as server:
        stack = stacks(broker, database_url=server.url)
        database_outages.server_restarted(stack, server, "kill", away_s=120)


def test_a_database_that_is_read_only_for_2_min(
    broker: "Broker", database: "Database", stacks: MakeStack, table: str
) -> None:
    database_outages.read_only(stacks(broker, database_url=table), database, away_s=120)
