"""Engines: the open stores of a worker, by task. They outlive the tasks that are built over them.

Stores that are not persistent live in memory; they too survive a rebuild, but nothing else.
"""

from collections.abc import Container, Iterable

from streamcore.model import TaskId
from streamcore.runtime.ports import StateDir
from streamcore.state.engine import Engine
from streamcore.state.memory import MemoryEngine
from streamcore.topology.nodes import StoreSpec


class Engines:
    """Opens, keeps and gives up engines."""

    def __init__(self, state_dir: StateDir) -> None:
        self._state_dir = state_dir
        self._open: dict[TaskId, dict[str, Engine]] = {}

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

    def keep_only(self, tasks: Container[TaskId]) -> None:
        """Close the engines of all other tasks, so that their new owners can open them."""
        for task in [task for task in self._open if task not in tasks]:
            for engine in self._open.pop(task).values():
                engine.close()

    def close(self) -> None:
        self.keep_only(())
        self._state_dir.close()
