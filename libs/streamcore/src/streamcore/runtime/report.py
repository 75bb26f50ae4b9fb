"""Report: what a worker tells of itself, brought up to date once a commit."""

from collections.abc import Mapping
from types import MappingProxyType

from streamcore.runtime.commit import Committer
from streamcore.runtime.metrics import Metrics
from streamcore.runtime.outbound import Outbound
from streamcore.runtime.restore import Lag, Restorer
from streamcore.runtime.task_metrics import TaskMetrics
from streamcore.runtime.tasks import Tasks

LAGS_MS = 1_000
"""How often the lags of local stores are read."""


class Report:
    """Metrics and store lags of one worker. Other threads of the program may read both."""

    def __init__(
        self, tasks: Tasks, committer: Committer, outbound: Outbound, restorer: Restorer
    ) -> None:
        self._tasks = tasks
        self._committer = committer
        self._outbound = outbound
        self._restorer = restorer
        self._lags_ms = 0
        self.metrics = Metrics()
        self._task_metrics = TaskMetrics(self.metrics)
        self.store_lags: Mapping[str, Mapping[int, Lag]] = MappingProxyType({})
        """Store -> partition -> lag; replaced as a whole."""

    def publish(self) -> None:
        """Bring the metrics up to date."""
        metrics = self.metrics
        self._task_metrics.publish(self._tasks.running)
        metrics.set("streamcore_commits_total", self._committer.commits)
        metrics.set("streamcore_rows_sent_total", self._outbound.sent_rows)
        metrics.set("streamcore_rows_refused_total", self._outbound.refused)
        metrics.set("streamcore_rows_restored_total", self._restorer.restored_rows)

    def read_lags(self, now_ms: int) -> None:
        """Read the lags of all local stores, if it is time."""
        if 0 <= now_ms - self._lags_ms < LAGS_MS:
            return
        self._lags_ms = now_ms
        lags: dict[str, dict[int, Lag]] = {}
        for (store, partition), lag in sorted(self._restorer.lags().items()):
            lags.setdefault(store, {})[partition] = lag
        for store, by_partition in self.store_lags.items():
            for partition in by_partition.keys() - lags.get(store, {}).keys():
                self.metrics.forget(store=store, partition=str(partition))
        for store, found in lags.items():
            for partition, lag in found.items():
                labels = {"store": store, "partition": str(partition)}
                self.metrics.set("streamcore_store_lag_records", lag.records, **labels)
        self.store_lags = lags

    def begin_generation(self) -> None:
        """Forget what is others' now."""
        self._task_metrics.forget_others(self._tasks.wanted)
        self.metrics.add("streamcore_rebalances_total", 1)
