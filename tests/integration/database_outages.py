"""The database is away, or can only be read: the sink waits it out, and stays in its group."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import psycopg
from tests.integration import trials
from tests.integration.harness import COUNTS, SINK, Stack, pause_s, wait_until
from tests.integration.stops import counted

from devstack.processes import Child

if TYPE_CHECKING:
    from devstack.postgres import Database


def running(stack: Stack, **settings: str) -> Child:
    stack.settings |= {
        "STREAMCORE_COMMIT_INTERVAL_MS": "200",
        "STREAMCORE_SESSION_TIMEOUT_MS": "3000",
        **settings,
    }
    stack.create(COUNTS, partitions=1)
    stack.migrate()
    stack.produce(COUNTS, [counted("ant", 1), counted("bee", 1)])
    sink = stack.start("sink", "-a")
    wait_for(stack, sink, ant=1, bee=1)
    return sink


def wait_for(stack: Stack, *sinks: Child, **wanted: int) -> None:
    """Wait until the table holds just these counts, and the group their offsets."""
    counts = {(word, 0): number for word, number in wanted.items()}
    wait_until(
        lambda: stack.counts_in_database() == counts,
        lambda: f"{counts}, they are {stack.counts_in_database()}",
        alive=sinks,
    )
    stack.wait_for_lag_0(SINK, alive=sinks)


def server_restarted(stack: Stack, server: "Database", ends: str, away_s: float) -> None:
    sink = running(stack)
    before = trials.members(stack, SINK)
    end: Callable[[], Any] = getattr(server, ends)
    stack.produce(COUNTS, [counted("ant", 2)])
    end()
    stack.produce(COUNTS, [counted("ant", 3), counted("cow", 1)])
    wait_until(lambda: "is away" in sink.tail(40), "word of the outage", alive=[sink])
    pause_s(away_s)
    server.start()
    wait_for(stack, sink, ant=3, bee=1, cow=1)
    assert trials.members(stack, SINK) == before
    stack.stop(sink)


def read_only(stack: Stack, server: "Database", away_s: float) -> None:
    sink = running(stack)
    before = trials.members(stack, SINK)
    name = stack.database_url.rpartition("/")[2]
    sessions = f"select pg_terminate_backend(pid) from pg_stat_activity where datname = '{name}'"
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute(f"alter database {name} set default_transaction_read_only = on")
        connection.execute(sessions)  # the setting is for new sessions
        stack.produce(COUNTS, [counted("ant", 2), counted("cow", 1)])
        wait_until(lambda: "read-only" in sink.tail(40), "word of it", alive=[sink])
        pause_s(away_s)
        assert stack.counts_in_database() == {("ant", 0): 1, ("bee", 0): 1}
        assert sum(stack.lag(SINK).values()) == 2
        connection.execute(f"alter database {name} set default_transaction_read_only = off")
        connection.execute(sessions)
    wait_for(stack, sink, ant=2, bee=1, cow=1)
    assert trials.members(stack, SINK) == before
    stack.stop(sink)
