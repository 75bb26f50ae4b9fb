"""The verdict of a run: what speaks against it, and its last line with the figures."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from devstack.chaos.options import ChaosOptions
from devstack.chaos.plan import OUTAGE_S, SERVICES, Fault, Step, count_faults, count_kills
from devstack.chaos.recount import Comparison, Counts, Difference, Recount

ROWS_SHOWN: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """All that is known at the end of a run."""

    options: ChaosOptions
    planned: Sequence[Step]
    done: Sequence[Step]
    lines_fed: int
    words_fed: int
    words_a_second: float
    seconds: float
    lines_read: int
    recount: Recount
    comparison: Comparison

    def problems(self) -> list[str]:
        """Return what makes the run a failure, in one line each; nothing: it has passed."""
        found = [*self._empty(), *self._unlike(), *self._left_undone()]
        if self.lines_read != self.lines_fed:
            found.append(
                f"{self.lines_fed:,} lines were fed, but {self.lines_read:,} are in the topic"
            )
        if self.words_a_second < self.options.rate and self.words_fed:
            found.append(
                f"only {self.words_a_second:,.0f} words/s were fed, not {self.options.rate:,}"
            )
        return found

    def last_line(self) -> str:
        """Return the figures in one line, and what they mean."""
        failed = bool(self.problems())
        return (
            f"chaos {'FAILED' if failed else 'passed'}: {self.options.guarantee}, "
            f"seed {self.options.seed}: {self._counted()}; fed {self.words_fed:,} words in "
            f"{self.seconds:.0f} s ({self.words_a_second:,.0f}/s), {self.recount.late:,} of them "
            f"too late to count; {describe_faults(self.done)}"
        )

    def _empty(self) -> list[str]:
        found = [] if self.words_fed else ["nothing was fed"]
        if not self.recount.counts:
            found.append("the topic of lines holds nothing to count")
        if not self.comparison.rows:
            found.append("nothing was counted: the table is empty")
        return found

    def _unlike(self) -> list[str]:
        found, comparison = [], self.comparison
        if comparison.below:
            found.append(
                f"{len(comparison.below):,} rows are too low, by {comparison.lost:,} words"
            )
        if comparison.above and self.options.exactly_once:
            found.append(
                f"{len(comparison.above):,} rows are too high, by {comparison.surplus:,} words"
            )
        return found

    def _left_undone(self) -> list[str]:
        planned, done = count_faults(self.planned), count_faults(self.done)
        return [
            f"{fault}: {planned[fault]} times planned, {done[fault]} times done"
            for fault in Fault
            if planned[fault] != done[fault]
        ]

    def _counted(self) -> str:
        comparison, recount = self.comparison, self.recount
        what = (
            f"{recount.words:,} words in {recount.windows:,} windows, {comparison.rows:,} rows in "
            "PostgreSQL, "
        )
        if comparison.equal:
            surplus = "" if self.options.exactly_once else ": surplus 0"
            return f"{what}each equal to the recount, to the unit{surplus}"
        wrong = len(comparison.below) + len(comparison.above)
        if comparison.below or self.options.exactly_once:
            return f"{what}{wrong:,} of them not equal to the recount"
        return (
            f"{what}none below the recount, surplus {comparison.surplus:,} words "
            f"({comparison.surplus / recount.words:.2%}) in {wrong:,} rows"
        )


def describe_faults(done: Sequence[Step]) -> str:
    """Return how often which service was killed, and each kind of fault."""
    kills, faults = count_kills(done), count_faults(done)
    killed = ", ".join(f"{service} {kills[service]}" for service in SERVICES)
    kinds = {
        "kill -9": faults[Fault.KILL] + faults[Fault.WIPE],
        "disk wiped": faults[Fault.WIPE],
        "SIGTERM": faults[Fault.TERM],
        "aggregator 1-3-1": faults[Fault.SCALE],
        f"broker away for {OUTAGE_S:.0f} s": faults[Fault.BROKER_UP],
        "PostgreSQL restarted": faults[Fault.DATABASE],
    }
    return f"killed: {killed}; {', '.join(f'{kind}: {n}' for kind, n in kinds.items())}"


def describe_rows(comparison: Comparison, in_topic: Callable[[], Counts]) -> list[str]:
    """Return the first rows that differ, with what the aggregator's topic says about them."""
    differing = [*comparison.below, *comparison.above]
    if not differing:
        return []
    topic = in_topic()
    aggregator = sum(topic.get(row.key, 0) != row.wanted for row in differing)
    by_window = Counter(_clock(row) for row in differing)
    return [
        *(
            f"  {_clock(row)} {row.key.word}: {row.found}, recount {row.wanted}, "
            f"aggregator's topic {topic.get(row.key, 0)}"
            for row in differing[:ROWS_SHOWN]
        ),
        f"  {len(differing):,} rows differ, {aggregator:,} of them in the aggregator's topic too",
        f"  by window: {', '.join(f'{at} {n}' for at, n in sorted(by_window.items())[:10])}",
    ]


def _clock(row: Difference) -> str:
    return f"{datetime.fromtimestamp(row.key.start_ms / 1000, UTC):%H:%M:%S}"
