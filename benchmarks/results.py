"""Rows of RESULTS.md: a number without date, commit and machine is not a number."""

import os
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path

RESULTS_FILE = Path(__file__).resolve().parent / "RESULTS.md"


def machine() -> str:
    """Return the number of cores and the processor's name."""
    model = platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        for line in cpuinfo.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    return f"{os.cpu_count()} cores, {model}, Python {platform.python_version()}"


def commit() -> str:
    """Return the commit of the checkout, with a plus sign when files differ from it."""
    root = RESULTS_FILE.parent.parent
    described = subprocess.run(
        ["git", "describe", "--always", "--abbrev=10", "--dirty=+"],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    return described.stdout.strip() or "none"


def append(what: str, numbers: str) -> None:
    """Add one row at the end of RESULTS.md."""
    today = datetime.now(UTC).strftime("%Y-%m-%d %H:%M")
    row = f"| {today} | {commit()} | {machine()} | {what} | {numbers} |\n"
    with RESULTS_FILE.open("a", encoding="utf-8") as file:
        file.write(row)
