"""Metrics: their names as documented literals, and the numbers behind them.

Counters are plain numbers that the worker raises once a turn or a commit, never per record. Who
publishes them reads ``Metrics.samples`` whenever it likes. Series of a task, a store or a partition
go with it, and no series depends on keys or on time, so their number is bounded.
"""

from collections.abc import Iterator, Mapping
from typing import Final, Literal, NamedTuple, get_args

Name = Literal[
    "streamcore_rows_processed_total",
    "streamcore_rows_sent_total",
    "streamcore_rows_restored_total",
    "streamcore_rows_followed_total",
    "streamcore_rows_dropped_total",
    "streamcore_rows_refused_total",
    "streamcore_lag_records",
    "streamcore_commits_total",
    "streamcore_commits_failed_total",
    "streamcore_commit_ms_total",
    "streamcore_commit_last_ms",
    "streamcore_commit_max_ms",
    "streamcore_rebuilds_total",
    "streamcore_rebalances_total",
    "streamcore_tasks",
    "streamcore_task_watermark_ms",
    "streamcore_task_watermark_delay_ms",
    "streamcore_task_dirty_bytes",
    "streamcore_store_lag_records",
    "streamcore_store_bytes",
    "streamcore_restore_remaining_records",
    "streamcore_cache_hits_total",
    "streamcore_cache_misses_total",
    "streamcore_throttle_ms_total",
    "streamcore_process_rss_bytes",
    "streamcore_workers_replaced_total",
]

DESCRIPTIONS: Final[dict[Name, str]] = {
    "streamcore_rows_processed_total": "Records that tasks have processed.",
    "streamcore_rows_sent_total": "Records handed to the producer: results, changes, markers.",
    "streamcore_rows_restored_total": "Changelog records applied to stores of tasks that are to "
    "run.",
    "streamcore_rows_followed_total": "Changelog records applied to stores that stand by.",
    "streamcore_rows_dropped_total": "Records that did not go on, by task and reason; anything "
    "but 'late' wants a look at who writes the input.",
    "streamcore_rows_refused_total": "Records that the broker refused, left out (or put into the "
    "topic of dead letters) by policy.",
    "streamcore_lag_records": "Offsets between what is committed of an input partition and its "
    "end. Each is told by the worker that owns it alone, so the sum over all workers is the lag of "
    "the group.",
    "streamcore_commits_total": "Commits that are durable.",
    "streamcore_commits_failed_total": "Commits that failed or did not end in time; they are "
    "tried again, so only a steady rise is bad.",
    "streamcore_commit_ms_total": "Time spent in commits, in milliseconds; divided by the number "
    "of commits it is their mean.",
    "streamcore_commit_last_ms": "How long the last commit took.",
    "streamcore_commit_max_ms": "How long the longest commit of the last one to two minutes took.",
    "streamcore_rebuilds_total": "Tasks taken back to their last commit after an error.",
    "streamcore_rebalances_total": "Generations of the group that this worker has seen.",
    "streamcore_tasks": "Tasks that run.",
    "streamcore_task_watermark_ms": "How far event time has come in a task (epoch ms, -1: not "
    "known yet); it stands still while any upstream partition is unread and not idle.",
    "streamcore_task_watermark_delay_ms": "How far event time is behind the clock of this machine; "
    "absent while it is not known.",
    "streamcore_task_dirty_bytes": "Changes of a task that wait for the next commit.",
    "streamcore_store_lag_records": "Changelog records that a local store has not applied yet; a "
    "standby stays near 0, and takes over without a wait then.",
    "streamcore_store_bytes": "About what a local store takes: on the disk, or in memory if it is "
    "not persistent.",
    "streamcore_restore_remaining_records": "Changelog records that must still be read before all "
    "tasks of this worker run.",
    "streamcore_cache_hits_total": "Keys found in the read cache of a store.",
    "streamcore_cache_misses_total": "Keys that had to be looked up in the store itself.",
    "streamcore_throttle_ms_total": "Time for which brokers held back their answers because a "
    "quota of this client was used up, in milliseconds.",
    "streamcore_process_rss_bytes": "Memory of the process that is resident.",
    "streamcore_workers_replaced_total": "Worker processes started again after one had died.",
}

LABELS: Final[Mapping[Name, tuple[str, ...]]] = {
    "streamcore_rows_dropped_total": ("task", "reason"),
    "streamcore_lag_records": ("topic", "partition"),
    "streamcore_task_watermark_ms": ("task",),
    "streamcore_task_watermark_delay_ms": ("task",),
    "streamcore_task_dirty_bytes": ("task",),
    "streamcore_store_lag_records": ("store", "partition"),
    "streamcore_store_bytes": ("store", "partition"),
    "streamcore_cache_hits_total": ("task", "store"),
    "streamcore_cache_misses_total": ("task", "store"),
}
"""Those that have any; with several worker processes each series has ``worker``, too. Topics are
called by their bare names."""

assert set(DESCRIPTIONS) == set(get_args(Name))

Labels = tuple[tuple[str, str], ...]


class Sample(NamedTuple):
    """One number of one series."""

    name: Name
    labels: Labels
    value: float


class Metrics:
    """The numbers of one worker."""

    def __init__(self) -> None:
        self._values: dict[tuple[Name, Labels], float] = {}
        self.shrunk = False

    def add(self, name: Name, amount: float, **labels: str) -> None:
        """Raise a counter."""
        key = (name, _sorted(labels))
        self._values[key] = self._values.get(key, 0) + amount

    def set(self, name: Name, value: float, **labels: str) -> None:
        """Set a gauge, or a counter that is counted elsewhere."""
        self._values[name, _sorted(labels)] = value

    def replace(self, series: Mapping[Name, Mapping[Labels, float]]) -> None:
        """Have exactly these series of each of these names: all others of them are gone at once."""
        values = {key: value for key, value in self._values.items() if key[0] not in series}
        for name, by_labels in series.items():
            values |= {(name, _sorted(dict(at))): value for at, value in by_labels.items()}
        self._values = values

    def take_shrunk(self) -> bool:
        """Return once that the tasks are gone, so that whoever was told before must be told now."""
        shrunk, self.shrunk = self.shrunk, False
        return shrunk

    def value(self, name: Name, **labels: str) -> float:
        """Return one number, 0 if nobody has counted yet."""
        return self._values.get((name, _sorted(labels)), 0)

    def samples(self) -> Iterator[Sample]:
        """Yield every series; safe while another thread of the program raises counters."""
        for (name, labels), value in list(self._values.items()):
            yield Sample(name, labels, value)


def _sorted(labels: Mapping[str, str]) -> Labels:
    return tuple(sorted(labels.items()))
