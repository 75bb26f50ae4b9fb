"""MemoryConsumer and MemoryReader: the reading side of the in-memory broker."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from streamcore.errors import FetchPositionGoneError, MemberFencedError, RetriableError
from streamcore.model import Fetched, OffsetAndMetadata, TopicPartition
from streamcore.runtime.ports import RebalanceListener
from streamcore.testing.cluster import Cluster
from streamcore.testing.group import Group, Membership
from streamcore.testing.partition_log import Record

Callback = Callable[[Sequence[TopicPartition]], None]


class _Fetcher:
    """Reads committed records of assigned partitions; what consumer and reader share."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._positions: dict[TopicPartition, int] = {}
        self._paused: set[TopicPartition] = set()
        self._told_end: dict[TopicPartition, int] = {}
        self._turn = 0

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        assert all(offset >= 0 for offset in positions.values()), positions
        self._positions = dict(positions)
        self._paused.clear()
        self._told_end.clear()

    def fetch(self, rows_max: int) -> list[Fetched]:
        """Return what there is; a partition's end is told once, until something follows."""
        if self._cluster.away:
            return []
        found: list[Fetched] = []
        self._turn += 1
        partitions = sorted(self._positions)
        first = self._turn % max(1, len(partitions))
        for tp in [*partitions[first:], *partitions[:first]]:  # nobody is starved
            if tp in self._paused or tp.topic not in self._cluster.topics or rows_max <= 0:
                continue
            log, offset = self._cluster.log(tp), self._positions[tp]
            if not log.start <= offset <= log.end:
                raise FetchPositionGoneError(tp, offset)
            rows, next_offset = log.read(offset, rows_max)
            at_stable_end = next_offset >= log.stable_end
            if not rows and not (at_stable_end and self._told_end.get(tp) != next_offset):
                continue
            if at_stable_end:
                self._told_end[tp] = next_offset
            self._positions[tp] = next_offset
            rows_max -= len(rows)
            found.append(_columns(tp, rows, next_offset, at_end=next_offset == log.end))
        return found


class MemoryReader(_Fetcher):
    """Port ``ChangelogReader``."""

    def poll(self, rows_max: int, timeout_ms: int) -> list[Fetched]:  # noqa: ARG002
        self._cluster.faults.take("reader.poll")
        return self.fetch(rows_max)

    def close(self) -> None:
        self._positions.clear()


class MemoryConsumer(_Fetcher):
    """Port ``Consumer``. Time passes in a poll only while the cluster is away."""

    def __init__(self, cluster: Cluster, group: Group, client_id: str = "") -> None:
        super().__init__(cluster)
        self.client_id = client_id
        self.topics: Sequence[str] = ()
        self.polled_ms = cluster.clock.now_ms()
        self.dead = False  # no heartbeats any more
        self._group = group
        self._listener: RebalanceListener | None = None
        self._id: str | None = None
        self._generation = -1
        self._share: tuple[TopicPartition, ...] | None = None  # None: no callback yet
        self._in_callback = False

    def subscribe(self, topics: Sequence[str], listener: RebalanceListener) -> None:
        self.topics, self._listener = tuple(topics), listener

    def poll(self, rows_max: int, timeout_ms: int) -> list[Fetched]:
        assert not self._in_callback, "polled inside a callback"
        self._cluster.faults.take("consumer.poll")
        if self._cluster.away:
            self._cluster.clock.advance(timeout_ms)
            return []
        self.polled_ms = self._cluster.clock.now_ms()
        self._cluster.put_out_the_silent()
        if self._listener is not None:
            self._serve_group(self._listener)
        return self.fetch(rows_max)

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        partitions = set(partitions)
        assert partitions <= self._positions.keys(), "paused what is not assigned"
        self._paused |= partitions

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        self._paused -= set(partitions)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        assert partition in self._positions, f"{partition} is not assigned"
        self._positions[partition] = offset
        self._told_end.pop(partition, None)

    def unread(self, positions: Mapping[TopicPartition, int]) -> set[TopicPartition]:
        topics = self._cluster.topics
        return {
            tp
            for tp, offset in positions.items()
            if tp.topic in topics and self._cluster.log(tp).end > offset
        }

    def high_watermarks(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        ours = [tp for tp in partitions if tp in self._positions]
        return {tp: self._cluster.log(tp).end for tp in ours if tp.topic in self._cluster.topics}

    def committed(
        self, partitions: Iterable[TopicPartition], timeout_ms: int
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        self._cluster.must_answer(timeout_ms)
        self._cluster.faults.take("consumer.committed")
        partitions = list(partitions)
        if unstable := [tp for tp in partitions if self._group.unstable(tp)]:
            raise RetriableError(f"UNSTABLE_OFFSET_COMMIT {unstable[0]}")
        return {tp: self._group.offsets.get(tp) for tp in partitions}

    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], timeout_ms: int) -> None:
        self._cluster.must_answer(timeout_ms)
        self._cluster.faults.take("consumer.commit")
        self._group.check(self.group_metadata(), offsets)
        self._group.offsets.update(offsets)
        self._cluster.faults.take("consumer.commit.after")

    def member_id(self) -> str | None:
        return self._id if self._id in self._group.members else None

    def group_metadata(self) -> Membership:
        if self.member_id() is None or self._share is None:
            raise MemberFencedError("this consumer is not in the group (any more)")
        return Membership(self._group.name, self.member_id(), self._generation)

    def close(self) -> None:
        self._listener = None
        self._positions.clear()
        if self._id is not None:
            self._group.leave(self._id)
            self._id = None

    def _serve_group(self, listener: RebalanceListener) -> None:
        group = self._group
        if self._id is None or self._id not in group.members:
            self._give_up(listener.on_lost)
            self._id = group.enter(self)
        if group.joining and self._id not in group.joined:
            self._give_up(listener.on_revoked)
            counts = {name: len(t.partitions) for name, t in self._cluster.topics.items()}
            if self._id in group.members:
                group.join(self._id, counts)
        if self._id not in group.members:  # put out while a callback ran: the next poll learns it
            return
        if not group.joining and self._generation != group.generation:
            self._generation = group.generation
            self._share = group.shares[self._id]
            self.assign({})  # a listener that assigns nothing reads nothing
            self._call(listener.on_assigned, self._share)

    def _give_up(self, callback: Callback) -> None:
        if self._share is None:
            return
        try:
            self._call(callback, self._share)
        finally:
            self._share = None
            self.assign({})

    def _call(self, callback: Callback, share: tuple[TopicPartition, ...]) -> None:
        self._in_callback = True
        try:
            callback(share)
        finally:
            self._in_callback = False


def _columns(tp: TopicPartition, rows: list[Record], next_offset: int, *, at_end: bool) -> Fetched:
    headers = [row.headers for row in rows]
    return Fetched(
        tp,
        [row.offset for row in rows],
        [row.key for row in rows],
        [row.value for row in rows],
        [row.stamp_ms for row in rows],
        headers if any(headers) else None,
        next_offset,
        at_end,
    )
