"""The disks of a test driver: engines by task and store. They outlive tasks until wiped."""

from collections.abc import Callable

from streamcore.model import TaskId
from streamcore.state.engine import Engine
from streamcore.state.memory import MemoryEngine

MakeEngine = Callable[[TaskId, str], Engine]
"""Opens the engine of a task's store; opened again after ``close`` it must find its data."""


class Engines:
    """Engines of all tasks, in memory unless ``make`` says otherwise."""

    def __init__(self, make: MakeEngine | None) -> None:
        self._make = make
        self._memory: dict[tuple[TaskId, str], MemoryEngine] = {}
        self._open: dict[tuple[TaskId, str], Engine] = {}
        self._wiped: set[tuple[TaskId, str]] = set()

    def open(self, task: TaskId, store: str) -> Engine:
        """Return the engine with what was written before, unless it was wiped meanwhile."""
        at = (task, store)
        if self._make is not None and at not in self._wiped:
            self._open[at] = self._make(task, store)
        else:
            engine = self._memory.setdefault(at, MemoryEngine())
            engine.reopen()
            self._open[at] = engine
        return self._open[at]

    def close(self, task: TaskId, *, wipe: bool = False) -> None:
        """Close a task's engines; ``wipe`` loses their data (what comes next is in memory)."""
        for at in [at for at in self._open if at[0] == task]:
            self._open.pop(at).close()
            if wipe:
                self._wiped.add(at)
                self._memory.pop(at, None)
