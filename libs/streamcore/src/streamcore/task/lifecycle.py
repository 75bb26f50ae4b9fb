"""TaskState: the table of legal moves; docs draw their picture from it."""

from collections.abc import Mapping
from enum import Enum
from typing import Final

from streamcore.model import TaskId


class TaskState(Enum):
    CREATED = "created"  # stores open, changelogs may be restored
    RUNNING = "running"  # takes, processes and commits
    CLOSED = "closed"


NEXT: Final[Mapping[TaskState, frozenset[TaskState]]] = {
    TaskState.CREATED: frozenset({TaskState.RUNNING, TaskState.CLOSED}),
    TaskState.RUNNING: frozenset({TaskState.CLOSED}),
    TaskState.CLOSED: frozenset(),
}


def move(task: TaskId, now: TaskState, to: TaskState) -> TaskState:
    """Return ``to`` if the move is legal; anything else is a bug."""
    if to not in NEXT[now]:
        allowed = ", ".join(sorted(state.name for state in NEXT[now])) or "nothing"
        raise AssertionError(f"task {task}: {now.name} -> {to.name}; allowed: {allowed}")
    return to


def as_mermaid() -> str:
    """Return the table as a Mermaid state diagram."""
    arrows = sorted(f"    {a.name} --> {b.name}" for a, bs in NEXT.items() for b in bs)
    return "\n".join(["stateDiagram-v2", *arrows])
