"""The command lines of ingest and the aggregator, as far as they need no broker."""

import os

import pytest
from typer.testing import CliRunner, Result

from aggregator.__main__ import cli as aggregator
from ingest.__main__ import cli as ingest

SERVICES = {"ingest": ingest, "aggregator": aggregator}
URL = "kafka://127.0.0.1:1"


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Return an environment without any variable of ours."""
    for name in os.environ:
        if name.startswith(("STREAMCORE_", "INGEST_", "AGGREGATOR_", "KAFKA_")):
            monkeypatch.delenv(name)
    return monkeypatch


def run(service: str, *words: str) -> Result:
    return CliRunner().invoke(SERVICES[service], list(words))


@pytest.mark.parametrize("service", SERVICES)
def test_version_and_help_need_no_settings(service: str) -> None:
    version = run(service, "--version")
    assert (version.exit_code, version.output.split()[0]) == (0, f"streamcore-{service}")
    assert run(service, "--help").exit_code == 0
    assert run(service, "describe", "--help").exit_code == 0


@pytest.mark.parametrize("service", SERVICES)
def test_describe_prints_the_topology_without_a_broker(service: str) -> None:
    described = run(service, "describe")
    assert described.exit_code == 0
    assert described.output.startswith("Topologies:\n   Sub-topology: 0\n")


@pytest.mark.parametrize("service", SERVICES)
def test_wrong_settings_are_lines_on_stderr_and_exit_code_2(
    service: str, environment: pytest.MonkeyPatch
) -> None:
    environment.setenv("STREAMCORE_COMIT_INTERVAL_MS", "5")
    environment.setenv(f"{service.upper()}_SESSION_TIMEOUT_MS", "long")
    refused = run(service)
    assert refused.exit_code == 2
    lines = refused.stderr.splitlines()
    assert len(lines) == 3
    assert all(line.startswith(f"{service}: ") for line in lines)
    assert "did you mean STREAMCORE_COMMIT_INTERVAL_MS?" in lines[0]
    assert "SESSION_TIMEOUT_MS is 'long'" in lines[1]
    assert "KAFKA_URL is not set" in lines[2]
    assert refused.stdout == ""


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ([], "name files, or - for standard input, or give --sample"),
        (["--sample", "book.txt"], "name files, or - for standard input, or give --sample"),
        (["--sample", "--rate", "-1"], "greater than or equal to 0"),
        (["no-such-file.txt"], "there is no file no-such-file.txt"),
        (["-", "--encoding", "klingon"], "there is no text encoding 'klingon'"),
    ],
)
def test_a_feed_that_cannot_work_ends_before_it_asks_for_a_broker(
    options: list[str], reason: str
) -> None:
    refused = run("ingest", "feed", *options)
    assert refused.exit_code in (1, 2)
    assert reason in " ".join(refused.stderr.replace("│", " ").split())
    assert "Traceback" not in refused.output
