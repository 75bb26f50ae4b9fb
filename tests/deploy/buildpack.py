"""What Heroku's Python buildpack does with a push, step by step, in folders of a test.

Detection, the Python of `.python-version`, Poetry's install command, the move from the folder of
the build to /app, and the rewriting of paths that the dyno does when it boots.
"""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tools import bootstrap

ROOT = bootstrap.ROOT
LOCK_FILES = ("Pipfile.lock", "poetry.lock", "requirements.txt", "uv.lock")
# Any of these in a push ends the build, or the dyno's own Python would be overwritten.
MUST_NOT_BE_PUSHED = (".venv", "venv", ".heroku", "runtime.txt", "Pipfile")
POETRY = "2.4.1"
INSTALL = ("sync", "--only", "main", "--compile", "--no-ansi", "--no-interaction")
COMMAND_S = 120.0


def pushed_files() -> list[str]:
    """Return what `git push` would send once everything is committed: in a clean clone, HEAD."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return sorted(name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file())


def push_to(folder: Path) -> None:
    """Put a copy of what is pushed into a folder."""
    for name in pushed_files():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, target)


def detect(folder: Path) -> str:
    """Return the one lock file in the root of a push; the buildpack refuses none and several."""
    found = [name for name in LOCK_FILES if (folder / name).is_file()]
    assert len(found) == 1, f"lock files in the root: {found}"
    return found[0]


def python_of(folder: Path) -> str:
    """Return a Python of the version that `.python-version` asks for.

    Where that is not installed, our own plays it: the steps are the same.
    """
    lines = (folder / ".python-version").read_text(encoding="utf-8").splitlines()
    wanted = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    assert len(wanted) == 1, f".python-version: {wanted}"
    assert re.fullmatch(r"3\.\d+", wanted[0]), f".python-version asks for {wanted[0]!r}"
    done = subprocess.run(
        ["/bin/sh", str(ROOT / "tools" / "find-python"), wanted[0]],
        capture_output=True, text=True, check=False, env=bootstrap.clean_env(),
    )  # fmt: skip
    return done.stdout.strip() if done.returncode == 0 else sys.executable


@dataclass(frozen=True, slots=True)
class Dyno:
    """The folder in which a release runs, and the folder in which it was built."""

    home: Path
    built_in: Path

    @property
    def python(self) -> Path:
        """The Python that the buildpack has put beside the app."""
        return self.home / ".heroku" / "python"

    def run(self, command: str, **variables: str) -> "subprocess.CompletedProcess[str]":
        """Run a command line as a dyno does: its shell, its Python first, no Poetry anywhere."""
        environment = {
            "HOME": str(self.home),
            "LANG": "C.UTF-8",
            "PATH": os.pathsep.join([str(self.python / "bin"), "/usr/bin", "/bin"]),
            "PYTHONPATH": str(self.home),
            "PYTHONUNBUFFERED": "true",
            **variables,
        }
        return subprocess.run(
            ["/bin/sh", "-c", command],
            cwd=self.home, env=environment, capture_output=True, text=True, check=False,
            timeout=COMMAND_S,
        )  # fmt: skip

    def packages(self) -> Path:
        """Return the folder that the packages were installed into."""
        (found,) = self.python.glob("lib/python3.*/site-packages")
        return found

    def boot(self) -> list[str]:
        """Point at the app where the build's folder was written down; return the files' names."""
        changed = []
        for pattern in ("*.egg-link", "*.pth", "__editable___*_finder.py"):
            for path in sorted(self.packages().glob(pattern)):
                text = path.read_text(encoding="utf-8")
                if str(self.built_in) in text:
                    changed.append(path.name)
                    path.write_text(text.replace(str(self.built_in), str(self.home)))
        return changed


def build(folder: Path) -> str:
    """Install what the lock file says, as the buildpack does; return what Poetry printed."""
    python = folder / ".heroku" / "python"
    subprocess.run(
        [python_of(folder), "-m", "venv", "--without-pip", str(python)],
        check=True, capture_output=True, env=bootstrap.clean_env(),
    )  # fmt: skip
    # Nobody must install into the machine's own Python, whatever Poetry thinks of these variables.
    assert poetry(folder, "env", "info", "--path").stdout.strip() == str(python)
    done = poetry(folder, *INSTALL)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def poetry(folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    """Run the buildpack's Poetry in a folder, for the Python in it."""
    environment = bootstrap.poetry_env()
    environment.pop("POETRY_VIRTUALENVS_IN_PROJECT")
    environment["POETRY_VIRTUALENVS_CREATE"] = "false"
    environment["POETRY_VIRTUALENVS_USE_POETRY_PYTHON"] = "true"
    environment["VIRTUAL_ENV"] = str(folder / ".heroku" / "python")
    return subprocess.run(
        [bootstrap.poetry_program(), *words],
        cwd=folder, env=environment, capture_output=True, text=True, check=False,
        timeout=COMMAND_S,
    )  # fmt: skip
