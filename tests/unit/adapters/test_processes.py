"""Worker processes and their parent, as real processes, without a broker."""

import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from streamcore.adapters import processes
from streamcore.adapters.parent_link import ChildLink, ParentLink, merged
from streamcore.adapters.processes import WorkerProcesses, command_of_this_program
from streamcore.adapters.system import PARENT_GONE, StopSignals
from streamcore.errors import ConfigError
from streamcore.runtime.metrics import Metrics, Sample
from streamcore.runtime.restore import Lag

PROGRAM = """
import os, signal, sys, time
from streamcore.adapters import processes
from streamcore.adapters.log_output import configure_logging
from streamcore.adapters.metrics_server import serve_metrics
from streamcore.adapters.parent_link import ParentLink
from streamcore.adapters.system import StopSignals
from streamcore.runtime.metrics import Metrics
import structlog

POLICY, COUNT, STOP_MS, BEHAVIOUR = sys.argv[1:]
configure_logging("json")

def parent():
    processes.BACKOFF_MAX_S = 0.05
    command = processes.command_of_this_program(int(COUNT))
    with StopSignals(int(STOP_MS) + 5_000) as signals:
        workers = processes.WorkerProcesses(
            "g", command, int(COUNT), signals, replace=POLICY == "replace", stop_ms=int(STOP_MS)
        )
        serve_metrics(0, workers.samples)
        return workers.run()

def child(link, number):
    metrics, log = Metrics(), structlog.get_logger("child")
    metrics.add("streamcore_rows_processed_total", 10 + number)
    if BEHAVIOUR == "unready":
        time.sleep(60)
    with link, StopSignals(parent=link.fileno()) as signals:
        link.ready()
        log.info("up", pid=os.getpid())
        if BEHAVIOUR == "dies":
            sys.exit(3)
        if BEHAVIOUR == "first-kills-itself" and number == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        link.tell(metrics.samples, {}, at_once=True)
        while not signals.requested or BEHAVIOUR == "stays":
            time.sleep(0.01)
        log.info("down", reason=signals.reason)
        return 5 if BEHAVIOUR == "ends-badly" else 0

number = os.environ.get("_STREAMCORE_WORKER", " ").split(" ")[0]
link = ParentLink.inherited("g")
sys.exit(parent() if link is None else child(link, int(number)))
"""

Events = list[dict[str, Any]]


class Program:
    """The program, its log, and what can be asked of it."""

    def __init__(self, folder: Path, policy: str, count: int, behaviour: str, stop_ms: int) -> None:
        script = folder / "program.py"
        script.write_text(PROGRAM)
        self.log = folder / "log"
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, str(script), policy, str(count), str(stop_ms), behaviour],
                stderr=output,
                cwd=folder,
            )

    def events(self, event: str) -> Events:
        lines = self.log.read_text().splitlines(keepends=True)
        told = [json.loads(line) for line in lines if line.startswith("{") and line.endswith("\n")]
        return [found for found in told if found["event"] == event]

    def wait_for(self, event: str, count: int = 1) -> Events:
        self.until(lambda: len(self.events(event)) >= count, f"{count} x {event!r}")
        return self.events(event)

    def until(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + 20
        while not condition():
            assert time.monotonic() < deadline, f"{what}:\n{self.log.read_text()}"
            time.sleep(0.02)

    def metrics(self) -> str:
        return str(urlopen(self.wait_for("metrics")[0]["url"], timeout=5).read().decode())

    def end(self) -> int:
        try:
            return self.process.wait(20)
        except subprocess.TimeoutExpired:
            raise AssertionError(self.log.read_text()) from None


Start = Callable[..., Program]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[Program] = []

    def begin(
        behaviour: str = "well", *, policy: str = "stop", count: int = 2, stop_ms: int = 10_000
    ) -> Program:
        started.append(Program(tmp_path, policy, count, behaviour, stop_ms))
        return started[-1]

    yield begin
    for program in started:
        program.process.kill()
        program.process.wait()


def gone(pid: int) -> bool:
    """Whether the process has ended; one that nobody has buried yet has."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_a_signal_is_handed_on_and_all_end_well(start: Start) -> None:
    program = start()
    program.wait_for("up", 2)
    program.process.send_signal(signal.SIGTERM)
    program.process.send_signal(signal.SIGTERM)
    assert program.end() == 0
    assert [e["reason"] for e in program.events("stopping")] == ["SIGTERM"]
    assert {e["worker"] for e in program.events("up")} == {1, 2}
    assert sorted((e["worker"], e["reason"]) for e in program.events("down")) == [
        (1, "SIGTERM"), (2, "SIGTERM"),
    ]  # fmt: skip


def test_metrics_of_all_are_served_in_one_place_each_with_its_number(start: Start) -> None:
    program = start()
    ups = program.wait_for("up", 2)
    series = 'streamcore_rows_processed_total{worker="%d"} %d.0'
    program.until(
        lambda: series % (1, 11) in (text := program.metrics()) and series % (2, 12) in text,
        "metrics of both",
    )
    assert program.metrics().count("# TYPE streamcore_rows_processed_total") == 1
    (pid,) = [up["pid"] for up in ups if up["worker"] == 2]
    subprocess.run(["kill", str(pid)], check=True)
    program.until(lambda: 'worker="2"' not in program.metrics(), "no metrics of the dead")
    assert series % (1, 11) in program.metrics()
    assert program.events("worker process was stopped from outside")[0]["worker"] == 2
    program.process.send_signal(signal.SIGINT)
    assert program.end() == 0


def test_when_one_dies_the_others_are_stopped(start: Start) -> None:
    program = start("first-kills-itself")
    assert program.end() == 1
    (died,) = program.events("worker process died")
    assert (died["worker"], died["how"]) == (1, "SIGKILL")
    assert [e["worker"] for e in program.events("down")] in ([2], [])
    assert program.events("all worker processes have ended")[0]["clean"] is False


def test_one_that_dies_is_replaced_but_not_for_ever(start: Start) -> None:
    program = start("dies", policy="replace", count=1)
    assert program.end() == 1
    died = program.events("worker process died")
    assert [e["deaths_in_a_row"] for e in died] == [1, 2, 3, 4, 5, 6]
    assert {e["how"] for e in died} == {"exit code 3"}
    assert len(program.events("worker process started")) == 6


def test_a_replacement_goes_on_and_the_parent_still_ends_well(start: Start) -> None:
    program = start(policy="replace")
    ups = program.wait_for("up", 2)
    subprocess.run(["kill", "-9", str(ups[0]["pid"])], check=True)
    again = program.wait_for("up", 3)[-1]
    assert again["worker"] == ups[0]["worker"]
    assert again["pid"] != ups[0]["pid"]
    program.until(
        lambda: "streamcore_workers_replaced_total 1.0" in program.metrics(), "word of it"
    )
    program.process.send_signal(signal.SIGTERM)
    assert program.end() == 0


def test_children_end_when_their_parent_is_killed(start: Start) -> None:
    program = start()
    pids = [up["pid"] for up in program.wait_for("up", 2)]
    program.process.kill()
    assert [e["reason"] for e in program.wait_for("down", 2)] == [PARENT_GONE] * 2
    program.until(lambda: all(map(gone, pids)), "their end")


def test_a_child_that_does_not_end_is_killed_in_time(start: Start) -> None:
    program = start("stays", stop_ms=500)
    program.wait_for("up", 2)
    began_s = time.monotonic()
    program.process.send_signal(signal.SIGTERM)
    assert program.end() == 1
    assert 0.4 < time.monotonic() - began_s < 8
    assert len(program.events("worker process does not end, killed")) == 2


def test_a_child_that_ends_badly_after_a_signal_is_told(start: Start) -> None:
    program = start("ends-badly")
    program.wait_for("up", 2)
    program.process.send_signal(signal.SIGTERM)
    assert program.end() == 1
    ended = program.events("worker process did not stop well")
    assert [(e["how"]) for e in ended] == ["exit code 5"] * 2
    assert program.events("worker process died") == []


def test_a_signal_during_the_start_ends_it_well(start: Start) -> None:
    program = start("unready")
    program.wait_for("worker process started", 2)
    program.process.send_signal(signal.SIGTERM)
    assert program.end() == 0


def test_a_command_that_cannot_be_run_is_a_death() -> None:
    with StopSignals() as signals:
        workers = WorkerProcesses(
            "g", ["/does/not/exist"], 2, signals, replace=False, stop_ms=1_000
        )
        assert workers.run() == 1


# -- the link ------------------------------------------------------------------------------------


def counted(number: float) -> Metrics:
    metrics = Metrics()
    metrics.add("streamcore_rows_dropped_total", number, task="0_1", reason="late")
    return metrics


def told(parent: ChildLink) -> tuple[Sample, ...]:
    return parent.snapshot.samples


def test_a_parent_that_does_not_read_delays_nobody_and_what_it_reads_is_whole() -> None:
    parent, end = ChildLink.pair(7)
    child = ParentLink(7, end)
    child.ready()
    big = [Sample("streamcore_tasks", (("task", "x" * 1_000),), 1)] * 2_000
    began_s = time.monotonic()
    for _ in range(20):
        child.tell(lambda: big, {}, at_once=True)
    assert time.monotonic() - began_s < 2
    assert parent.read()
    assert parent.ready
    assert not told(parent)
    while not told(parent):
        child.tell(counted(3).samples, {}, at_once=True)
        assert parent.read()
    assert len(told(parent)) in (1, 2_000)
    for _ in range(2):
        child.tell(counted(5).samples, {"s": {0: Lag(3, 9)}}, at_once=True)
        assert parent.read()
    assert parent.snapshot.samples == (
        Sample(
            "streamcore_rows_dropped_total",
            (("reason", "late"), ("task", "0_1"), ("worker", "7")),
            5,
        ),
    )
    assert parent.snapshot.lags == {"s": {0: Lag(3, 9)}}
    end.close()
    assert not parent.read()
    parent.close()


def test_a_line_is_never_torn() -> None:
    ours, end = socket.socketpair()
    ours.setblocking(False)
    child = ParentLink(7, end)
    big = [Sample("streamcore_tasks", (("task", "x" * 1_000),), 1)] * 500
    came = b""
    for _ in range(30):
        child.tell(lambda: big, {}, at_once=True)
        came += ours.recv(1 << 20)
    lines = came.split(b"\n")[:-1]
    assert len(lines) > 3
    assert all(len(json.loads(line)["samples"]) == 500 for line in lines)
    ours.close()
    end.close()


def test_it_tells_about_once_a_second() -> None:
    parent, end = ChildLink.pair(1)
    child = ParentLink(1, end)
    for _ in range(100):
        child.tell(counted(1).samples, {})
    assert parent.read()
    assert parent.snapshot.samples == ()
    parent.close()
    child.tell(counted(1).samples, {}, at_once=True)  # to nobody, which is no error
    end.close()


def test_a_child_of_another_application_does_not_run_this_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert ParentLink.inherited("mine") is None
    monkeypatch.setenv("_STREAMCORE_WORKER", "1 99 other")
    with pytest.raises(ConfigError, match="a worker of other, and runs mine"):
        ParentLink.inherited("mine")


def test_of_two_stores_for_one_partition_the_nearest_counts() -> None:
    found = merged(
        [{"s": {0: Lag(3, 9), 1: Lag(9, 9)}}, {"s": {0: Lag(8, 9)}, "t": {2: Lag(0, 1)}}]
    )
    assert found == {"s": {0: Lag(8, 9), 1: Lag(9, 9)}, "t": {2: Lag(0, 1)}}


# -- running a program again ---------------------------------------------------------------------


@pytest.mark.parametrize("way", ["script", "module", "-c"])
def test_a_program_is_run_again_as_it_was(tmp_path: Path, way: str) -> None:
    code = (
        "import os, subprocess, sys\n"
        "from streamcore.adapters.processes import command_of_this_program\n"
        "print(sys.argv[1:], flush=True)\n"
        "if 'AGAIN' not in os.environ:\n"
        "    os.environ['AGAIN'] = ''\n"
        "    subprocess.run(command_of_this_program(2), check=True)\n"
    )
    (tmp_path / "twice.py").write_text(code)
    words = {"script": ["twice.py"], "module": ["-m", "twice"], "-c": ["-c", code]}[way]
    done = subprocess.run(
        [sys.executable, *words, "--a", "b c"],
        cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == "['--a', 'b c']\n" * 2


@pytest.mark.parametrize("words", [[], ["-"], ["-i", "-c", "{}"]])
def test_a_program_that_cannot_be_run_again_is_told(words: list[str]) -> None:
    code = "from streamcore.adapters.processes import command_of_this_program as c; c(2)"
    done = subprocess.run(
        [sys.executable, *(word.format(code) for word in words)],
        input=code, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "ConfigError: num_stream_threads is 2; each worker process is" in done.stderr


def test_the_limits_are_what_the_documents_say() -> None:
    assert (processes.REPLACED_MAX, processes.LIVED_S) == (5, 60)
    assert command_of_this_program(2)[0] == sys.executable


STUCK_PARENT = """
import os, sys, time
from streamcore import StreamsBuilder, STR, Consumed, Produced
from streamcore.adapters.processes import WorkerProcesses
from streamcore.app import StreamsApp
from streamcore.config import StreamsConfig

def stuck(workers):
    time.sleep(600)

if "_STREAMCORE_WORKER" not in os.environ:
    end_s = time.monotonic() + 2  # until then its loop goes round
    WorkerProcesses._heed_signals = lambda self: time.monotonic() > end_s and stuck(self)
builder = StreamsBuilder()
builder.stream("a", Consumed(key=STR, value=STR)).to("b", Produced(key=STR, value=STR))
config = StreamsConfig(
    application_id="g", kafka_url="kafka://127.0.0.1:1", state_dir=sys.argv[1],
    num_stream_threads=2, stall_timeout_ms=1_000, log_format="logfmt", metrics_port=None,
)
sys.exit(StreamsApp(builder.build(), config).run())
"""


def test_a_parent_whose_loop_hangs_ends_and_its_workers_with_it(tmp_path: Path) -> None:
    script, log = tmp_path / "program.py", tmp_path / "log"
    script.write_text(STUCK_PARENT)
    with log.open("wb") as output:
        command = [sys.executable, str(script), str(tmp_path / "state")]
        parent = subprocess.Popen(command, stdout=output, stderr=output)
    began_s = time.monotonic()
    try:
        assert parent.wait(20) == 1
    finally:
        parent.kill()
    assert time.monotonic() - began_s > 2.5
    said = log.read_text()
    assert 'level=critical event="the loop is silent;' in said
    assert "in stuck" in said
    pids = [int(row.partition("pid=")[2].split()[0]) for row in said.splitlines() if "pid=" in row]
    assert len(pids) == 2
    deadline = time.monotonic() + 20
    while not all(gone(pid) for pid in pids):
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.02)
