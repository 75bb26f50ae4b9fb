"""The sink as a process, when the database goes away and when its topic is made anew."""

import signal
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import psycopg
from tests.integration.conftest import MakeStack
from tests.integration.harness import COUNTS, SINK, Record, Stack, pause_s, wait_until

from devstack.processes import Child

if TYPE_CHECKING:
    from devstack.kafka import Broker
    from devstack.postgres import Database

SESSION_TIMEOUT_S = 6


def counted(word: str, count: int, partition: int = 0) -> Record:
    return Record(partition, 1_000, struct.pack(">q", count), word.encode() + bytes(8))


def members(stack: Stack) -> list[str]:
    """Return the ids of the sink's group members."""
    group = stack.name(SINK)
    described = stack.admin.describe_consumer_groups([group])[group].result(timeout=20)
    return sorted(member.member_id for member in described.members)


def wait_for(stack: Stack, sink: Child, **wanted: int) -> None:
    """Wait until the table holds these counts, and the group their offsets."""
    counts = {(word, 0): number for word, number in wanted.items()}
    wait_until(
        lambda: stack.counts_in_database() == counts,
        lambda: f"{counts}, they are {stack.counts_in_database()}",
        alive=[sink],
    )
    stack.wait_for_lag_0(SINK, alive=[sink])


@contextmanager
def away(database: "Database", url: str) -> Iterator[None]:
    """Break the connections to one database of the server and let nobody in."""
    name = url.rpartition("/")[2]
    with psycopg.connect(database.url, autocommit=True) as connection:
        connection.execute(f"alter database {name} allow_connections false")
        connection.execute(
            f"select pg_terminate_backend(pid) from pg_stat_activity where datname = '{name}'"
        )
        yield
        connection.execute(f"alter database {name} allow_connections true")


def test_a_database_that_is_away_costs_neither_the_membership_nor_a_row(
    broker: "Broker", database: "Database", stacks: MakeStack, table: str
) -> None:
    stack = stacks(broker, database_url=table)
    stack.settings |= {
        "STREAMCORE_COMMIT_INTERVAL_MS": "200",
        "STREAMCORE_SESSION_TIMEOUT_MS": f"{SESSION_TIMEOUT_S}000",
    }
    stack.create(COUNTS, partitions=2)
    stack.migrate()
    stack.produce(COUNTS, [counted("cat", 1), counted("dog", 1, partition=1)])
    sink = stack.start("sink")
    wait_for(stack, sink, cat=1, dog=1)
    before = members(stack)
    with away(database, table):
        stack.produce(COUNTS, [counted("cat", 2), counted("emu", 1, partition=1)])
        pause_s(SESSION_TIMEOUT_S + 2)
        assert sink.returncode is None, sink.tail(40)
        stack.produce(COUNTS, [counted("cat", 3), counted("dog", 2, partition=1)])
        assert members(stack) == before
        assert sum(stack.lag(SINK).values()) == 4
    wait_for(stack, sink, cat=3, dog=2, emu=1)
    assert members(stack) == before
    stack.stop(sink)


def test_a_worker_that_is_told_to_stop_while_the_database_is_away_stops_in_time(
    broker: "Broker", database: "Database", stacks: MakeStack, table: str
) -> None:
    stack = stacks(broker, database_url=table)
    stack.settings["STREAMCORE_SHUTDOWN_TIMEOUT_MS"] = "6000"
    stack.create(COUNTS, partitions=1)
    stack.migrate()
    stack.produce(COUNTS, [counted("cat", 1)])
    sink = stack.start("sink")
    wait_for(stack, sink, cat=1)
    with away(database, table):
        stack.produce(COUNTS, [counted("cat", 2)])
        wait_until(lambda: "is away" in sink.tail(40), "word of the outage", alive=[sink])
        sink.send(signal.SIGTERM)
        assert sink.wait(12), f"it goes on:\n{sink.tail(40)}"
    again = stack.start("sink", "-2")
    wait_for(stack, again, cat=2)
    stack.stop(again)


def test_counts_of_a_topic_made_anew_win(broker: "Broker", stacks: MakeStack, table: str) -> None:
    stack = stacks(broker, database_url=table)
    stack.settings["STREAMCORE_COMMIT_INTERVAL_MS"] = "200"
    stack.create(COUNTS, partitions=1)
    stack.migrate()
    stack.produce(COUNTS, [counted("cat", number) for number in range(1, 21)])
    sink = stack.start("sink")
    wait_for(stack, sink, cat=20)
    stack.stop(sink)
    stack.admin.delete_topics([stack.name(COUNTS)])[stack.name(COUNTS)].result(timeout=20)
    wait_until(lambda: not stack.partitions(COUNTS), "the end of the topic")
    stack.create(COUNTS, partitions=1)
    stack.produce(COUNTS, [counted("cat", 1), counted("dog", 5)])
    again = stack.start("sink", "-2")
    wait_for(stack, again, cat=1, dog=5)
    stack.stop(again)
