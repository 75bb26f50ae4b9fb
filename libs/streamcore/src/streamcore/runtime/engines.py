"""Engines: the open stores of a worker, by task. They outlive the tasks that are built over them.

Stores that are not persistent live in memory; they too survive a rebuild, but nothing else. What a
task that went elsewhere left on the disk stays for a while, in case that it comes back.
"""

from collections.abc import Collection, Iterable

from streamcore.model import TaskId
from streamcore.runtime.ports import StateDir
from streamcore.state.engine import Engine
from streamcore.state.memory import MemoryEngine
from streamcore.topology.nodes import StoreSpec

STAMP_MS = 3_600_000
"""How often the stores of tasks that run say on the disk that they miss nothing, changed or not."""

CLEAN_UP_MS = 600_000
"""How long the folders of tasks that went elsewhere are kept."""


class Engines:
    """Opens, keeps and gives up engines."""

    def __init__(self, state_dir: StateDir) -> None:
        self._state_dir = state_dir
        self._open: dict[TaskId, dict[str, Engine]] = {}
        self._kept: frozenset[TaskId] | None = None
        self._clean_up_at_ms: int | None = None  # None: not yet known, or done
        self._changed = False
        self._stamped_ms = 0

    def of(self, task: TaskId, stores: Iterable[StoreSpec]) -> dict[str, Engine]:
        """Return the engines of a task's stores; those that are open and well stay so.

        :raises StateDirLockedError: if another process holds the task's folder.
        """
        engines = self._open.setdefault(task, {})
        for spec in stores:
            if spec.persistent:  # asked again each time: a damaged one is replaced by the folder
                engines[spec.name] = self._state_dir.open(task, spec.name)
            elif spec.name not in engines:
                engines[spec.name] = MemoryEngine()
        return dict(engines)

    def discard(self, task: TaskId, spec: StoreSpec) -> None:
        """Throw away what a store holds; the next ``of`` opens an empty one."""
        engine = self._open.get(task, {}).pop(spec.name, None)
        if engine is None:
            return
        engine.close()
        if spec.persistent:
            self._state_dir.discard(task, spec.name)

    def keep_only(self, tasks: Collection[TaskId]) -> None:
        """Close the engines of all other tasks, so that their new owners can open them."""
        for task in [task for task in self._open if task not in tasks]:
            for engine in self._open.pop(task).values():
                engine.close()
        if self._kept != frozenset(tasks):
            self._kept, self._changed = frozenset(tasks), True

    def stamp(self, tasks: Iterable[TaskId], now_ms: int) -> None:
        """Note now and then that the stores of these tasks are up to date: whoever opens them later
        judges by that what they may have missed.
        """
        if 0 <= now_ms - self._stamped_ms < STAMP_MS:
            return
        self._stamped_ms = now_ms
        for task in tasks:
            for engine in self._open.get(task, {}).values():
                engine.write((), engine.position())

    def clean_up(self, now_ms: int) -> None:
        """Remove the folders of tasks that have long been elsewhere, once they have."""
        if self._changed:
            self._changed, self._clean_up_at_ms = False, now_ms + CLEAN_UP_MS
        due_ms = self._clean_up_at_ms
        if due_ms is not None and self._kept is not None and now_ms >= due_ms:
            self._clean_up_at_ms = None
            self._state_dir.clean_up(self._kept)

    def sizes(self) -> dict[tuple[TaskId, str], int]:
        """Return about how many bytes each open store takes where it lives."""
        return {
            (task, store): engine.size_bytes()
            for task, engines in self._open.items()
            for store, engine in engines.items()
        }

    def close(self) -> None:
        self.keep_only(())
        self._state_dir.close()
