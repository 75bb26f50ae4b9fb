"""WorkerState: the states of a worker, the legal moves between them, and who is told.

The table is the truth: one method makes the moves, the picture in the documents is printed from it.
"""

from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Final

import structlog

_log = structlog.get_logger("streamcore.worker")


class WorkerState(Enum):
    """What a worker is doing."""

    CREATED = "created"
    WARMING_UP = "warming up"  # not in the group yet: reading the state of tasks it will get
    REBALANCING = "rebalancing"  # waiting for the group, or taking over what it gave us
    RESTORING = "restoring"  # some task reads its changelogs; the others run
    RUNNING = "running"  # every task runs (there may be none)
    PENDING_SHUTDOWN = "pending shutdown"
    NOT_RUNNING = "not running"
    ERROR = "error"  # stopped by an error; only closing is left


NEXT: Final[Mapping[WorkerState, frozenset[WorkerState]]] = {
    WorkerState.CREATED: frozenset(
        {WorkerState.WARMING_UP, WorkerState.PENDING_SHUTDOWN, WorkerState.ERROR}
    ),
    WorkerState.WARMING_UP: frozenset(
        {
            WorkerState.REBALANCING,
            WorkerState.RESTORING,
            WorkerState.RUNNING,
            WorkerState.PENDING_SHUTDOWN,
            WorkerState.ERROR,
        }
    ),
    WorkerState.REBALANCING: frozenset(
        {
            WorkerState.WARMING_UP,
            WorkerState.RESTORING,
            WorkerState.RUNNING,
            WorkerState.PENDING_SHUTDOWN,
            WorkerState.ERROR,
        }
    ),
    WorkerState.RESTORING: frozenset(
        {
            WorkerState.WARMING_UP,
            WorkerState.REBALANCING,
            WorkerState.RUNNING,
            WorkerState.PENDING_SHUTDOWN,
            WorkerState.ERROR,
        }
    ),
    WorkerState.RUNNING: frozenset(
        {
            WorkerState.WARMING_UP,
            WorkerState.REBALANCING,
            WorkerState.RESTORING,
            WorkerState.PENDING_SHUTDOWN,
            WorkerState.ERROR,
        }
    ),
    WorkerState.PENDING_SHUTDOWN: frozenset({WorkerState.NOT_RUNNING, WorkerState.ERROR}),
    WorkerState.ERROR: frozenset({WorkerState.NOT_RUNNING}),
    WorkerState.NOT_RUNNING: frozenset(),
}

StateListener = Callable[[WorkerState, WorkerState], None]
"""Called with the old and the new state, after the move. What it raises is logged, and the worker
goes on."""


class Lifecycle:
    """The state of one worker, and the one place that changes it."""

    def __init__(self, listeners: Iterable[StateListener] = ()) -> None:
        self.state = WorkerState.CREATED
        self._listeners = tuple(listeners)

    def move(self, to: WorkerState) -> None:
        """Go to ``to`` and tell the listeners; staying where one is tells nobody."""
        before = self.state
        if to is before:
            return
        if to not in NEXT[before]:
            allowed = ", ".join(sorted(s.name for s in NEXT[before])) or "nothing"
            raise AssertionError(f"worker: {before.name} -> {to.name}; allowed: {allowed}")
        self.state = to
        for listener in self._listeners:
            try:
                listener(before, to)
            except Exception:  # a last commit, say, is not to be lost for it
                _log.exception("a state listener failed", state=to.value)


def as_mermaid() -> str:
    """Return the table as a Mermaid state diagram."""
    arrows = sorted(f"    {a.name} --> {b.name}" for a, later in NEXT.items() for b in later)
    return "\n".join(["stateDiagram-v2", *arrows])
