"""`make run` as a person meets it, with three small services in place of ours.

The services here only show what the stack does with services; the real ones have tests of their
own on the same command.
"""

import os
import re
import select
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from devstack.kafka import Broker
from devstack.ports import LOOPBACK, free_port
from devstack.postgres import Database

pytestmark = [pytest.mark.broker, pytest.mark.postgres]

WAIT_S = 60.0
# Says when it ends, so that the order of the ends can be read; `SLOW_S` makes that slow.
SERVICE = """
import os, signal, sys, threading, time
told = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: told.set())
print("level=info event=up", flush=True)
told.wait()
if "HONCHO_PROCESS_NAME" in os.environ:
    time.sleep(float(os.environ.get("SERVICES_SLOW_S", "0")))
time.sleep(float(os.environ.get("SLOW_S", "0")))
with open(os.environ["ENDS"], "a") as ends:
    ends.write(os.environ.get("HONCHO_PROCESS_NAME", "feed") + "\\n")
"""
SINK = """
import os, signal, sys, threading
import psycopg
with psycopg.connect(os.environ["DATABASE_URL"]) as connection:
    connection.execute(
        "create table if not exists windowed_counts (word text, window_start timestamptz, "
        "window_end timestamptz, count bigint, updated_at timestamptz)")
    if sys.argv[1:] == ["migrate"]:
        sys.exit(int(os.environ.get("MIGRATE_CODE", "0")))
if os.environ.get("SINK_DIES"):
    print("the last words of the sink", flush=True)
    sys.exit(7)
told = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: told.set())
while not told.wait(0.3):
    with psycopg.connect(os.environ["DATABASE_URL"]) as connection:
        connection.execute(
            "insert into windowed_counts values ('word', 'epoch', "
            "timestamptz 'epoch' + interval '10 s', 5, clock_timestamp())")
with open(os.environ["ENDS"], "a") as ends:
    ends.write(os.environ["HONCHO_PROCESS_NAME"] + "\\n")
"""
PROCFILE = """\
release: python -m sink migrate && echo "all of the line" > released
ingest_worker: python -m ingest
aggregator_worker: python -m aggregator
sink_worker: python -m sink
"""


@dataclass
class Stack:
    """A folder with a Procfile of its own, and what is needed to run it."""

    folder: Path
    kafka_port: int
    postgres_port: int

    @property
    def ends(self) -> list[str]:
        path = self.folder / "ends"
        return path.read_text(encoding="utf-8").split() if path.exists() else []

    def start(self, *options: str, **env: str) -> "subprocess.Popen[str]":
        command = [
            sys.executable, "-m", "devstack", "run", "--root", str(self.folder),
            "--folder", str(self.folder / "run"), *options,
        ]  # fmt: skip
        own = {"KAFKA_URL", "DATABASE_URL", "KAFKA_PREFIX"}
        inherited = {name: value for name, value in os.environ.items() if name not in own}
        return subprocess.Popen(
            command,
            env={
                **inherited,
                "PYTHONPATH": str(self.folder / "services"),
                "ENDS": str(self.folder / "ends"),
                "KAFKA_PORT": str(self.kafka_port),
                "POSTGRES_PORT": str(self.postgres_port),
                **env,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def processes(self) -> list[str]:
        """Return the commands that run from or in the folder; the dead do not count."""
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                inside = str((entry / "cwd").readlink()).startswith(str(self.folder))
            except OSError:
                continue
            if command and (inside or str(self.folder) in command):
                found.append(command[:120])
        return found


@pytest.fixture
def stack(tmp_path: Path) -> Stack:
    services = tmp_path / "services"
    services.mkdir()
    (services / "ingest.py").write_text(SERVICE, encoding="utf-8")
    (services / "aggregator.py").write_text(SERVICE, encoding="utf-8")
    (services / "sink.py").write_text(SINK, encoding="utf-8")
    (tmp_path / "Procfile").write_text(PROCFILE, encoding="utf-8")
    return Stack(tmp_path, free_port(), free_port())


def read_until(process: "subprocess.Popen[str]", pattern: str) -> str:
    """Return the output up to the line that matches; fail with all of it when none comes."""
    assert process.stdout is not None
    seen = ""
    deadline = time.monotonic() + WAIT_S
    while not re.search(pattern, seen):
        left = deadline - time.monotonic()
        ready = select.select([process.stdout], [], [], max(left, 0))[0]
        line = process.stdout.readline() if ready else ""
        if not line:
            process.kill()
            pytest.fail(f"no {pattern!r} in:\n{seen}")
        seen += line
    return seen


def wait_for_services(stack: Stack) -> None:
    """Return when the feed and the ingest service can hear signals."""
    logs = [stack.folder / "run" / "logs" / f"{name}.log" for name in ("feed", "ingest_worker.1")]
    deadline = time.monotonic() + WAIT_S
    while not all(log.exists() and "up" in log.read_text(encoding="utf-8") for log in logs):
        assert time.monotonic() < deadline, logs
        time.sleep(0.05)


def end_of(process: "subprocess.Popen[str]") -> tuple[int, str]:
    output, _ = process.communicate(timeout=WAIT_S)
    return process.returncode, output


def test_counts_are_shown_and_sigterm_ends_all_of_it_in_order(stack: Stack) -> None:
    run = stack.start("--scale", "aggregator_worker=2", SLOW_S="0.3")
    read_until(run, r"00:00:00-00:00:10 word=5 .* counted")
    run.send_signal(signal.SIGTERM)
    code, output = end_of(run)
    assert code == 0, output
    assert output.endswith("everything has stopped\n")
    assert (stack.folder / "released").read_text(encoding="utf-8") == "all of the line\n"
    assert stack.ends == [
        "feed",
        "ingest_worker.1",
        "aggregator_worker.1",
        "aggregator_worker.2",
        "sink_worker.1",
    ]
    assert stack.processes() == []


def test_a_drain_of_seven_seconds_is_waited_for(stack: Stack) -> None:
    run = stack.start("--scale", "aggregator_worker=0 sink_worker=0", SERVICES_SLOW_S="7")
    read_until(run, "feeding")
    wait_for_services(stack)
    run.send_signal(signal.SIGINT)
    code, _ = end_of(run)
    assert code == 0
    assert stack.ends == ["feed", "ingest_worker.1"]


def test_a_second_ctrl_c_does_not_wait(stack: Stack) -> None:
    run = stack.start("--scale", "aggregator_worker=0 sink_worker=0", SLOW_S="300")
    read_until(run, "feeding")
    wait_for_services(stack)
    run.send_signal(signal.SIGINT)
    time.sleep(0.5)  # two signals at once are one
    run.send_signal(signal.SIGINT)
    code, output = end_of(run)
    assert code == 0
    assert "feed: killed" in output
    assert stack.processes() == []


def test_state_survives_and_a_second_run_ends_by_itself_once_it_has_counted(stack: Stack) -> None:
    assert end_of(stack.start("--until-counts"))[0] == 0
    code, output = end_of(stack.start("--until-counts"))
    assert code == 0
    assert "topics: there" in output
    assert re.search(r"first count after \d", output)
    assert stack.processes() == []
    password = (stack.folder / "run" / "postgres" / "password").read_text(encoding="ascii").strip()
    logs = list((stack.folder / "run" / "logs").iterdir())
    assert logs
    assert not any(password in log.read_text(encoding="utf-8") for log in logs)
    assert password not in output


def test_a_service_that_dies_ends_everything_and_its_last_words_are_shown(stack: Stack) -> None:
    code, output = end_of(stack.start(SINK_DIES="1"))
    assert code == 1
    assert "sink_worker.1 has ended (exit code 7)" in output
    assert "the last words of the sink" in output
    assert stack.processes() == []


def test_a_migration_that_fails_is_one_line(stack: Stack) -> None:
    code, output = end_of(stack.start(MIGRATE_CODE="3"))
    assert code == 1
    assert re.search(r"^error: `python -m sink migrate .*` failed with exit code 3", output, re.M)
    assert "Traceback" not in output
    assert stack.processes() == []


def test_a_taken_port_is_one_line_and_leaves_nothing(stack: Stack) -> None:
    with socket.socket() as other:
        other.bind((LOOPBACK, stack.postgres_port))
        other.listen()
        code, output = end_of(stack.start())
    assert code == 1
    assert re.search(rf"^error: port {stack.postgres_port} for PostgreSQL is taken", output, re.M)
    assert stack.processes() == []


def test_nothing_is_left_when_the_run_itself_is_killed(stack: Stack) -> None:
    run = stack.start()
    read_until(run, "feeding")
    run.kill()
    run.communicate()
    deadline = time.monotonic() + WAIT_S
    while left := stack.processes():
        assert time.monotonic() < deadline, left
        time.sleep(0.2)


def test_a_second_run_in_the_same_folder_is_refused(stack: Stack) -> None:
    first = stack.start()
    read_until(first, "feeding")
    code, output = end_of(stack.start())
    assert code == 1
    assert "error: another `make run` is up" in output
    first.send_signal(signal.SIGTERM)
    assert end_of(first)[0] == 0


def test_servers_of_the_environment_are_used_and_none_is_started(
    stack: Stack, broker: Broker, database: Database
) -> None:
    run = stack.start(
        "--until-counts",
        KAFKA_URL=broker.url,
        DATABASE_URL=database.url,
        KAFKA_PREFIX=f"run{stack.kafka_port}.",
    )
    code, output = end_of(run)
    assert code == 0, output
    assert "the one of KAFKA_URL" in output
    assert "the one of DATABASE_URL" in output
    assert not (stack.folder / "run" / "kafka").exists()
    assert not (stack.folder / "run" / "postgres").exists()
