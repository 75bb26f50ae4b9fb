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
    Stack,
    line,
)

__all__ = ["stacks", "table"]

OPERATE = Path(__file__).resolve().parents[2] / "docs" / "operate.py"
BASE_MS = 1_700_000_000_000
SERVICES = ("ingest", "aggregator", "sink")
LINE_COUNT = 40


def operate(stack: Stack, *words: str) -> tuple[int, str]:
    """Return exit code and output of one command, in the environment of the services."""
    done = subprocess.run(
        [sys.executable, str(OPERATE), *words],
        env={
            "KAFKA_URL": f"kafka://{stack.bootstrap}",
            "KAFKA_PREFIX": stack.prefix,
            "DATABASE_URL": stack.database_url,
            "STREAMCORE_STATE_DIR": str(stack.state_dir),
            "COLUMNS": "200",
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
    code, printed = operate(stack, "create", *map(stack.name, (LINES, WORDS, COUNTS)))
    assert (code, printed.count(" is there")) == (0, 3)
    assert operate(stack, "create", stack.name(LINES))[0] == 0
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
    code, printed = operate(stack, "lag", "aggregator")
    assert code == 0, printed
    assert printed.splitlines()[-1].endswith(": 1 members, 0 records behind")
    code, printed = operate(stack, "recount")
    assert code == 0, printed
    assert printed == (
        f"{2 * LINE_COUNT - 8} words in {2 * LINE_COUNT - 8} rows, and 8 late words\n"
        "0 rows differ, 0 only stored\n"
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

    told = operate(stack, "reset", "aggregator")
    assert told[0] == 0
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


@pytest.mark.parametrize("command", ["lag", "reset"])
def test_a_service_that_does_not_exist_is_told(command: str) -> None:
    nowhere = Stack("127.0.0.1:1", "", Path())
    code, printed = operate(nowhere, command, "sinks")
    assert code == 1
    assert printed == (
        f"{command}: there is no service 'sinks'; there are ingest, aggregator, sink\n"
    )
