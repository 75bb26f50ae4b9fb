"""Report: what a worker tells of itself. Counters move at each commit, the rest once a second."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from streamcore.model import TaskId
from streamcore.runtime.blueprint import Blueprint
from streamcore.runtime.commit import Committer
from streamcore.runtime.engines import Engines
from streamcore.runtime.input_lags import InputLags
from streamcore.runtime.metrics import Labels, Metrics, Name
from streamcore.runtime.outbound import Outbound
from streamcore.runtime.ports import Admin, Consumer
from streamcore.runtime.restore import Lag, Restorer
from streamcore.runtime.standby import Standbys
from streamcore.runtime.task_metrics import TaskMetrics
from streamcore.runtime.tasks import Tasks

READ_MS = 1_000
"""How often gauges are read."""

SIZES_MS = 10_000
"""How often stores are asked for their size."""

LONGEST_MS = 60_000
"""The longest commit is remembered for once to twice this time."""


class Told(NamedTuple):
    """What a worker tells of."""

    tasks: Tasks
    standbys: Standbys
    engines: Engines
    restorer: Restorer
    committer: Committer
    outbound: Outbound


class Report:
    """Metrics and store lags of one worker. Other threads of the program may read both."""

    def __init__(self, blueprint: Blueprint, admin: Admin, told: Told) -> None:
        self._names = blueprint.names
        self._told = told
        self._input_lags = InputLags(admin, blueprint.settings.request_timeout_ms)
        self._sizes: dict[tuple[TaskId, str], int] = {}
        self._read_ms = self._sizes_ms = self._longest_ms = 0
        self._longest = (0, 0)  # the longest commit of this period, and of the one before
        self.metrics = Metrics()
        self._task_metrics = TaskMetrics(self.metrics)
        self.store_lags: Mapping[str, Mapping[int, Lag]] = MappingProxyType({})
        """Store -> partition -> lag; replaced as a whole."""

    def publish(self) -> None:
        """Bring the counters up to date."""
        metrics = self.metrics
        self._task_metrics.publish(self._told.tasks.running)
        metrics.set("streamcore_commits_total", self._told.committer.commits)
        metrics.set("streamcore_rows_sent_total", self._told.outbound.sent_rows)
        metrics.set("streamcore_rows_refused_total", self._told.outbound.refused)
        metrics.set("streamcore_rows_restored_total", self._told.restorer.restored_rows)
        metrics.set("streamcore_rows_followed_total", self._told.restorer.followed_rows)

    def committed(self, took_ms: int) -> None:
        """A commit is durable."""
        self._longest = (max(took_ms, self._longest[0]), self._longest[1])
        self.metrics.add("streamcore_commit_ms_total", took_ms)
        self.metrics.set("streamcore_commit_last_ms", took_ms)
        self.metrics.set("streamcore_commit_max_ms", max(self._longest))
        self.publish()

    def read(self, consumer: Consumer, now_ms: int) -> None:
        """Read the gauges, if it is time."""
        if 0 <= now_ms - self._read_ms < READ_MS:
            return
        self._read_ms = now_ms
        if not 0 <= now_ms - self._longest_ms < LONGEST_MS:
            self._longest_ms, self._longest = now_ms, (0, self._longest[0])
            self.metrics.set("streamcore_commit_max_ms", max(self._longest))
        if not 0 <= now_ms - self._sizes_ms < SIZES_MS:
            self._sizes_ms = now_ms
            self._sizes = self._told.engines.sizes()
        lags = self._input_lags.read(self._told.tasks.committed_offsets(), consumer, now_ms)
        inputs: dict[Labels, float] = {
            (("topic", self._names.bare(tp.topic)), ("partition", str(tp.partition))): lag
            for tp, lag in lags.items()
        }
        self._have({"streamcore_lag_records": inputs, **self._of_tasks(now_ms)}, ask=True)

    def begin_generation(self) -> None:
        """Count the generation, and look at the stores that it has opened."""
        self.metrics.add("streamcore_rebalances_total", 1)
        self._sizes_ms = 0

    def end_generation(self, drop: Callable[[], None]) -> None:
        """Take over what the tasks have counted, ``drop`` them, and tell of none of them from now
        on: that is up to whoever gets them.
        """
        self.publish()
        drop()
        self._task_metrics.let_go()
        self.publish()
        self._input_lags.forget()
        self._have({"streamcore_lag_records": {}, **self._of_tasks(0)}, ask=False)
        self.metrics.shrunk = True

    # -- inside ------------------------------------------------------------------------------

    def _have(self, series: dict[Name, dict[Labels, float]], *, ask: bool) -> None:
        by_store: dict[str, dict[int, Lag]] = {}
        for (store, partition), lag in sorted(self._told.restorer.lags(ask=ask).items()):
            by_store.setdefault(store, {})[partition] = lag
        self.store_lags = by_store
        series["streamcore_store_lag_records"] = {
            _at(store, partition): lag.records
            for store, found in by_store.items()
            for partition, lag in found.items()
        }
        self.metrics.replace({**series, "streamcore_store_bytes": self._store_bytes()})
        self.metrics.set("streamcore_restore_remaining_records", self._told.restorer.remaining)

    def _of_tasks(self, now_ms: int) -> dict[Name, dict[Labels, float]]:
        by_task = {(("task", str(at)),): task for at, task in self._told.tasks.running.items()}
        known = {at: task.watermark_ms for at, task in by_task.items() if task.watermark_ms >= 0}
        return {
            "streamcore_task_watermark_ms": {at: t.watermark_ms for at, t in by_task.items()},
            "streamcore_task_watermark_delay_ms": {at: now_ms - ms for at, ms in known.items()},
            "streamcore_task_dirty_bytes": {at: t.dirty_bytes for at, t in by_task.items()},
        }

    def _store_bytes(self) -> dict[Labels, float]:
        ours = self._told.tasks.wanted.keys() | self._told.standbys.tasks
        return {
            _at(store, task.partition): size
            for (task, store), size in self._sizes.items()
            if task in ours
        }


def _at(store: str, partition: int) -> Labels:
    return ("store", store), ("partition", str(partition))
