"""Upkeep: what a worker does for its topics now and then."""

import structlog

from streamcore.model import TopicPartition
from streamcore.runtime.ports import Admin
from streamcore.runtime.settings import WorkerSettings
from streamcore.runtime.tasks import Tasks
from streamcore.runtime.topics import Topics

_log = structlog.get_logger("streamcore.upkeep")

UNSETTLED_MS = 2_000
"""How often counts are compared while this worker waits for its part of a generation."""


class Upkeep:
    """Deletes what is consumed of repartition topics, and compares partition counts again."""

    def __init__(
        self, tasks: Tasks, topics: Topics, admin: Admin, settings: WorkerSettings
    ) -> None:
        self._tasks = tasks
        self._topics = topics
        self._admin = admin
        self._settings = settings
        self._purged: dict[TopicPartition, int] = {}
        self._kept: frozenset[str] = frozenset()  # topics whose records we may not delete
        self._purged_ms = self._checked_ms = 0

    def begin(self, now_ms: int) -> None:
        """Count the intervals from now on."""
        self._purged_ms = self._checked_ms = now_ms

    def do(self, now_ms: int, *, settled: bool) -> None:
        """Do what is due. A list of members that does not settle may show partitions that are new.

        :raises TopicError: if partition counts have changed, or a topic is gone.
        :raises RetriableError: if the cluster did not answer; it is due again after an interval.
        """
        if now_ms - self._purged_ms >= self._settings.repartition_purge_interval_ms:
            self._purged_ms = now_ms
            self._purge()
        interval_ms = self._settings.counts_check_interval_ms
        if now_ms - self._checked_ms >= (
            interval_ms if settled else min(UNSETTLED_MS, interval_ms)
        ):
            self._checked_ms = now_ms
            self._topics.recheck()

    def _purge(self) -> None:
        before = {
            tp: offset
            for task in self._tasks.running.values()
            for tp, offset in task.purgeable().items()
            if offset > self._purged.get(tp, 0) and tp.topic not in self._kept
        }
        if not before:
            return
        refused = self._admin.delete_records(before, self._settings.request_timeout_ms)
        self._purged.update(before)
        if refused:  # asked once, told once: what stays is cut off by the topic's retention
            self._kept |= refused
            _log.warning(
                "processed records may not be deleted, retention does it", topics=sorted(refused)
            )
