"""Troubles: rows that make user code fail, and how the worker finds and passes them.

A batch that fails does not say which row it was. So the task is rebuilt from its last commit and
goes row by row: now the error names the row. It is rebuilt once more with that row marked, and the
policy for processing errors decides about it in its turn. When a commit is past everything that
had been fetched at the time, the task goes in batches again.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from streamcore.errors import ProcessingError
from streamcore.model import OffsetAndMetadata, TaskId, TopicPartition


@dataclass(slots=True)
class _Trouble:
    until: dict[TopicPartition, int]
    rows: dict[tuple[TopicPartition, int], ProcessingError] = field(default_factory=dict)


class Troubles:
    """The failing rows of all tasks of a worker."""

    def __init__(self) -> None:
        self._of: dict[TaskId, _Trouble] = {}

    def note(
        self,
        task: TaskId,
        error: ProcessingError,
        fetched_to: Mapping[TopicPartition, int],
        *,
        exact: bool,
    ) -> None:
        """Take note that a row failed; ``fetched_to``: how far the task's inputs were read.

        ``exact``: the error names the very row, and not only the batch that it is in.
        """
        trouble = self._of.setdefault(task, _Trouble({}))
        if exact:
            trouble.rows[error.partition, error.offset] = error
        for tp, offset in fetched_to.items():
            trouble.until[tp] = max(offset, trouble.until.get(tp, 0))

    def row_by_row(self, task: TaskId) -> bool:
        return task in self._of

    def rows(self, task: TaskId) -> Mapping[tuple[TopicPartition, int], ProcessingError]:
        """Return the rows to mark in a new build of the task."""
        trouble = self._of.get(task)
        return {} if trouble is None else trouble.rows

    def relieve(self, committed: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Forget troubles that are behind the commits of their tasks."""
        for task in [task for task, trouble in self._of.items() if _is_past(trouble, committed)]:
            del self._of[task]

    def keep_only(self, tasks: Mapping[TaskId, object]) -> None:
        self._of = {task: trouble for task, trouble in self._of.items() if task in tasks}


def _is_past(trouble: _Trouble, committed: Mapping[TopicPartition, OffsetAndMetadata]) -> bool:
    return all(
        tp in committed and committed[tp].offset >= offset for tp, offset in trouble.until.items()
    )
