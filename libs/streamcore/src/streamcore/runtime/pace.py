"""Pace: how much tasks may do before the cluster has taken what came of it.

A last commit has seconds, and what it does not get through in them is done again by whoever comes
next. Where a quota or a slow line lets little through, little may wait for a commit. So a worker
begins with little and does more as it sees that more goes through; what a quota lets pass at once
is no proof beyond the ten seconds over which brokers measure it.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from streamcore.model import TaskId
from streamcore.task import Task

BEGIN_BYTES: Final = 512 * 1024
"""Changes that may wait for a commit when nothing is known, as they are counted in memory: that is
at least twice what is sent of them."""
LEAST_BYTES: Final = 64 * 1024
BEGIN_ROWS: Final = 500
LEAST_ROWS: Final = 50
ROW_BY_ROW: Final = 500
"""Rows of a task in trouble that one turn takes, one at a time."""

MEASURED_MS: Final = 10_000
"""What waits for a commit should go through in so long; brokers measure quotas over this time."""
SLOW_MS: Final = 2_000
"""A commit that takes longer proves nothing but how much goes through."""


class Pace:
    """Rows for each task and turn, and bytes that may wait for the next commit."""

    def __init__(self, rows_max: int) -> None:
        self._rows_max = rows_max
        self._rows = min(BEGIN_ROWS, rows_max)
        self._most = 0  # rows that a task processed in this turn
        self._last: TaskId | None = None  # the one behind which the others did not come to run
        self._cut_ms: int | None = None
        self._cut_bytes = 0
        self._lately: deque[tuple[int, int]] = deque()  # commits: when, bytes
        self.bytes_max = BEGIN_BYTES
        """So much may wait for a commit."""

    def in_turn(self, tasks: Mapping[TaskId, Task], blocked: Callable[[], bool]) -> Iterator[Task]:
        """Yield the tasks until something waits outside the producer; then the others are first
        the next time.
        """
        ids, self._most = list(tasks), 0
        behind = ids.index(self._last) + 1 if self._last in ids else 0
        for task_id in ids[behind:] + ids[:behind]:
            yield tasks[task_id]
            if blocked():
                self._last = task_id
                self._rows = max(min(LEAST_ROWS, self._rows_max), self._rows // 2)
                return
        if self._most >= self._rows:
            self._rows = min(2 * self._rows, self._rows_max)

    def run(self, task: Task, now_ms: int, *, row_by_row: bool) -> int:
        """Let the task process; return how many rows it did."""
        rows = 0
        if row_by_row:
            while rows < ROW_BY_ROW and task.process(now_ms, 1):
                rows += 1
        else:
            rows = task.process(now_ms, self._rows)
        self._most = max(self._most, rows)
        task.punctuate(now_ms)
        return rows

    def cut(self, dirty_bytes: int, now_ms: int) -> None:
        """A commit begins, or one that was not done in time goes on with more."""
        if self._cut_ms is None:
            self._cut_ms = now_ms
        self._cut_bytes = max(self._cut_bytes, dirty_bytes)  # what was cut before is still in it

    def committed(self, now_ms: int) -> None:
        """Everything that was cut is durable."""
        if self._cut_ms is None:  # a callback had finished it, and ended the generation
            return
        took_ms, cut_bytes = now_ms - self._cut_ms, self._cut_bytes
        self._cut_ms, self._cut_bytes = None, 0
        if took_ms > SLOW_MS:
            self._lately.clear()
            passes = max(LEAST_BYTES, cut_bytes * MEASURED_MS // took_ms)
            self.bytes_max = min(self.bytes_max, passes)
            return
        self._lately.append((now_ms, cut_bytes))
        while not 0 <= now_ms - self._lately[0][0] < MEASURED_MS:
            self._lately.popleft()
        lately_bytes = sum(size for _, size in self._lately)
        self.bytes_max = max(self.bytes_max, lately_bytes, cut_bytes * 5 // 4)

    def forget(self) -> None:
        """What was cut will not be committed: its tasks are gone."""
        self._cut_ms, self._cut_bytes = None, 0
