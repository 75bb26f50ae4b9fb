"""TaskMetrics: the series of tasks, brought up to date once a commit and gone with their tasks."""

from collections import Counter
from collections.abc import Mapping

from streamcore.model import TaskId
from streamcore.runtime.metrics import Metrics
from streamcore.task import Task


class TaskMetrics:
    """Carries the counters of tasks over into the worker's metrics.

    A rebuilt task counts from zero, the metric goes on: only differences are added.
    """

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._seen: dict[TaskId, tuple[Task, Counter[str]]] = {}

    def publish(self, running: Mapping[TaskId, Task]) -> None:
        """Take over what the running tasks have counted; forget the tasks that are gone."""
        metrics = self._metrics
        metrics.set("streamcore_tasks", len(running))
        for task_id, task in running.items():
            label = str(task_id)
            known, before = self._seen.get(task_id, (task, Counter()))
            counted = Counter(task.counters)
            for reason, count in counted.items():
                more = count - (before[reason] if known is task else 0)
                if more:
                    metrics.add("streamcore_rows_dropped_total", more, task=label, reason=reason)
            self._seen[task_id] = (task, counted)
            metrics.set("streamcore_task_watermark_ms", task.watermark_ms, task=label)
            metrics.set("streamcore_task_dirty_bytes", task.dirty_bytes, task=label)

    def forget_others(self, wanted: Mapping[TaskId, object]) -> None:
        """Remove the series of tasks that this worker does not own any more."""
        for task_id in [task_id for task_id in self._seen if task_id not in wanted]:
            del self._seen[task_id]
            self._metrics.forget(task=str(task_id))
