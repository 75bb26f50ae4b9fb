"""What a change of the group does to the counts: one event, watched from where they arrive."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from benchmarks.fleet import PARTITIONS, Fleet, moved
from benchmarks.measure import RunError
from benchmarks.steady import Arrivals, Steady

RATE = 200  # words a second into each partition
_BEFORE_S = 3.0
_FLOWING_S = 3.0
_FRESH_S = 1.0
_TIMEOUT_S = 150.0
_LAST_COUNTS_S = 20.0


@dataclass(frozen=True, slots=True)
class Move:
    """What one event did. Times are in seconds, each the longest of its kind."""

    took_over_s: float
    """From the event until the first count of the last task that moved."""
    idle_s: float
    """Without a count, of a task that moved."""
    stayed_s: float
    """Without a count, of a task that stayed."""
    normal_s: float
    """Without a count, of any task, before the event."""
    moved: int
    stayed: int

    def __str__(self) -> str:
        return (
            f"{self.moved} tasks moved, idle for {self.idle_s:.2f} s;"
            f" {self.stayed} stayed, idle for {self.stayed_s:.2f} s;"
            f" before, the longest gap was {self.normal_s:.2f} s"
        )


class Watch:
    """A fleet under a steady flow of words, and the arrivals of its counts."""

    def __init__(self, fleet: Fleet, arrivals: Arrivals) -> None:
        self._fleet = fleet
        self._arrivals = arrivals
        self.fed = 0

    @property
    def counted(self) -> int:
        """The words counted so far, as the counts say that arrived."""
        return self._arrivals.counted

    @property
    def is_exact(self) -> bool:
        """Say whether the counts are what the guarantee promises."""
        if self._fleet.job.guarantee == "exactly_once_v2":
            return 0 < self.counted == self.fed
        return 0 < self.fed <= self.counted

    def move(self, event: Callable[[], float], is_done: Callable[[], bool]) -> Move:
        """Make the event happen while words flow; return what it did, once it is done.

        `event` returns when it happened. RunError when a task never counts again.
        """
        steady = Steady(self._fleet.job.bootstrap, self._fleet.job.words_topic, PARTITIONS, RATE)
        steady.start()
        try:
            self._flowing(time.monotonic())
            owners = self._fleet.owners()
            moment = event()
            self._fleet.wait("the end of the move", is_done, _TIMEOUT_S)
            self._flowing(time.monotonic())
            until = time.monotonic()
            gone, stayed = moved(owners, self._fleet.owners())
        finally:
            steady.stop()
        self.fed += steady.fed
        self._last_counts()
        series = self._arrivals.series
        idle = [series[task].longest_gap(moment, until) for task in gone]
        first = [series[task].longest_gap(moment, until, whole=False) for task in gone]
        if not all(gap.ended for gap in (*idle, *first)):
            raise RunError(f"{self._fleet.job.application_id}: a task did not count again")
        return Move(
            took_over_s=max((gap.end - moment for gap in first), default=0.0),
            idle_s=max((gap.seconds for gap in idle), default=0.0),
            stayed_s=max(
                (series[task].longest_gap(moment, until).seconds for task in stayed), default=0.0
            ),
            normal_s=max(
                one.longest_gap(moment - _BEFORE_S, moment, whole=False).seconds
                for one in series.values()
            ),
            moved=len(gone),
            stayed=len(stayed),
        )

    def _flowing(self, since: float) -> None:
        """Return when counts of every task have been arriving without a break for a while."""
        broken = since

        def is_flowing() -> bool:
            nonlocal broken
            now = time.monotonic()
            if not self._arrivals.all_since(max(since, now - _FRESH_S)):
                broken = now
            return now - broken >= _FLOWING_S

        self._fleet.wait("counts of every task", is_flowing, _TIMEOUT_S)

    def _last_counts(self) -> None:
        """Wait until every word has been counted; one that is counted twice is seen later."""
        deadline = time.monotonic() + _LAST_COUNTS_S
        while self.counted < self.fed and time.monotonic() < deadline:
            time.sleep(0.1)
        time.sleep(0.5)


@contextmanager
def watch(fleet: Fleet) -> Iterator[Watch]:
    """Yield a watch over a fleet whose counts so far are not of interest."""
    with Arrivals(fleet.broker, fleet.job.counts_topic, PARTITIONS) as arrivals:
        yield Watch(fleet, arrivals)
