"""The commands of docs/operate.py on real services: they see lag, find wrong counts, begin anew."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.integration.conftest import MakeStack, stacks, table
from tests.integration.harness import (
    AGGREGATOR,
    COUNTS,
    INGEST,
    LINES,
    SINK,
    WORDS,
    Record,
    Stack,
    line,
    wait_until,
)

__all__ = ["stacks", "table"]

OPERATE = Path(__file__).resolve().parents[2] / "docs" / "operate.py"
BASE_MS = 1_700_000_000_000
SERVICES = ("ingest", "aggregator", "sink")
LINE_COUNT = 40


def operate(stack: Stack, *words: str, **variables: str) -> tuple[int, str]:
    """Return exit code and output of one command, in the environment of the services."""
    done = subprocess.run(
        [sys.executable, str(OPERATE), *words],
        env={
            "KAFKA_URL": f"kafka://{stack.bootstrap}",
            "KAFKA_PREFIX": stack.prefix,
            "DATABASE_URL": stack.database_url,
            "STREAMCORE_STATE_DIR": str(stack.state_dir),
            "COLUMNS": "200",
            **variables,
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=60,
    )
    return done.returncode, done.stdout


def run_to_the_end(stack: Stack) -> list[Any]:
    """Start the services, and return them when nobody lags."""
    children = [stack.start(service) for service in SERVICES]
    stack.wait_for_lag_0(INGEST, AGGREGATOR, SINK, alive=children)
    return children


def test_a_wrong_count_is_found_and_counted_anew(
    broker: Any, stacks: MakeStack, table: str
) -> None:
    stack: Stack = stacks(broker, database_url=table)
    code, printed = operate(stack, "create", LINES, WORDS, stack.name(COUNTS))
    made = [f"{stack.name(topic)} is there" for topic in (LINES, WORDS, COUNTS)]
    assert (code, sorted(printed.splitlines())) == (0, sorted(made)), "the prefix is put on once"
    assert operate(stack, "create", LINES)[0] == 0
    # Each line lies in a window of its own, but every tenth comes late.
    lines = [
        line(0, BASE_MS + 10_000 * (n - 5 * (n % 10 == 9)), "to be") for n in range(LINE_COUNT)
    ]
    stack.produce(LINES, lines)
    stack.migrate()

    code, printed = operate(stack, "lag", "ingest")
    assert code == 0, printed
    assert printed.splitlines()[-1].endswith(f"0 members, {LINE_COUNT} records behind")

    children = run_to_the_end(stack)
    wait_until(  # markers come behind the rows that they vouch for
        lambda: operate(stack, "lag", "aggregator")[1].endswith(": 1 members, 0 records behind\n"),
        lambda: operate(stack, "lag", "aggregator")[1],
        alive=children,
    )
    code, printed = operate(stack, "recount")
    assert code == 0, printed
    assert printed == (
        f"{2 * LINE_COUNT - 8} words in {2 * LINE_COUNT - 8} rows, and 8 late words\n"
        "0 rows differ, 0 of them only stored\n"
    )
    code, printed = operate(stack, "reset", "aggregator", "--yes")
    assert (code, "stop all workers first" in printed) == (1, True)
    stack.stop(*children)

    with psycopg.connect(table) as connection:
        connection.execute("update windowed_counts set count = 7 where word = 'to'")
    code, printed = operate(stack, "recount", "--show", "1")
    assert code == 1
    assert f"{LINE_COUNT - 4} rows differ" in printed
    assert f"'to' {BASE_MS}: counted 1, stored 7" in printed

    another = "aggregator-app-2-windowed-counts-changelog"
    stack.create(another)
    told = operate(stack, "reset", "aggregator")
    assert (told[0], another in told[1]) == (0, False), "of another application"
    assert told[1].count("would delete: ") == 4  # group, two topics, folder
    assert operate(stack, "recount")[0] == 1, "telling has changed nothing"
    assert operate(stack, "reset", "aggregator", "--yes") == (
        0,
        told[1].replace("would delete", "deleting"),
    )
    stack.stop(*run_to_the_end(stack))
    assert operate(stack, "recount")[0] == 0


def test_a_sink_that_begins_anew_writes_everything_again(
    broker: Any, stacks: MakeStack, table: str
) -> None:
    stack: Stack = stacks(broker, database_url=table)
    stack.create(LINES, WORDS, COUNTS)
    stack.migrate()
    stack.produce(LINES, [line(0, BASE_MS, "to be")])
    stack.stop(*run_to_the_end(stack))
    with psycopg.connect(table) as connection:
        connection.execute("delete from windowed_counts")
    assert operate(stack, "reset", "sink", "--yes")[0] == 0
    sink = stack.start("sink")
    stack.wait_for_lag_0(SINK, alive=[sink])
    stack.stop(sink)
    assert operate(stack, "recount")[0] == 0


def store(table: str, counts: dict[tuple[str, int], int]) -> None:
    """Put rows into the table, in place of what is there."""
    with psycopg.connect(table) as connection:
        connection.execute("delete from windowed_counts")
        for (word, start_ms), count in counts.items():
            connection.execute(
                "insert into windowed_counts values"
                " (%s, to_timestamp(%s), to_timestamp(%s), %s, now(), 'a', 0, 0)",
                (word, start_ms / 1_000, start_ms / 1_000 + 10, count),
            )


def test_a_topic_that_lost_its_begin_is_judged_as_far_as_it_goes(
    broker: Any, stacks: MakeStack, table: str
) -> None:
    stack: Stack = stacks(broker, database_url=table)
    code, printed = operate(stack, "recount")
    assert (code, printed) == (1, f"recount: missing topics: {stack.name(WORDS)}\n")
    stack.create(WORDS, partitions=2)
    stack.migrate()
    # Partition 0 has a word in each of four windows, partition 1 one in the last of them.
    starts = [BASE_MS + 10_000 * n for n in range(4)]
    stack.produce(WORDS, [*(line(0, at + 5, "be") for at in starts), line(1, starts[3], "to")])
    whole = {**{("be", at): 1 for at in starts}, ("to", starts[3]): 1}
    store(table, whole)
    assert operate(stack, "recount")[0] == 0

    stack.delete_records({(WORDS, 0): 2})  # the third window is held, but perhaps not wholly
    code, printed = operate(stack, "recount")
    assert code == 1, "not all is well where nobody can say so"
    assert printed.splitlines()[:2] == [
        "3 words in 3 rows, and 0 late words",
        "0 rows differ, 0 of them only stored",
    ]
    assert "does not hold its first records any more (partition: first offset held: 0: 2)" in (
        printed
    )
    assert "2 rows were compared, and of 3 rows of older windows" in printed
    store(table, {**whole, ("be", starts[2]): 9, ("be", starts[3]): 9, ("or", starts[3]): 1})
    code, printed = operate(stack, "recount")
    assert code == 1
    assert printed.splitlines()[1:4] == [
        "2 rows differ, 1 of them only stored",
        f"'be' {starts[3]}: counted 1, stored 9",
        f"'or' {starts[3]}: counted nothing, stored 1",
    ]

    stack.delete_records({(WORDS, 0): 4, (WORDS, 1): 1})
    store(table, whole)
    code, printed = operate(stack, "recount")
    assert code == 1, "nothing was counted, and rows are stored"
    assert "0 words in 0 rows" in printed
    assert "held: 0: 4, 1: 1); 0 rows were compared, and of 5 rows of older windows" in printed


def test_records_that_no_aggregator_counts_are_told_or_left_out_as_it_does(
    broker: Any, stacks: MakeStack, table: str
) -> None:
    stack: Stack = stacks(broker, database_url=table)
    stack.create(WORDS, partitions=1)
    stack.migrate()
    bad = Record(0, BASE_MS + 60_000, b"\xff\xfe{")
    stack.produce(WORDS, [line(0, BASE_MS, "to"), bad, line(0, BASE_MS, "to")])
    store(table, {("to", BASE_MS): 2})
    code, printed = operate(stack, "recount")
    assert code == 1
    assert printed == (
        f"recount: record {stack.name(WORDS)} partition 0 offset 1 cannot be counted: it is no "
        "valid UTF-8 (invalid start byte); with deserialization_error 'stop' the aggregator stops "
        "there\n"
    )
    code, printed = operate(stack, "recount", AGGREGATOR_DESERIALIZATION_ERROR="continue")
    assert code == 0, printed
    assert printed.startswith("2 words in 1 rows, and 0 late words, 1 that cannot be used\n")


def test_a_database_that_is_away_is_told_in_one_line(
    broker: Any, stacks: MakeStack, table: str
) -> None:
    stack: Stack = stacks(broker, database_url=table)
    stack.create(WORDS, partitions=1)
    code, printed = operate(stack, "recount", DATABASE_URL="postgres://u:secret@127.0.0.1:1/d")
    assert (code, printed.count("\n")) == (1, 1)
    assert printed.startswith("recount: the database: connection failed")
    assert "secret" not in printed


@pytest.mark.parametrize("command", ["lag", "reset"])
def test_a_service_that_does_not_exist_is_told(command: str) -> None:
    nowhere = Stack("127.0.0.1:1", "", Path())
    code, printed = operate(nowhere, command, "sinks")
    assert code == 1
    assert printed == (
        f"{command}: there is no service 'sinks'; there are ingest, aggregator, sink\n"
    )
