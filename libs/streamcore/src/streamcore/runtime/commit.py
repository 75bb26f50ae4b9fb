"""Committer: cut, flush, offsets, stores. The order that keeps promises, for both guarantees.

1. Every task is cut: overlays become sends, and a point says which offsets belong to them.
2. Everything is sent and acknowledged; the ends of the changelogs are the stores' new positions.
3. The offsets are made durable: by the consumer, or inside the transaction.
4. Only then do the stores write. So a store is never ahead of what Kafka has committed.

While step 2 waits the consumer is polled (with everything paused); a callback that comes up in
there finishes the running commit or forgets it, it never starts another.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import structlog

from streamcore.errors import MemberFencedError, ProducerFencedError, RetriableError
from streamcore.model import CommitPoint, OffsetAndMetadata, Position, TaskId, TopicPartition
from streamcore.runtime.deadline import Deadline
from streamcore.runtime.outbound import Outbound
from streamcore.runtime.ports import Admin, Consumer
from streamcore.runtime.settings import WorkerSettings
from streamcore.task import Task

_log = structlog.get_logger("streamcore.commit")

FLUSH_SLICE_MS = 1_000
"""How long one wait for acknowledgements lasts before the consumer is polled again."""

DOUBTED_CUTS = 2
"""After a commit without an answer: the one that gets it may itself have waited long for it."""


class Committer:
    """The one commit of a worker that may be under way."""

    def __init__(
        self,
        outbound: Outbound,
        admin: Admin,
        settings: WorkerSettings,
        topic_ids: Mapping[str, str],
    ) -> None:
        self._outbound = outbound
        self._admin = admin
        self._settings = settings
        self._points: dict[TaskId, CommitPoint] = {}
        self._tasks: dict[TaskId, Task] = {}
        self._consumer: Consumer | None = None
        self._running = self._settled = False
        self._seen_ms: int | None = None
        self._unheard_ms = 0
        self._doubted_cuts = 0  # so many of the next ones find no input idle
        self.group_metadata: Any = None  # taken in the assign callback, for all of its generation
        self._topic_ids = topic_ids
        self._leap_ms = settings.task.idle_after_ms // 2
        self.durable: dict[TopicPartition, OffsetAndMetadata] = {}
        """What the commits of this generation have made durable."""
        self.commits = 0
        self.unanswered = ""
        """Why the last commit is not durable although everything was sent; empty: no such case."""

    @property
    def running(self) -> bool:
        """True between the cut and the end of a commit, as seen from a callback."""
        return self._running

    def commit(
        self,
        tasks: Sequence[Task],
        consumer: Consumer,
        now_ms: int,
        deadline: Deadline,
        wait: Callable[[], None] | None = None,
    ) -> bool:
        """Commit all tasks together; True: all of it is durable (or there was nothing to do).

        False: not in time. The points are kept and the next call takes them up again.
        ``wait`` polls the consumer with everything paused; inside a callback there is none.

        :raises MemberFencedError: if the group does not know this member any more.
        :raises TransactionAbortedError, ProducerFencedError: exactly-once: rebuild the tasks.
        """
        assert not self._running, "a commit is under way"
        if tasks and consumer.member_id() is None:
            raise MemberFencedError("this member is not in the group any more")
        self.pass_time(now_ms)
        self._doubt_idleness(tasks, now_ms)
        for task in tasks:
            for partition in consumer.unread(task.read_to_end()):
                task.expect_more(partition)
            point = task.cut(now_ms)
            if point is not None:
                self._keep(task, point)
            self._outbound.send(task.drain())
        if not self._points and not self._outbound.unflushed and not self._outbound.blocked:
            return True
        self._consumer = consumer
        self._running, self._settled, self.unanswered = True, False, ""
        done = False
        try:
            done = self._end(deadline, wait)
        finally:
            self._running = False
            if not done:
                self.doubt()
        return done

    def pass_time(self, now_ms: int) -> None:
        """A turn begins. If the last one began very long ago, inputs were not silent since then:
        nobody has listened, because this process stood still or the clock was set. Turns that are
        merely slow add up.
        """
        if self._seen_ms is not None:
            self._unheard_ms += max(0, now_ms - self._seen_ms - self._leap_ms)
        self._seen_ms = now_ms

    def _doubt_idleness(self, tasks: Sequence[Task], now_ms: int) -> None:
        unheard_ms, self._unheard_ms = self._unheard_ms, 0
        if self._doubted_cuts:
            self._doubted_cuts -= 1
            unheard_ms = now_ms  # all the time that there was
        if unheard_ms:
            for task in tasks:
                task.doubt_idleness(now_ms, unheard_ms)

    def doubt(self) -> None:
        """The broker did not answer: who knows what waits in inputs that seemed read to the end.

        It may answer commits again before it brings records.
        """
        self._doubted_cuts = DOUBTED_CUTS

    def finish(self, deadline: Deadline) -> bool:
        """End the commit that is under way, from inside a callback that came up while it waited."""
        assert self._running
        return self._end(deadline, None)

    def forget(self) -> None:
        """Drop the points: the tasks are gone, or are rebuilt from what was committed before."""
        self.durable.clear()
        self._points.clear()
        self._tasks.clear()
        self._running = False

    def _keep(self, task: Task, point: CommitPoint) -> None:
        kept = self._points.get(task.id)
        if kept is not None:
            point = CommitPoint(
                task.id, {**kept.offsets, **point.offsets}, kept.changelogs | point.changelogs
            )
        self._points[task.id] = point
        self._tasks[task.id] = task

    def _end(self, deadline: Deadline, wait: Callable[[], None] | None) -> bool:
        while not self._outbound.flush(deadline.share_ms(FLUSH_SLICE_MS)):
            if deadline.over:
                return False
            if wait is not None:
                wait()
                if not self._running:  # a callback has finished it, or forgotten it
                    return self._settled
        positions = self._positions(deadline)
        try:
            self._make_durable(deadline)
        except RetriableError as error:
            self.unanswered = f"the commit was not answered in time: {error}"
            return False
        self._settle(positions)
        return True

    def _positions(self, deadline: Deadline) -> dict[TopicPartition, Position]:
        """Return how far each changelog that was written reaches now, and each input is consumed.

        Inputs count, too: a table's source topic is its changelog. Without an answer the stores
        keep their old positions: too low only replays.
        """
        ends = {tp: at.offset for tp, at in self._offsets().items()}
        written: set[TopicPartition] = set()
        for point in self._points.values():
            written |= point.changelogs
        if written:
            timeout_ms = deadline.share_ms(self._settings.request_timeout_ms)
            try:
                ends |= self._admin.offsets(written, "latest", timeout_ms)
            except RetriableError as error:
                _log.warning("the ends of the changelogs are unknown", reason=str(error))
        return {tp: Position(end, self._topic_ids.get(tp.topic, "")) for tp, end in ends.items()}

    def _offsets(self) -> dict[TopicPartition, OffsetAndMetadata]:
        return {tp: at for point in self._points.values() for tp, at in point.offsets.items()}

    def _make_durable(self, deadline: Deadline) -> None:
        assert self._consumer is not None
        offsets = self._offsets()
        if offsets and self._consumer.member_id() is None:  # accepted by the broker, unfenced
            raise MemberFencedError("this member is not in the group any more")
        if self._settings.exactly_once:
            self._commit_transaction(offsets, deadline)
        elif offsets:
            self._consumer.commit(offsets, deadline.share_ms(self._settings.request_timeout_ms))

    def _commit_transaction(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], deadline: Deadline
    ) -> None:
        assert self.group_metadata is not None, "no transaction before an assignment"
        while True:
            try:
                timeout_ms = deadline.share_ms(self._settings.request_timeout_ms)
                self._outbound.commit_transaction(offsets, self.group_metadata, timeout_ms)
            except RetriableError as error:
                if deadline.over:  # nobody but a new producer with the same id can say
                    raise ProducerFencedError(
                        f"the end of a transaction is unknown: {error}"
                    ) from error
            else:
                return

    def _settle(self, positions: Mapping[TopicPartition, Position]) -> None:
        points, self._points = self._points, {}
        tasks, self._tasks = self._tasks, {}
        self._running, self._settled = False, True
        self.commits += 1
        for task_id, point in points.items():
            self.durable.update(point.offsets)
            task = tasks[task_id]
            task.committed(point, positions)
            # Under at-least-once these vouch for what was just flushed, so they go out after it.
            self._outbound.send(task.drain())
