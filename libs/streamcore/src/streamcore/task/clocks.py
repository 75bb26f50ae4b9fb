"""Clocks of a task's inputs: one per source partition, a vector per repartition partition.

A source partition's clock is the highest timestamp *processed* from it. It falls asleep when it has
been read to the high watermark and its clock has not moved for ``idle_after_ms``; that is earned
again after each start. A repartition partition knows the mark of every upstream task, as their
markers told; an upstream task that has not spoken yet holds the watermark, and so does one that was
idle and has not said so again for a while: nobody knows what waits for its next owner.
"""

from dataclasses import dataclass, field
from itertools import accumulate

from streamcore.model import NO_TIME_MS
from streamcore.operators.marker import Marker
from streamcore.operators.watermark import UNKNOWN, Mark, combine


@dataclass(slots=True)
class SourceClock:
    """The clock of one partition of a topic that somebody outside writes."""

    idle_after_ms: int
    ms: int = NO_TIME_MS
    moved_at_ms: int = 0

    def start(self, now_ms: int) -> None:
        """Idleness counts from here."""
        self.moved_at_ms = now_ms

    def read(self, stamps_ms: list[int], now_ms: int) -> list[int]:
        """Return the clock of each row and move on; the same list when all rows are in order."""
        clocks_ms = list(accumulate(stamps_ms, max, initial=self.ms))
        del clocks_ms[0]
        if clocks_ms[-1] > self.ms:
            self.ms = clocks_ms[-1]
            self.moved_at_ms = now_ms
        return stamps_ms if clocks_ms == stamps_ms else clocks_ms

    def mark(self, now_ms: int, *, caught_up: bool) -> Mark:
        return Mark(self.ms, caught_up and now_ms - self.moved_at_ms >= self.idle_after_ms)


@dataclass(slots=True)
class UpstreamClocks:
    """What the tasks that write a repartition topic have told this partition.

    ``idle_lease_ms``: how long an idle mark is believed, counted from the marker's own timestamp.
    Idle marks of before a start are not believed at all.
    """

    tasks: int
    idle_lease_ms: int
    marks: list[Mark] = field(default_factory=list)
    idle_until_ms: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.marks = [Mark(mark.ms, False) for mark in self.marks]
        self._grow(self.tasks)

    def _grow(self, tasks: int) -> None:
        self.marks += [UNKNOWN] * (tasks - len(self.marks))
        self.idle_until_ms += [NO_TIME_MS] * (len(self.marks) - len(self.idle_until_ms))

    def hear(self, marker: Marker, said_at_ms: int) -> None:
        """Note a marker. A mark never goes back; only whether its task is idle may."""
        self._grow(marker.task + 1)
        before = self.marks[marker.task]
        self.marks[marker.task] = Mark(max(before.ms, marker.mark.ms), marker.mark.idle)
        self.idle_until_ms[marker.task] = said_at_ms + self.idle_lease_ms

    def mark(self, now_ms: int) -> Mark:
        return combine(
            Mark(ms, idle and now_ms <= until_ms)
            for (ms, idle), until_ms in zip(self.marks, self.idle_until_ms, strict=True)
        )
