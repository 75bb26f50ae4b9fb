"""``python -m streamcore``: topologies printed, and what cannot be found told in a line."""

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from streamcore.cli import app

MODULE = """
from streamcore import STR, Consumed, Produced, StreamsBuilder

def build():
    builder = StreamsBuilder()
    builder.stream("in", Consumed(key=STR, value=STR)).to("out", Produced(key=STR, value=STR))
    return builder.build()

def needy(argument):
    return build()

topology = build()
number = 7
"""


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a module of topologies into the working directory, and take it out of memory again."""
    (tmp_path / "some_topologies.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "some_topologies", raising=False)


def run(*words: str) -> Result:
    return CliRunner().invoke(app, list(words))


@pytest.mark.parametrize("name", ["topology", "build"])
def test_a_topology_or_its_maker_is_described_as_kafka_streams_does(name: str) -> None:
    described = run("describe", f"some_topologies:{name}")
    assert described.exit_code == 0
    assert described.output.startswith("Topologies:\n   Sub-topology: 0\n")
    assert "(topics: [in])" in described.output


def test_a_flowchart_is_printed_when_asked_for() -> None:
    drawn = run("describe", "some_topologies:topology", "--mermaid")
    assert drawn.exit_code == 0
    assert drawn.output.startswith("flowchart ")


@pytest.mark.parametrize(
    ("where", "reason"),
    [
        ("some_topologies", "'some_topologies' is not MODULE:NAME"),
        (":build", "':build' is not MODULE:NAME"),
        ("no_such_module:x", "no_such_module:x: No module named 'no_such_module'"),
        ("some_topologies:other", "has no attribute 'other'"),
        ("some_topologies:needy", "missing 1 required positional argument"),
        ("some_topologies:number", "some_topologies:number is a int and no Topology"),
    ],
)
def test_what_is_no_topology_is_one_line_on_stderr(where: str, reason: str) -> None:
    refused = run("describe", where)
    assert refused.exit_code == 1
    (line,) = refused.stderr.splitlines()
    assert line.startswith("streamcore: ")
    assert reason in line
    assert refused.stdout == ""


def test_it_runs_as_a_module() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "streamcore", "--version"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.startswith("streamcore ")


def test_without_words_it_tells_what_there_is() -> None:
    assert "describe" in run().output
