"""Metrics: their names as documented literals, and the numbers behind them.

Counters are plain numbers that the worker raises once a turn or a commit, never per record. Who
publishes them reads ``Metrics.samples`` whenever it likes. Series of a task go with the task, and
no series depends on keys or on time, so their number is bounded.
"""

from collections.abc import Iterator
from typing import Final, Literal, NamedTuple, get_args

Name = Literal[
    "streamcore_rows_processed_total",
    "streamcore_rows_sent_total",
    "streamcore_rows_restored_total",
    "streamcore_rows_dropped_total",
    "streamcore_rows_refused_total",
    "streamcore_commits_total",
    "streamcore_commits_failed_total",
    "streamcore_commit_ms_total",
    "streamcore_rebuilds_total",
    "streamcore_rebalances_total",
    "streamcore_tasks",
    "streamcore_task_watermark_ms",
    "streamcore_task_dirty_bytes",
    "streamcore_store_lag_records",
]

DESCRIPTIONS: Final[dict[Name, str]] = {
    "streamcore_rows_processed_total": "Records that tasks have processed.",
    "streamcore_rows_sent_total": "Records handed to the producer: results, changes, markers.",
    "streamcore_rows_restored_total": "Changelog records applied to stores.",
    "streamcore_rows_dropped_total": "Records that did not go on, by task and reason; anything "
    "but 'late' wants a look at who writes the input.",
    "streamcore_rows_refused_total": "Records that the broker refused, left out (or put into the "
    "topic of dead letters) by policy.",
    "streamcore_commits_total": "Commits that are durable.",
    "streamcore_commits_failed_total": "Commits that failed or did not end in time; they are "
    "tried again, so only a steady rise is bad.",
    "streamcore_commit_ms_total": "Time spent in commits, in milliseconds.",
    "streamcore_rebuilds_total": "Tasks taken back to their last commit after an error.",
    "streamcore_rebalances_total": "Generations of the group that this worker has seen.",
    "streamcore_tasks": "Tasks that run.",
    "streamcore_task_watermark_ms": "How far event time has come in a task (epoch ms, -1: not "
    "known yet); it stands still while any upstream partition is unread and not idle.",
    "streamcore_task_dirty_bytes": "Changes of a task that wait for the next commit.",
    "streamcore_store_lag_records": "Changelog records that a local store has not applied yet; a "
    "standby stays near 0, and takes over without a wait then.",
}
assert set(DESCRIPTIONS) == set(get_args(Name))


class Sample(NamedTuple):
    """One number of one series."""

    name: Name
    labels: tuple[tuple[str, str], ...]
    value: float


class Metrics:
    """The numbers of one worker."""

    def __init__(self) -> None:
        self._values: dict[tuple[Name, tuple[tuple[str, str], ...]], float] = {}

    def add(self, name: Name, amount: float, **labels: str) -> None:
        """Raise a counter."""
        key = (name, tuple(sorted(labels.items())))
        self._values[key] = self._values.get(key, 0) + amount

    def set(self, name: Name, value: float, **labels: str) -> None:
        """Set a gauge, or a counter that is counted elsewhere."""
        self._values[name, tuple(sorted(labels.items()))] = value

    def forget(self, **labels: str) -> None:
        """Remove every series that carries all of these labels: their owner is gone."""
        gone = set(labels.items())
        self._values = {
            key: value for key, value in self._values.items() if not gone <= set(key[1])
        }

    def value(self, name: Name, **labels: str) -> float:
        """Return one number, 0 if nobody has counted yet."""
        return self._values.get((name, tuple(sorted(labels.items()))), 0)

    def samples(self) -> Iterator[Sample]:
        """Yield every series; safe while another thread of the program raises counters."""
        for (name, labels), value in list(self._values.items()):
            yield Sample(name, labels, value)
