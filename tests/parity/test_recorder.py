"""Java is asked again: what is written down as its answers is what it answers.

Where a recording and Java differ (a newer Kafka Streams, say), the failed comparison shows the text
that has to stand in the recording.
"""

import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.parity.test_windows_recorded import RECORDED

if TYPE_CHECKING:
    from benchmarks.jvm import Compiled

pytestmark = pytest.mark.java


def told(programs: "Compiled", folder: Path, name: str, *arguments: str) -> str:
    """Return what a Java program prints; it leaves its files in the folder."""
    launcher, *rest = programs.command(name, *arguments)
    command = [launcher, f"-Djava.io.tmpdir={folder}", *rest]
    done = subprocess.run(command, capture_output=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def test_windows_and_counts_are_recorded_as_java_has_them(
    java_programs: "Compiled", tmp_path: Path
) -> None:
    records = re.findall(r"in (\S+) ->", RECORDED["count"])
    assert len(records) == 11
    anew = told(java_programs, tmp_path, "Recorder", *records)
    assert anew == "".join(f"== {name}\n{text.lstrip()}" for name, text in RECORDED.items())


def test_descriptions_are_recorded_as_java_has_them(
    java_programs: "Compiled", tmp_path: Path
) -> None:
    recorded = Path(__file__).with_name("describe.txt").read_text(encoding="utf-8")
    assert told(java_programs, tmp_path, "Describe") == recorded
