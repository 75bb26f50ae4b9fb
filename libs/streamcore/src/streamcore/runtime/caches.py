"""Caches: how much memory the tasks of a worker may take between two commits, and for reading."""

from streamcore.runtime.pace import Pace
from streamcore.runtime.tasks import Tasks


class Caches:
    """One limit for all tasks; half of it is for changes, half for reading."""

    def __init__(self, tasks: Tasks, bytes_max: int, pace: Pace) -> None:
        self._tasks = tasks
        self._pace = pace
        self._bytes_max = bytes_max
        self.limit_bytes = bytes_max
        """What is allowed now: the setting, or less while memory is short."""

    @property
    def taken_bytes(self) -> int:
        """About how much memory changes and read caches take now."""
        return sum(
            task.dirty_bytes + sum(store.cached_bytes for store in task.stores.values())
            for task in self._tasks.running.values()
        )

    @property
    def dirty_bytes(self) -> int:
        """About how much memory the changes take that wait for a commit."""
        return sum(task.dirty_bytes for task in self._tasks.running.values())

    @property
    def full(self) -> bool:
        """Whether the changes that wait are more than their half, or than what will go through in
        time once somebody asks us to stop.
        """
        return self.dirty_bytes > min(self.limit_bytes // 2, self._pace.bytes_max)

    def limit(self, limit_bytes: int) -> None:
        """Allow so much from now on, what is over it goes at once; harmless to repeat.

        Tasks that begin later start with what the setting allows, so it wants to be repeated.
        """
        self.limit_bytes = max(0, min(limit_bytes, self._bytes_max))
        part = self.limit_bytes / self._bytes_max
        for task in self._tasks.running.values():
            for store in task.stores.values():
                store.limit_cache(part)
