"""Recoverer: what a worker does about an error, by what the error says of itself (``Recovery``).

To try again is to leave the world alone for a while. To rebuild is to go back to the last commit
with every task. To rejoin is the worker's own affair, since it holds the member. What says stop is
raised again, and so is a rebuild that never helps.
"""

from collections.abc import Callable

import structlog

from streamcore.clock import Clock
from streamcore.errors import (
    FetchPositionGoneError,
    ProcessingError,
    ProducerFencedError,
    Recovery,
    StreamsError,
    UserRetryError,
)
from streamcore.model import TopicPartition
from streamcore.runtime.backoff import Backoff
from streamcore.runtime.commit import Committer
from streamcore.runtime.metrics import Metrics
from streamcore.runtime.outbound import Outbound
from streamcore.runtime.settings import WorkerSettings
from streamcore.runtime.tasks import Tasks
from streamcore.task import Task

_log = structlog.get_logger("streamcore.recovery")

REBUILDS_MAX = 10
"""Rebuilds in a row, without a commit in between, after which the worker gives up."""


class Recoverer:
    """Takes tasks and sends of a worker back to where the next try can begin."""

    def __init__(
        self,
        tasks: Tasks,
        committer: Committer,
        outbound: Outbound,
        metrics: Metrics,
        settings: WorkerSettings,
        clock: Clock,
    ) -> None:
        self._tasks = tasks
        self._committer = committer
        self._outbound = outbound
        self._metrics = metrics
        self._settings = settings
        self._clock = clock
        self._rebuilds = 0
        self._begun_anew: set[TopicPartition] = set()  # by the reset policy, since the last commit
        self.backoff = Backoff()

    def meet(self, error: StreamsError, rejoin: Callable[[StreamsError], None]) -> None:
        """Do what the error asks for.

        :raises StreamsError: the same one, if nothing that we may do is safe.
        """
        match error.recovery:
            case Recovery.RETRY:
                self.wait(str(error))
            case Recovery.REBUILD_TASKS:
                self._rebuild(error)
            case Recovery.REJOIN_GROUP:
                rejoin(error)
            case Recovery.STOP:
                raise error

    def wait(self, reason: str) -> None:
        """Leave the world alone for a while; the time is asked anew, for a try may have been long.

        The waits grow until ``went_through`` is called.
        """
        self._committer.doubt()
        self.backoff.failed(reason, self._clock.now_ms())

    def went_through(self) -> None:
        """A turn with a commit has ended well. If there was nothing to commit and tasks were
        rebuilt before, that proves nothing: what failed has not been tried yet.
        """
        if not self._rebuilds:
            self.backoff.succeeded()

    def committed(self) -> None:
        """Forget the troubles so far: a commit is durable."""
        self._rebuilds = 0
        self._begun_anew.clear()

    def suspect(self, task: Task, error: ProcessingError, *, exact: bool = False) -> None:
        """A row failed in user code: go back to the last commit to find and mark it."""
        _log.warning("a record made a processor fail", task=str(task.id), reason=error.reason)
        self._committer.forget()
        self._tasks.note_failure(task, error, exact=exact)
        if self._settings.exactly_once:  # all tasks share the transaction
            self._outbound.abandon(self._settings.request_timeout_ms)
            self._tasks.rebuild(list(self._tasks.running))
        else:
            self._tasks.rebuild([task.id])
        self._metrics.add("streamcore_rebuilds_total", 1)

    def abandon_sends(self) -> None:
        """Take back what is not yet with the broker; what is, at-least-once does again."""
        if self._settings.exactly_once:
            self._outbound.abandon(self._settings.request_timeout_ms)
        else:
            self._outbound.discard()

    def _rebuild(self, error: StreamsError) -> None:
        """Go back to the last commit with every task; the sends of all share one producer."""
        if isinstance(error, UserRetryError):  # however often, but not at once
            self._rebuilds = max(self._rebuilds, 2)
        elif not self._begins_anew(error):
            self._rebuilds += 1
        if self._rebuilds > REBUILDS_MAX:
            _log.error("tasks were rebuilt again and again without a commit")
            raise error
        _log.warning("tasks go back to their last commit", reason=str(error))
        self._committer.forget()
        if isinstance(error, ProducerFencedError):
            self._outbound.discard()
        self.abandon_sends()
        self._metrics.add("streamcore_rebuilds_total", len(self._tasks.running))
        self._tasks.rebuild(list(self._tasks.running))
        if self._rebuilds > 1:
            self.wait(str(error))

    def _begins_anew(self, error: StreamsError) -> bool:
        """Let a partition whose log lost our position begin by the reset policy, which is progress
        unless it happened before.

        :raises FetchPositionGoneError: if that policy is to stop.
        """
        if not isinstance(error, FetchPositionGoneError):
            return False
        if not self._tasks.reset(error):
            raise error
        first = error.partition not in self._begun_anew
        self._begun_anew.add(error.partition)
        return first
