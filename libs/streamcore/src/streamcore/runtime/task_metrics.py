"""TaskMetrics: the counters of tasks, brought up to date once a commit, gone with their tasks."""

from collections import Counter
from collections.abc import Iterator, Mapping

from streamcore.model import TaskId
from streamcore.runtime.metrics import Labels, Metrics, Name
from streamcore.task import Task

Series = tuple[Name, Labels]


class TaskMetrics:
    """Carries the counters of tasks over into the worker's metrics.

    A rebuilt task counts from zero, the metric goes on: only differences are added. So it does
    where a task comes back to this worker, however long it was elsewhere; in between it has no
    series.
    """

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._seen: dict[TaskId, tuple[Task, Counter[Series]]] = {}
        self._totals: dict[TaskId, Counter[Series]] = {}

    def publish(self, running: Mapping[TaskId, Task]) -> None:
        """Take over what the running tasks have counted; of all others there is no series."""
        series: dict[Name, dict[Labels, float]] = {
            "streamcore_rows_dropped_total": {},
            "streamcore_cache_hits_total": {},
            "streamcore_cache_misses_total": {},
        }
        for task_id, task in running.items():
            known, before = self._seen.get(task_id, (task, Counter()))
            counted = Counter(dict(_counted(task)))
            totals = self._totals.setdefault(task_id, Counter())
            totals.update(counted)
            if known is task:
                totals.subtract(before)
            self._seen[task_id] = (task, counted)
            for (name, labels), count in totals.items():
                series[name][labels] = count
        self._metrics.set("streamcore_tasks", len(running))
        self._metrics.replace(series)

    def let_go(self) -> None:
        """The tasks that were running are closed; those that come are others, even of one name."""
        self._seen.clear()


def _counted(task: Task) -> Iterator[tuple[Series, int]]:
    at = ("task", str(task.id))
    for reason, count in task.counters.items():
        yield ("streamcore_rows_dropped_total", (at, ("reason", reason))), count
    for name, store in task.stores.items():
        yield ("streamcore_cache_hits_total", (at, ("store", name))), store.cache_hits
        yield ("streamcore_cache_misses_total", (at, ("store", name))), store.cache_misses
