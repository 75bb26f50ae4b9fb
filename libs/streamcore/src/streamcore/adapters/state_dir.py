"""FileStateDir: the folders in which stores live, one process to a slot.

::

    <state_dir>/<application id>/<slot>.lock
    <state_dir>/<application id>/<slot>/<task>/<store>/            a LevelDB
    <state_dir>/<application id>/<slot>/<task>/<store>~1/          one that was set aside

A process takes the first slot whose lock file nobody holds, so any number of workers share one
state folder without a setting. The kernel drops the lock with the process, however it ended: a file
that lies about means nothing. What stands in it is the ``run`` of the process that had the slot
last, by which the next one knows whom it follows. A task that moves to another slot restores from
its changelog there; what it left behind is only old, and its position says how old.
"""

import fcntl
import os
import re
import shutil
from collections.abc import Collection
from itertools import count
from pathlib import Path
from urllib.parse import quote

import structlog

from streamcore.adapters.leveldb import LevelDbEngine, StoreHeldError
from streamcore.errors import StateDirError, StateDirLockedError, StoreDamagedError
from streamcore.model import TaskId

SET_ASIDE_MAX = 2
"""Damaged folders kept a store, for whoever wants to look; older ones are removed."""

_RUN = re.compile(rb"[A-Za-z0-9_-]{1,64}")

_log = structlog.get_logger("streamcore.state_dir")


class FileStateDir:
    """Port ``runtime.ports.StateDir``. Takes a slot when it is made, gives it back in ``close``.

    ``predecessor`` is the ``run`` of the process that had the slot before, and is dead for certain;
    empty if nobody had it, or what the lock file says makes no sense.
    """

    def __init__(self, state_dir: Path, application_id: str, run: str = "") -> None:
        """Take the first free slot, and leave ``run`` in it for whoever comes next.

        :raises StateDirError: if the folder cannot be made or written.
        """
        self._root = state_dir / _folder_name(application_id)
        try:
            self._root.mkdir(parents=True, exist_ok=True)
            self.slot, self._lock = _take_slot(self._root)
            try:
                self.predecessor = _sign(self._lock, run)
            except OSError:
                os.close(self._lock)
                raise
        except OSError as error:
            raise _unusable(self._root, error) from error
        self._open: dict[tuple[TaskId, str], LevelDbEngine] = {}

    def folder(self, task: TaskId, store: str) -> Path:
        """Return where the store of a task lives in our slot."""
        return self._root / str(self.slot) / str(task) / _folder_name(store)

    def open(self, task: TaskId, store: str) -> LevelDbEngine:
        """Open or make a store's engine; one that is of no use is set aside and begun anew.

        A store that is open and well already is answered again.

        :raises StateDirLockedError: if somebody else has the folder open.
        :raises StateDirError: if there is no space, or no right.
        """
        engine = self._open.pop((task, store), None)
        if engine is not None:
            if not engine.closed and not engine.damaged:
                self._open[task, store] = engine
                return engine
            engine.close()
        folder = self.folder(task, store)
        try:
            engine = LevelDbEngine(folder)
        except StoreHeldError as error:
            raise StateDirLockedError(task, str(folder)) from error
        except StoreDamagedError as damage:
            self._set_aside(task, store, damage.reason)
            engine = LevelDbEngine(folder)
        self._open[task, store] = engine
        return engine

    def discard(self, task: TaskId, store: str) -> None:
        """Close the store and set its files aside: the next ``open`` begins with an empty one."""
        engine = self._open.pop((task, store), None)
        if engine is not None:
            engine.close()
        if self.folder(task, store).exists():
            self._set_aside(task, store, "it does not fit its changelog")

    def clean_up(self, keep: Collection[TaskId]) -> None:
        """Remove the folders of all other tasks in our slot; one that cannot be stays."""
        in_use = {task for (task, _), engine in self._open.items() if not engine.closed}
        kept = {str(task) for task in in_use.union(keep)}
        for folder in sorted((self._root / str(self.slot)).glob("*_*")):
            if folder.name not in kept:
                shutil.rmtree(folder, ignore_errors=True)
                _log.info("state of a task that went elsewhere is removed", folder=str(folder))

    def _set_aside(self, task: TaskId, store: str, reason: str) -> None:
        folder = self.folder(task, store)
        aside = _aside(folder)
        place = folder.with_name(f"{folder.name}~{aside[-1][0] + 1 if aside else 1}")
        try:
            folder.rename(place)
            for _, old in aside[: max(0, len(aside) + 1 - SET_ASIDE_MAX)]:
                shutil.rmtree(old)
        except OSError as error:
            raise _unusable(folder, error) from error
        _log.warning(
            "store set aside, it is restored from its changelog",
            task=str(task),
            store=store,
            reason=reason,
            kept_as=str(place),
        )

    def close(self) -> None:
        """Close all stores and give the slot back. Closing twice is harmless."""
        for engine in self._open.values():
            engine.close()
        self._open.clear()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def _take_slot(root: Path) -> tuple[int, int]:
    """Return the first free slot, and the open lock file that holds it."""
    for slot in count():
        lock = os.open(root / f"{slot}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
        except OSError:
            os.close(lock)
            raise
        else:
            return slot, lock
    raise AssertionError("slots do not end")


def _sign(lock: int, run: str) -> str:
    """Write our run into the lock file that we hold; return the one that stood there."""
    found = _RUN.fullmatch(os.pread(lock, 1_000, 0))
    os.ftruncate(lock, 0)
    os.pwrite(lock, run.encode(), 0)
    return "" if found is None else found[0].decode()


def _aside(folder: Path) -> list[tuple[int, Path]]:
    """Return the folders set aside for a store with their numbers, the oldest first."""
    places = folder.parent.glob(f"{folder.name}~*")
    return sorted((int(place.name.rpartition("~")[2]), place) for place in places)


def _folder_name(name: str) -> str:
    """Return a name as a folder's: any text, and never one of ours, whose mark is ``~``."""
    quoted = quote(name, safe="").replace("~", "%7E")
    return quoted.replace(".", "%2E") if quoted in (".", "..") else quoted


def _unusable(folder: Path, error: OSError) -> StateDirError:
    return StateDirError(
        f"the state folder {folder} cannot be used: {error.strerror or error}; "
        "set state_dir to a folder that this user may write"
    )
