"""Clocks of a task's inputs: one per source partition, a vector per repartition partition.

A source partition's clock is the highest timestamp *processed* from it. It falls asleep when it has
been read to the high watermark and its clock has not moved for ``idle_after_ms``; that is earned
again after each start. A repartition partition knows the mark of every upstream task, as their
markers told; an upstream task that has not spoken yet holds the watermark, and so does one that was
idle and has not said so again: nobody knows what waits for its next owner.
"""

from dataclasses import dataclass, field
from itertools import accumulate

from streamcore.model import NO_TIME_MS
from streamcore.operators.marker import Marker
from streamcore.operators.watermark import Mark, combine

KEEP_MS = 60_000
"""For how long it is remembered what was told when; nobody speaks later than that."""


@dataclass(slots=True)
class SourceClock:
    """The clock of one partition of a topic that somebody outside writes."""

    idle_after_ms: int
    ms: int = NO_TIME_MS
    moved_at_ms: int = 0
    _before: tuple[int, int] = (NO_TIME_MS, 0)

    def start(self, now_ms: int) -> None:
        """Idleness counts from here."""
        self.moved_at_ms = now_ms

    def read(self, stamps_ms: list[int], now_ms: int) -> list[int]:
        """Return the clock of each row and move on; the same list when all rows are in order."""
        self._before = (self.ms, self.moved_at_ms)
        clocks_ms = list(accumulate(stamps_ms, max, initial=self.ms))
        del clocks_ms[0]
        if clocks_ms[-1] > self.ms:
            self.ms = clocks_ms[-1]
            self.moved_at_ms = now_ms
        return stamps_ms if clocks_ms == stamps_ms else clocks_ms

    def take_back(self) -> None:
        """Forget the last ``read``: its rows were not processed after all."""
        self.ms, self.moved_at_ms = self._before

    def mark(self, now_ms: int, *, caught_up: bool) -> Mark:
        return Mark(self.ms, caught_up and now_ms - self.moved_at_ms >= self.idle_after_ms)


@dataclass(slots=True)
class UpstreamClocks:
    """What the tasks that write a repartition topic have told this partition.

    A task that says it is idle is taken at its word for that moment only: its mark rises to what
    the others had told before it, in the same log and by its own clock on the wall (its word may
    have been under way while they went on). To let more close it has to say so again. A task that
    has lost its owner says nothing, and so holds the watermark.

    Whether *all* are idle matters to the next repartition topic alone; that word is believed for
    ``idle_lease_ms``, measured between the markers themselves, and never over a start.
    """

    tasks: int
    idle_lease_ms: int
    marks_ms: list[int] = field(default_factory=list)
    idle_until_ms: list[int] = field(default_factory=list)  # NO_TIME_MS: awake
    heard_ms: int = NO_TIME_MS  # when the newest marker was written
    _told: list[list[tuple[int, int]]] = field(default_factory=list)  # (said at, mark), rising

    def __post_init__(self) -> None:
        self._grow(self.tasks)

    def _grow(self, tasks: int) -> None:
        self.marks_ms += [NO_TIME_MS] * (tasks - len(self.marks_ms))
        self.idle_until_ms += [NO_TIME_MS] * (len(self.marks_ms) - len(self.idle_until_ms))
        # Nobody knows when the marks of the last commit were told: they count for no idle task.
        self._told += [[] for _ in range(len(self.marks_ms) - len(self._told))]

    def hear(self, marker: Marker, said_at_ms: int) -> None:
        """Note a marker. A mark never goes back; only whether its task is idle may."""
        task, (ms, idle) = marker.task, marker.mark
        self._grow(task + 1)
        if idle:
            ms = max(ms, self._others(task, said_at_ms).ms)
        self.marks_ms[task] = max(self.marks_ms[task], ms)
        told = self._told[task]
        if not told or ms > told[-1][1]:
            told.append((said_at_ms, ms))
            while len(told) > 1 and told[1][0] <= said_at_ms - KEEP_MS:
                del told[0]
        self.idle_until_ms[task] = said_at_ms + self.idle_lease_ms if idle else NO_TIME_MS
        self.heard_ms = max(self.heard_ms, said_at_ms)

    def _others(self, task: int, at_ms: int) -> Mark:
        """Return what the others had told by then: who spoke late may know of nothing since."""
        return combine(
            Mark(self._mark_by(other, at_ms), until_ms != NO_TIME_MS)
            for other, until_ms in enumerate(self.idle_until_ms)
            if other != task
        )

    def _mark_by(self, task: int, at_ms: int) -> int:
        known = [ms for said_at_ms, ms in self._told[task] if said_at_ms <= at_ms]
        return known[-1] if known else NO_TIME_MS

    def mark(self) -> Mark:
        idle_until_ms = min(self.idle_until_ms, default=NO_TIME_MS)
        idle = idle_until_ms != NO_TIME_MS and self.heard_ms <= idle_until_ms
        return Mark(min(self.marks_ms, default=NO_TIME_MS), idle)
