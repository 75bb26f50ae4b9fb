"""README tells the truth: its code blocks print what it says, its commands run."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from threading import Timer
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from devstack.kafka import Broker
from devstack.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
WAIT_S = 60.0
OURS = ("KAFKA_", "DATABASE_", "STREAMCORE_", "INGEST_", "AGGREGATOR_", "SINK_", "POSTGRES_")


class Block(NamedTuple):
    """A fenced block: its language, its text, and the file name in its first line."""

    language: str
    text: str

    @property
    def file(self) -> str | None:
        match = re.match(r"# (\w+\.py)\n", self.text)
        return match[1] if match else None


README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = [
    Block(*found)
    for found in re.findall(r"^```(\w+)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
]
FILES = {block.file: block.text for block in BLOCKS if block.file is not None}
COMMANDS = [line for block in BLOCKS if block.language == "sh" for line in block.text.splitlines()]
CREATE = "KAFKA_URL=kafka://127.0.0.1:19092 python docs/operate.py create visits visits-by-page"


@pytest.fixture
def environment() -> Mapping[str, str]:
    """Return an environment without our variables, in which `python` is the project's."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
    return {**clean, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder in which the files of README lie beside the project's documents."""
    for name, text in FILES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    (tmp_path / "docs").symlink_to(ROOT / "docs")
    return tmp_path


def run(command: str, folder: Path, environment: Mapping[str, str]) -> str:
    done = subprocess.run(
        ["/bin/sh", "-c", command],
        cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=WAIT_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_every_command_has_a_test_here() -> None:
    assert COMMANDS == [
        "make run",  # test_make_run
        "make test",  # runs us
        ". .venv/bin/activate",
        "python -m pytest test_pages.py",
        "python -m streamcore describe pages:build",
        CREATE,
        "python pages.py",
        "make sim",  # tests/sim
        "make chaos",  # tests/chaos
        "bin/setup sushi basic-0",  # tests/deploy
    ]
    assert set(FILES) == {"pages.py", "test_pages.py"}


@pytest.mark.parametrize(
    "number",
    [n for n, block in enumerate(BLOCKS) if block.language == "python" and block.file is None],
)
def test_a_program_prints_what_stands_below_it(
    number: int, tmp_path: Path, environment: Mapping[str, str]
) -> None:
    program, printed = BLOCKS[number : number + 2]
    assert printed.language == "text"
    (tmp_path / "program.py").write_text(program.text, encoding="utf-8")
    assert run("python program.py", tmp_path, environment) == printed.text


def test_the_environment_can_be_activated(tmp_path: Path, environment: Mapping[str, str]) -> None:
    command = f". {sys.prefix}/bin/activate && python -c 'import sys; print(sys.prefix)'"
    assert run(command, tmp_path, environment) == f"{sys.prefix}\n"


def test_the_own_topology_passes_its_tests(folder: Path, environment: Mapping[str, str]) -> None:
    printed = run("python -m pytest -p no:cacheprovider test_pages.py", folder, environment)
    assert "2 passed" in printed


def test_the_own_topology_is_described(folder: Path, environment: Mapping[str, str]) -> None:
    described = run("python -m streamcore describe pages:build", folder, environment)
    assert described.startswith("Topologies:\n   Sub-topology: 0\n")
    assert "visits-by-page-repartition" in described
    pictured = run("python -m streamcore describe --mermaid pages:build", folder, environment)
    assert pictured.startswith("flowchart TD\n")


def test_the_own_topology_runs(
    folder: Path, environment: Mapping[str, str], broker: Broker
) -> None:
    # The broker of the tests stands in for the one of `make run`.
    assert run(CREATE.replace("127.0.0.1:19092", broker.bootstrap), folder, environment)
    pages = folder / "pages.py"
    assert "127.0.0.1:19092" in FILES["pages.py"]
    pages.write_text(FILES["pages.py"].replace("127.0.0.1:19092", broker.bootstrap))
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for visitor in ("ann", "bob"):
        producer.produce("visits", value="/", key=visitor)
    assert producer.flush(WAIT_S) == 0
    worker = subprocess.Popen([sys.executable, "pages.py"], cwd=folder, env=environment)
    try:
        assert wait_for_count(broker, "/") == 2
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(WAIT_S) == 0
    finally:
        worker.kill()
        worker.wait()


def wait_for_count(broker: Broker, page: str) -> int:
    """Return the last count of a page, once it has reached 2."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "readme"})
    consumer.assign([TopicPartition("visits-by-page", partition, 0) for partition in range(4)])
    try:
        give_up_s = time.monotonic() + WAIT_S
        while time.monotonic() < give_up_s:
            message = consumer.poll(1.0)
            if message is None or message.error() is not None or message.key() != page.encode():
                continue
            count = int.from_bytes(message.value() or b"", "big")
            if count >= 2:
                return count
    finally:
        consumer.close()
    raise AssertionError(f"no count of {page} within {WAIT_S:.0f} s")


# --- make run -------------------------------------------------------------------------------------


def test_make_run_is_what_is_tried_below() -> None:
    planned = subprocess.run(
        ["make", "-n", "run"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert re.search(r"python -m devstack run *$", planned.stdout, re.MULTILINE)


@pytest.mark.broker
@pytest.mark.postgres
def test_make_run_prints_what_stands_below_it(
    tmp_path: Path, environment: Mapping[str, str]
) -> None:
    shutil.copy(ROOT / "Procfile", tmp_path)
    ports = {"KAFKA_PORT": str(free_port()), "POSTGRES_PORT": str(free_port())}
    command = [sys.executable, "-m", "devstack", "run", "--root", ".", "--folder", ".run"]
    with subprocess.Popen(
        command, cwd=tmp_path, env={**environment, **ports}, stdout=subprocess.PIPE, text=True
    ) as stack:
        giving_up = Timer(2 * WAIT_S, stack.terminate)
        giving_up.start()
        assert stack.stdout is not None
        found = []
        for line in stack.stdout:
            found.append(shape(line.rstrip()))
            if found[-1].endswith(" counted") and giving_up.is_alive():
                giving_up.cancel()
                giving_up.join()
                stack.terminate()
        giving_up.cancel()
    assert stack.returncode == 0
    at = next(n for n, block in enumerate(BLOCKS) if block.text == "make run\n")
    assert BLOCKS[at + 1].language == "text"
    shown = [shape(line) for line in BLOCKS[at + 1].text.splitlines()]
    assert [line for line in shown if line not in found] == []


def shape(line: str) -> str:
    """Return a line without what differs from run to run: figures, folders, words."""
    line = re.sub(r"\d+(?:[.,:]\d+)*", "0", line)
    line = re.sub(r"logs: \S+\)", "logs)", line)
    return re.sub(r"^0-0 .* \| ", "", line)


# --- exit codes -----------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["sim", "chaos", "bench"])
def test_what_scripts_call_in_place_of_make_is_what_make_calls(target: str) -> None:
    planned = subprocess.run(
        ["make", "-n", target], cwd=ROOT, capture_output=True, text=True, check=True
    )
    (called,) = re.findall(r"(\.venv/bin/python -m [\w.]+(?: chaos)?)", planned.stdout)
    assert f"`{called}" in README
