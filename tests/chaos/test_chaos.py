"""The word count on real servers under faults, from the outside as `make chaos` runs it."""

import faulthandler
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from devstack.chaos.options import ChaosOptions
from devstack.chaos.trial import Trial
from devstack.stopping import StopSignals

pytestmark = [pytest.mark.broker, pytest.mark.postgres]

WITHIN_S = 840
"""Two to three minutes where nothing else runs; it only ends a run that hangs."""
CHAOS = (sys.executable, "-m", "devstack", "chaos")


@pytest.mark.timeout(WITHIN_S + 60)
def test_90_seconds_of_faults_change_no_count(tmp_path: Path) -> None:
    faulthandler.cancel_dump_traceback_later()  # two minutes are no sign of a test that hangs
    command = [*CHAOS, "--seconds", "90", "--folder", str(tmp_path / "chaos")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WITHIN_S, check=False)
    assert done.returncode == 0, done.stdout[-6_000:] + done.stderr[-2_000:]
    last = done.stdout.splitlines()[-1]
    assert last.startswith("chaos passed: exactly_once_v2, seed 1: ")
    assert "each equal to the recount, to the unit" in last
    fed = re.search(r"fed ([\d,]+) words in (\d+) s", last)
    assert fed is not None
    assert int(fed[1].replace(",", "")) >= 90 * 2_000
    assert "killed: ingest 3, aggregator 3, sink 3" in last
    assert re.findall(r": (\d+)", last.partition("; kill -9")[2]) == ["9", "1", "3", "1", "1", "1"]


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def trial(tmp_path: Path, said: list[str]) -> Iterator[Trial]:
    """A trial without faults, which has everything in the table."""
    made = Trial(ChaosOptions(folder=tmp_path / "chaos"), said.append, StopSignals(), plan=())
    with made.up():
        made.start()
        made.settle()
        yield made


def test_a_count_that_was_altered_by_hand_fails_the_run(trial: Trial, said: list[str]) -> None:
    assert trial.judge() == 0, said
    with psycopg.connect(trial.database.url) as connection:
        word, count = connection.execute(
            "update windowed_counts set count = count + 1 where ctid = "
            "(select ctid from windowed_counts order by word limit 1) returning word, count"
        ).fetchone() or ("", 0)
    assert trial.judge() == 1
    assert f"{word}: {count}, recount {count - 1}, aggregator's topic {count - 1}" in "\n".join(
        said
    )
    assert said[-1].startswith("chaos FAILED: exactly_once_v2, seed 1: ")
    with psycopg.connect(trial.database.url) as connection:
        connection.execute("delete from windowed_counts")
    assert trial.judge() == 1
    assert any("nothing was counted" in line for line in said)


def test_a_signal_ends_everything_and_nothing_counts_as_proven(tmp_path: Path) -> None:
    folder = tmp_path / "chaos"
    running = subprocess.Popen(
        [*CHAOS, "--folder", str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert running.stdout is not None
    with running, running.stdout as written:
        for line in written:
            if "now the faults" in line:
                running.send_signal(signal.SIGINT)
                break
        rest = written.read()
        assert running.wait(60) == 1
    assert "interrupted: nothing is proven" in rest.splitlines()[-1]
    assert processes_in(folder) == []


def processes_in(folder: Path) -> list[str]:
    """Return the commands that still run in the folder; the dead do not count."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            inside = (entry / "cwd").readlink().is_relative_to(folder)
        except OSError:
            continue
        if command and inside and int(entry.name) != os.getpid():
            found.append(command)
    return found
