"""The sink as a process when the database restarts, is read-only, deadlocks; and a frozen owner.

Nothing is lost, nothing is written twice, and nobody ends because of it.
"""

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest
from tests.integration import database_outages, stops, trials
from tests.integration.conftest import MakeStack
from tests.integration.database_outages import running, wait_for
from tests.integration.harness import COUNTS, SINK, Stack, wait_until
from tests.integration.stops import counted

from devstack.processes import Child

if TYPE_CHECKING:
    from devstack.postgres import Database


@pytest.fixture
def with_table(broker: object, stacks: MakeStack, table: str) -> Stack:
    return stacks(broker, database_url=table)


@pytest.fixture
def own_database(tmp_path: Path) -> "Iterator[Database]":
    from devstack.postgres import Database  # noqa: PLC0415 - it takes its time

    with Database(tmp_path / "postgres") as running_one:
        yield running_one


@pytest.mark.postgres
@pytest.mark.parametrize("ends", ["stop", "kill"])
def test_a_database_server_that_is_restarted(
    broker: object, stacks: MakeStack, own_database: "Database", ends: str
) -> None:
    stack = stacks(broker, database_url=own_database.url)
    database_outages.server_restarted(stack, own_database, ends, away_s=0)


def test_a_read_only_period(database: "Database", with_table: Stack) -> None:
    database_outages.read_only(with_table, database, away_s=0)


def test_a_deadlock_makes_the_batch_be_written_again(with_table: Stack) -> None:
    stack = with_table
    sink = running(stack)
    with psycopg.connect(stack.database_url) as other:
        # Whoever waits for that long looks for a deadlock: the sink, after a second, and not we.
        other.execute("set deadlock_timeout = '60s'")
        other.execute("select * from windowed_counts where word = 'bee' for update")
        stack.produce(COUNTS, [counted("ant", 2), counted("bee", 2)])
        stops.wait_until_held_up(stack, sink)  # it has `ant` and waits for `bee`
        other.execute("select * from windowed_counts where word = 'ant' for update")
        other.rollback()
    wait_for(stack, sink, ant=2, bee=2)
    assert "deadlock detected" in sink.tail(40), sink.tail(40)
    stack.stop(sink)


def noticed(zombie: Child) -> bool:
    """Tell whether it knows that it was put out: by the group, or by another epoch in the table."""
    return " lost " in zombie.tail(60) or "joining anew" in zombie.tail(60)


def test_an_owner_frozen_before_its_commit_writes_nothing_when_it_wakes(with_table: Stack) -> None:
    stack = with_table
    zombie = running(stack, STREAMCORE_COMMIT_INTERVAL_MS="2000")
    stack.produce(COUNTS, [counted("ant", 2), counted("bee", 2)])
    wait_until(lambda: stack.processed("sink-a") == 4, "them to be read", alive=[zombie])
    zombie.send(signal.SIGSTOP)
    assert stack.counts_in_database() == {("ant", 0): 1, ("bee", 0): 1}, "it was faster"
    heir = stack.start("sink", "-b")
    wait_for(stack, heir, ant=2, bee=2)
    stack.produce(COUNTS, [counted("ant", 3)])
    wait_for(stack, heir, ant=3, bee=2)
    zombie.send(signal.SIGCONT)
    wait_until(lambda: noticed(zombie), "it to notice", alive=[zombie, heir])
    wait_until(lambda: len(trials.members(stack, SINK)) == 2, "it to come back", alive=[zombie])
    stack.produce(COUNTS, [counted("bee", 3)])
    wait_for(stack, zombie, heir, ant=3, bee=3)
    stack.stop(zombie, heir)


def test_an_owner_frozen_in_its_transaction_holds_nobody_up_for_long(with_table: Stack) -> None:
    """Its session holds locks; nobody but the server can end it."""
    stack = with_table
    zombie = running(stack)
    with stops.row_locked(stack, "bee", for_s=60):
        stack.produce(COUNTS, [counted("ant", 2), counted("bee", 2)])
        stops.wait_until_held_up(stack, zombie)
        zombie.send(signal.SIGSTOP)
    heir = stack.start("sink", "-b")
    wait_for(stack, heir, ant=2, bee=2)
    stack.produce(COUNTS, [counted("ant", 3)])
    wait_for(stack, heir, ant=3, bee=2)
    zombie.send(signal.SIGCONT)
    wait_until(lambda: len(trials.members(stack, SINK)) == 2, "it to come back", alive=[zombie])
    stack.produce(COUNTS, [counted("bee", 3)])
    wait_for(stack, zombie, heir, ant=3, bee=3)
    stack.stop(zombie, heir)
