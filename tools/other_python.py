"""Runs the unit tests on the other Python too: 3.11 where .venv has 3.12, and the reverse.

The project promises both; Heroku builds with what .python-version says, a laptop with what it has.
The other one gets an environment of its own beside .venv. Where it is not installed, one line
says that its tests were left out.
"""

import subprocess
import sys
import time
from pathlib import Path

from tools import bootstrap

VERSIONS = ("3.11", "3.12")
# The other quick ones of `make check` (sources, budgets, recordings) say the same on any Python.
TESTS = ("tests/unit",)
PROCESSES = 2


def main() -> int:
    """Set the other Python up if it is there, run the tests, and return pytest's exit code."""
    mine = "{}.{}".format(*sys.version_info[:2])
    other = next(version for version in VERSIONS if version != mine)
    program = find(other)
    if program is None:
        print(f"SKIPPED: no unit tests on Python {other}: it is not installed here", flush=True)
        return 0
    began_s = time.monotonic()
    try:
        venv = set_up(other, program)
    except bootstrap.SetupError as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 1
    ready_s = time.monotonic() - began_s
    print(f"Python {other}: set up in {ready_s:.0f} s; its unit tests run", flush=True)
    command = [str(venv / "bin" / "python"), "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    command += ["-n", str(PROCESSES), "--dist", "loadfile", *TESTS]
    return subprocess.run(command, cwd=bootstrap.ROOT, check=False).returncode


def find(version: str) -> str | None:
    """Return a Python of that version which can make environments, None where there is none."""
    done = subprocess.run(
        ["/bin/sh", str(bootstrap.ROOT / "tools" / "find-python"), version],
        capture_output=True, text=True, check=False, env=bootstrap.clean_env(),
    )  # fmt: skip
    return done.stdout.strip() if done.returncode == 0 else None


def set_up(version: str, program: str) -> Path:
    """Return the environment of that version, made or brought to what poetry.lock says.

    Raises SetupError when a step fails.
    """
    venv = bootstrap.ROOT / f".venv-{version}"
    stamp = venv / "set-up-for"
    if stamp.is_file() and stamp.read_text(encoding="ascii") == bootstrap.fingerprint():
        return venv
    bootstrap.make_venv(venv, program, version)
    bootstrap.install_packages(venv)
    stamp.write_text(bootstrap.fingerprint(), encoding="ascii")
    return venv


if __name__ == "__main__":
    sys.exit(main())
