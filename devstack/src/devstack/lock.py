"""One run in a folder at a time."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from devstack.errors import StackError


@contextmanager
def only_run_in(folder: Path, command: str) -> Iterator[None]:
    """Hold the folder for this run; raise StackError when another one of `command` holds it."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("a", encoding="ascii") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise StackError(f"another `{command}` is up in {folder}: stop it first") from None
        yield
