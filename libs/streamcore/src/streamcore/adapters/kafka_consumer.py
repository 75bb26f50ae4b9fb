"""Consumer and ChangelogReader ports over confluent-kafka."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from confluent_kafka import Consumer, KafkaException, Message
from confluent_kafka import TopicPartition as Place

from streamcore.adapters.bounded import Bounded
from streamcore.adapters.kafka_errors import (
    POSITION_GONE,
    REFUSED,
    SETTING_REFUSED,
    made,
    translate,
)
from streamcore.adapters.kafka_fetch import split
from streamcore.adapters.kafka_settings import Settings
from streamcore.adapters.rare_log import RareLog
from streamcore.errors import FetchPositionGoneError, MemberFencedError, RetriableError
from streamcore.model import Fetched, OffsetAndMetadata, TopicPartition
from streamcore.runtime.ports import RebalanceListener

CLOSE_TIMEOUT_S = 5.0
LEADERS_TIMEOUT_S = 1.0


class _Reader:
    """What both have in common: read assigned partitions, from given positions."""

    def __init__(self, settings: Settings, log: RareLog) -> None:
        self._log = log
        callbacks = {"error_cb": self._log.on_error, "throttle_cb": self._log.on_throttle}
        self._client = made(lambda: Consumer({**settings, **callbacks}))
        self._positions: dict[TopicPartition, int] = {}
        self._held: list[Fetched] = []
        self._closed = False

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """Read these partitions from these offsets, and no others."""
        assert all(offset >= 0 for offset in positions.values()), positions
        self._held.clear()
        self._positions = dict(positions)
        self._client.assign([Place(*source, offset) for source, offset in positions.items()])

    def poll(self, rows_max: int, timeout_ms: int) -> list[Fetched]:
        """Return what came. An error leaves the rows that came with it for the next call.

        :raises FetchPositionGoneError: if a position is out of the log's range.
        """
        if self._held:
            held, self._held = self._held, []
            return held
        try:
            messages = self._client.consume(rows_max, timeout_ms / 1_000)
        except KafkaException as failure:
            self._fail_if_it_must()
            raise translate(failure, "reading") from failure
        batches, errors = split(messages, self._high_watermark) if messages else ([], [])
        batches = [batch for batch in batches if batch.source in self._positions]
        try:
            self._fail_if_it_must()
            for message in errors:
                self._judge(message)
        except BaseException:
            self._held = batches
            raise
        return batches

    def serve(self) -> None:
        """Take away events that have piled up while nobody polled; rows stay where they are."""
        if not self._positions and not self._closed:
            self._client.consume(1, 0)

    def close(self) -> None:
        """Let go of the connection; a broker that does not answer is waited for CLOSE_TIMEOUT_S."""
        if self._closed:
            return
        self._closed = True
        self._positions, self._held = {}, []
        closing: Bounded[None] = Bounded("close")
        try:
            closing.run(self._client.close, CLOSE_TIMEOUT_S)
        except TimeoutError as late:
            self._log.tell("left without goodbye", str(late))

    def _fail_if_it_must(self) -> None:
        """Raise what a callback has left behind."""

    def _high_watermark(self, source: TopicPartition) -> int:
        # The cached one: asking the broker would give the last stable offset.
        return self._client.get_watermark_offsets(Place(*source), cached=True)[1]

    def _judge(self, message: Message) -> None:
        """Raise an error that the worker must know; write down one that passes."""
        error = message.error()
        assert error is not None
        topic, partition = message.topic(), message.partition()
        if error.code() in POSITION_GONE and topic is not None and partition is not None:
            source = TopicPartition(topic, partition)
            if source in self._positions:
                raise FetchPositionGoneError(source, message.offset() or 0)
        elif error.code() in REFUSED | SETTING_REFUSED or error.fatal():
            raise translate(error, f"reading {topic}" if topic else "reading")
        else:
            self._log.tell(f"reading {error.name()}", error.str())


class KafkaChangelogReader(_Reader):
    """Reads changelogs; never subscribes, never commits."""

    def __init__(self, settings: Settings, log: RareLog) -> None:
        super().__init__(settings, log)
        self._known: set[str] = set()

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """Read these partitions from these offsets, and no others."""
        # Of a topic that it has never heard of, librdkafka asks for the leaders once a second.
        with suppress(KafkaException):  # then it does, for all that are left: who asks is away
            for topic in {source.topic for source in positions} - self._known:
                self._client.list_topics(topic, LEADERS_TIMEOUT_S)
                self._known.add(topic)
        super().assign(positions)


class KafkaConsumer(_Reader):
    """The member of the group.

    Every way out of a rebalance callback assigns, or the binding would assign the coordinator's
    list by itself. What a listener raises is kept and comes out of ``poll``. The proof of
    membership is taken once, in the assign callback, and given up with the generation: the broker
    accepts commits without one, unfenced. ``on_new_generation`` is called before the listener hears
    of its share.
    """

    def __init__(
        self,
        settings: Settings,
        log: RareLog,
        serve_others: Callable[[], None] | None = None,
        on_new_generation: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(settings, log)
        self._serve_others = serve_others
        self._on_new_generation = on_new_generation
        self._commits: Bounded[list[Place]] = Bounded("commit")
        self._paused: set[TopicPartition] = set()
        self._listener: RebalanceListener | None = None
        self._membership: Any = None
        self._has_assigned = False
        self._failure: BaseException | None = None

    def subscribe(self, topics: Sequence[str], listener: RebalanceListener) -> None:
        """Join the group; the listener's methods run inside ``poll``."""
        self._listener = listener
        self._client.subscribe(
            list(topics),
            on_assign=self._on_assign,
            on_revoke=self._on_revoke,
            on_lost=self._on_lost,
        )

    def poll(self, rows_max: int, timeout_ms: int) -> list[Fetched]:
        """Return what came; serves the rebalance callbacks, and other clients' events too."""
        if self._serve_others is not None:
            self._serve_others()
        return super().poll(rows_max, timeout_ms)

    def serve(self) -> None:
        """Nothing: its events come with ``poll``, and rebalances may come nowhere else."""

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """Read these partitions from these offsets, and no others; none is paused then."""
        self._has_assigned = True
        # librdkafka keeps the mark over any number of assignments, whoever has forgotten it.
        if self._paused:
            self._client.resume([Place(*source) for source in self._paused])
            self._paused.clear()
        super().assign(positions)

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Give no rows of these partitions; those that are not assigned are left out."""
        ours = [source for source in partitions if source in self._positions]
        self._paused.update(ours)
        self._client.pause([Place(*source) for source in ours])

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Undo ``pause``."""
        ours = [source for source in partitions if source in self._positions]
        self._paused.difference_update(ours)
        self._client.resume([Place(*source) for source in ours])

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Read on from there."""
        assert partition in self._positions, f"{partition} is not assigned"
        self._held = [batch for batch in self._held if batch.source != partition]
        self._positions[partition] = offset
        try:
            self._client.seek(Place(*partition, offset))
        except KafkaException as failure:
            raise translate(failure, f"seeking in {partition}") from failure

    def unread(self, positions: Mapping[TopicPartition, int]) -> set[TopicPartition]:
        """Return the partitions whose high watermark, as last seen, lies behind the position."""
        return {at for at, offset in positions.items() if self._high_watermark(at) > offset}

    def high_watermarks(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the end of each partition as last fetched, where one was."""
        ours = [source for source in partitions if source in self._positions]
        ends = {source: self._high_watermark(source) for source in ours}
        return {source: end for source, end in ends.items() if end >= 0}

    def committed(
        self, partitions: Iterable[TopicPartition], timeout_ms: int
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return what the group has committed; waits while a transaction's offsets are pending."""
        places = [Place(*source) for source in partitions]
        if not places:
            return {}
        try:
            answers = self._client.committed(places, timeout_ms / 1_000)
        except KafkaException as failure:
            raise translate(failure, "asking for committed offsets") from failure
        committed: dict[TopicPartition, OffsetAndMetadata | None] = {}
        for place in answers:
            self._check(place, "asking for committed offsets")
            known = place.offset >= 0
            committed[TopicPartition(place.topic, place.partition)] = (
                OffsetAndMetadata(place.offset, place.metadata or "") if known else None
            )
        return committed

    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], timeout_ms: int) -> None:
        """Commit synchronously.

        :raises MemberFencedError: also when this is no member (any more).
        :raises RetriableError: the outcome is unknown. The commit may still arrive, even after the
            group has gone on without us: offsets can go back then, so that records are read again.
        """
        self._must_be_member()
        places, membership = places_of(offsets), self._membership

        def commit() -> Any:
            # It may have waited for an earlier commit, and the generation may be over.
            if self._membership is not membership:
                raise MemberFencedError("the generation of this commit is over")
            return self._client.commit(offsets=places, asynchronous=False)

        try:
            answers = self._commits.run(commit, timeout_ms / 1_000)
        except TimeoutError as late:
            raise RetriableError(f"committing offsets: {late}") from late
        except KafkaException as failure:
            raise translate(failure, "committing offsets") from failure
        for place in answers:
            self._check(place, "committing offsets")

    def member_id(self) -> str | None:
        """Return this member's id, None while it is not (or no longer) in the group."""
        return self._client.memberid() or None

    def group_metadata(self) -> Any:
        """Return the proof of membership of the current generation."""
        self._must_be_member()
        return self._membership

    def close(self) -> None:
        """Leave the group at once; the listener hears nothing of it."""
        self._listener, self._membership = None, None
        super().close()

    def _must_be_member(self) -> None:
        if self._membership is None or self.member_id() is None:
            raise MemberFencedError("this consumer is not in the group (any more)")

    def _check(self, place: Place, doing: str) -> None:
        if place.error is not None:
            raise translate(place.error, f"{doing} of {place.topic}-{place.partition}")

    # -- librdkafka's callbacks; they run inside consume() and inside close()

    def _on_assign(self, client: Consumer, places: list[Place]) -> None:
        if self._listener is None:
            client.assign([])
            return
        self._membership = client.consumer_group_metadata()
        self._has_assigned = False
        if self._on_new_generation is not None:
            self._on_new_generation()
        if not self._tell(self._listener.on_assigned, places) or not self._has_assigned:
            self.assign({})

    def _on_revoke(self, _client: Consumer, places: list[Place]) -> None:
        self._end(None if self._listener is None else self._listener.on_revoked, places)

    def _on_lost(self, _client: Consumer, places: list[Place]) -> None:
        self._end(None if self._listener is None else self._listener.on_lost, places)

    def _end(
        self, hear: Callable[[Sequence[TopicPartition]], None] | None, places: list[Place]
    ) -> None:
        if hear is not None:
            self._tell(hear, places)
        self._membership = None
        self._positions, self._held = {}, []
        self._client.unassign()

    def _tell(self, hear: Callable[[Sequence[TopicPartition]], None], places: list[Place]) -> bool:
        try:
            hear([TopicPartition(place.topic, place.partition) for place in places])
        except BaseException as failure:  # raised again when consume() has returned
            self._failure = self._failure or failure
            return False
        return True

    def _fail_if_it_must(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure


def places_of(offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> list[Place]:
    """Return the offsets as the binding wants them."""
    return [
        Place(source.topic, source.partition, at.offset, at.metadata)
        for source, at in offsets.items()
    ]
