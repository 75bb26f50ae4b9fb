"""Tries the project as a new user would: a bare clone, an empty home, `make run`.

`make run` must show its first count; then SIGTERM must end it and leave no process. A second
run, with everything set up, must show its first count within SECOND_RUN_S.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FIRST_RUN_S = 600.0
SECOND_RUN_S = 25.0
STOP_S = 120.0
# What a machine knows before anybody installs this: where programs are, and the way out.
KEPT = re.compile(
    r"PATH|LANG|LC_\w+|TERM|TMPDIR|PIP_\w+|SSL_CERT_\w+|REQUESTS_CA_BUNDLE|(?:https?|no)_proxy",
    re.IGNORECASE,
)
# pip asks for the version of Rust's compiler, and rustup's stand-in writes down that it was asked.
NOT_OURS = (".rustup",)
# A stack of the user's own on the usual ports is left alone.
PORTS = {"KAFKA_PORT": "19392", "POSTGRES_PORT": "15732"}


class SmokeError(Exception):
    """The project does not do what its README promises."""


def main() -> int:
    """Clone, run twice, say how it went."""
    try:
        with empty_folder() as folder:
            clone = folder / "clone"
            git = ["git", "clone", "--quiet", "--no-hardlinks", str(ROOT), str(clone)]
            subprocess.run(git, check=True)
            home = folder / "home"
            home.mkdir()
            first_s = first_count(clone, home, FIRST_RUN_S)
            second_s = first_count(clone, home, SECOND_RUN_S)
            left = sorted(path.name for path in home.iterdir() if path.name not in NOT_OURS)
            if left:
                raise SmokeError(f"something was left in the user's home: {left}")
    except SmokeError as problem:
        print(f"error: smoke: {problem}", file=sys.stderr)
        return 1
    print(f"smoke: first count after {first_s:.0f} s from nothing, {second_s:.1f} s again")
    return 0


@contextmanager
def empty_folder() -> Iterator[Path]:
    """Make a folder, and take it away again."""
    folder = Path(tempfile.mkdtemp(prefix="smoke-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def first_count(clone: Path, home: Path, within_s: float) -> float:
    """Run `make run` until its first count, stop it, and return how long that count took."""
    env = {name: value for name, value in os.environ.items() if KEPT.fullmatch(name)}
    began_s = time.monotonic()
    process = subprocess.Popen(
        ["make", "--no-print-directory", "run"],
        cwd=clone,
        env={**env, **PORTS, "HOME": str(home)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    giving_up = threading.Timer(within_s + 60, lambda: os.killpg(process.pid, signal.SIGTERM))
    giving_up.start()
    try:
        found_s = wait_for_count(process, began_s)
    finally:
        giving_up.cancel()
        stop(process)
    if found_s is None:
        raise SmokeError("`make run` has shown no count")
    if found_s > within_s:
        raise SmokeError(
            f"the first count came after {found_s:.0f} s, {within_s:.0f} s are allowed"
        )
    if left := processes_in(clone):
        raise SmokeError(f"`make run` has left processes: {left}")
    return found_s


def wait_for_count(process: "subprocess.Popen[str]", began_s: float) -> float | None:
    """Pass the output on until something was counted in this run; return when that was."""
    assert process.stdout is not None
    for line in process.stdout:
        print(f"  | {line.rstrip()}", flush=True)
        if line.startswith("first count after "):
            return time.monotonic() - began_s
    return None


def stop(process: "subprocess.Popen[str]") -> None:
    """Send SIGTERM as a process manager would, to `make` alone, and wait for the end."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    try:
        output, _ = process.communicate(timeout=STOP_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise SmokeError(f"`make run` did not end within {STOP_S:.0f} s of SIGTERM") from None
    print("".join(f"  | {line}\n" for line in output.splitlines()), end="", flush=True)


def processes_in(folder: Path) -> list[str]:
    """Return the programs that run in the folder or from it, where the system can tell."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            where = str((entry / "cwd").readlink())
        except OSError:
            continue
        if command and (str(folder) in command or where.startswith(str(folder))):
            found.append(f"{entry.name} {command[:100].strip()}")
    return found


if __name__ == "__main__":
    sys.exit(main())
