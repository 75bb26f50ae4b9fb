"""What every broker must do behind the ports, as tests.

Subclass ``BrokerContract`` and say how clients of a group are made. The real cluster and the one in
memory pass the same suite, so that a simulation meets what production meets. Nothing here waits for
a fixed time: conditions are polled for, a bounded number of times.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol

import pytest

from streamcore.errors import (
    FetchPositionGoneError,
    MemberFencedError,
    ProducerFencedError,
    StreamsError,
)
from streamcore.model import Fetched, Headers, OffsetAndMetadata, Send, TopicPartition
from streamcore.runtime.ports import (
    Admin,
    ChangelogReader,
    Consumer,
    Producer,
    RebalanceListener,
    TopicSpec,
)

TIMEOUT_MS = 20_000
POLL_MS = 50
POLLS_MAX = 600
T0_MS = 1_700_000_000_000

# Where Kafka's own clients put these keys among six partitions.
MURMUR2_OF_SIX: Mapping[str, int] = {
    "cat": 5,
    "to": 0,
    "a": 4,
    "b": 2,
    "word-7": 3,
    "naïve": 3,
    "\U0001f4a5": 2,
}


class Cluster(Protocol):
    """Clients of one group; each call makes a new one."""

    def consumer(self, client_id: str = "") -> Consumer: ...
    def changelog_reader(self) -> ChangelogReader: ...
    def producer(self, transactional_id: str | None = None) -> Producer: ...
    def admin(self) -> Admin: ...


class Reads(Protocol):
    """Consumer or ChangelogReader: whatever is assigned and polled."""

    def assign(self, positions: Mapping[TopicPartition, int]) -> None: ...
    def poll(self, rows_max: int, timeout_ms: int) -> list[Fetched]: ...


class Log:
    """What was read so far, by partition: rows, position, and whether the end was told."""

    def __init__(self) -> None:
        self.rows: dict[TopicPartition, list[tuple[int, bytes | None, bytes | None, int]]] = {}
        self.headers: dict[TopicPartition, list[Headers]] = {}
        self.next_offset: dict[TopicPartition, int] = {}
        self.at_end: dict[TopicPartition, bool] = {}

    def add(self, batches: Sequence[Fetched]) -> None:
        sources = [batch.source for batch in batches]
        assert len(set(sources)) == len(sources), "more than one batch of a partition in one poll"
        for batch in batches:
            columns = (batch.offsets, batch.keys, batch.values, batch.stamps_ms)
            assert len({len(column) for column in columns}) == 1
            assert batch.headers is None or len(batch.headers) == len(batch.offsets)
            rows = list(zip(*columns, strict=True))
            self.rows.setdefault(batch.source, []).extend(rows)
            headers = batch.headers or [()] * len(rows)
            self.headers.setdefault(batch.source, []).extend(headers)
            self.next_offset[batch.source] = batch.next_offset
            self.at_end[batch.source] = batch.at_end

    def values(self, source: TopicPartition) -> list[bytes | None]:
        return [value for _offset, _key, value, _stamp_ms in self.rows.get(source, [])]


class Member(RebalanceListener):
    """A group member that reads its share from the committed offsets, or from 0."""

    def __init__(self, consumer: Consumer) -> None:
        self.consumer = consumer
        self.log = Log()
        self.share: tuple[TopicPartition, ...] | None = None
        self.history: list[str] = []
        self.commit_on_revoke: dict[TopicPartition, OffsetAndMetadata] = {}

    def on_assigned(self, shares: Sequence[TopicPartition]) -> None:
        self.history.append("assigned")
        self.share = tuple(sorted(shares))
        committed = self.consumer.committed(shares, TIMEOUT_MS)
        self.consumer.assign(
            {source: at.offset if at is not None else 0 for source, at in committed.items()}
        )

    def on_revoked(self, shares: Sequence[TopicPartition]) -> None:  # noqa: ARG002
        self.history.append("revoked")
        self.share = None
        if self.commit_on_revoke:
            self.consumer.commit(self.commit_on_revoke, TIMEOUT_MS)
        self.consumer.assign({})

    def on_lost(self, shares: Sequence[TopicPartition]) -> None:  # noqa: ARG002
        self.history.append("lost")
        self.share = None
        self.consumer.assign({})

    def poll(self) -> None:
        self.log.add(self.consumer.poll(1_000, POLL_MS))


def poll_until(
    condition: Callable[[], bool], *polled: Callable[[], object], polls_max: int = POLLS_MAX
) -> None:
    """Poll everybody in turn until it is so; fail when it does not become so."""
    for _ in range(polls_max):
        if condition():
            return
        for poll in polled:
            poll()
    raise AssertionError("it did not become so")


def read_to_end(reader: Reads, positions: Mapping[TopicPartition, int]) -> Log:
    """Assign and read until the end of each partition was told."""
    log = Log()
    reader.assign(positions)
    poll_until(
        lambda: all(log.at_end.get(source, False) for source in positions),
        lambda: log.add(reader.poll(1_000, POLL_MS)),
    )
    return log


def send_all(producer: Producer, *sends: Send) -> None:
    """Hand over everything and wait until it is acknowledged."""
    for send in sends:
        rest: Send | None = send
        while rest is not None:
            rest = producer.send(rest)
    poll_until(lambda: producer.flush(1_000))


def rows_of(topic: str, values: Sequence[bytes], partition: int = 0) -> Send:
    """Return a send of plain rows."""
    count = len(values)
    return Send(topic, [b"k"] * count, values, [T0_MS + i for i in range(count)], None, partition)


class BrokerContract(ABC):
    """The suite."""

    @abstractmethod
    def cluster(self, group: str) -> Cluster:
        """Return a maker of clients; all of them meet the same broker."""

    @abstractmethod
    def name(self, bare: str) -> str:
        """Return a name that no other test uses."""

    @contextmanager
    def topic(self, partitions: int = 1, **settings: str) -> Iterator[str]:
        """Make a topic for one test."""
        name = self.name("topic")
        admin = self.cluster(self.name("admin")).admin()
        admin.create([TopicSpec(name, partitions, settings)], TIMEOUT_MS)
        yield name
        admin.close()

    @contextmanager
    def plain(self) -> Iterator[tuple[Cluster, Producer, ChangelogReader]]:
        """Clients of a fresh group: a plain producer and a reader."""
        cluster = self.cluster(self.name("group"))
        producer, reader = cluster.producer(), cluster.changelog_reader()
        yield cluster, producer, reader
        producer.close()
        reader.close()

    @contextmanager
    def member(self, cluster: Cluster, topic: str) -> Iterator[Member]:
        """A member that has got its share."""
        member = Member(cluster.consumer())
        member.consumer.subscribe([topic], member)
        poll_until(lambda: member.share is not None, member.poll)
        yield member
        member.consumer.close()

    # -- reading and writing

    def test_rows_come_back_column_by_column(self) -> None:
        with self.topic() as topic, self.plain() as (_, producer, reader):
            headers: list[Headers] = [(("a", b"1"), ("a", b"2"), ("n", None)), (), (("é", b""),)]
            send = Send(
                topic, [b"k", None, b""], [b"v", b"", None], [T0_MS, 5, T0_MS - 1], headers, 0
            )
            send_all(producer, send)
            source = TopicPartition(topic, 0)
            log = read_to_end(reader, {source: 0})
            assert log.rows[source] == [
                (0, b"k", b"v", T0_MS),
                (1, None, b"", 5),
                (2, b"", None, T0_MS - 1),
            ]
            assert log.headers[source] == headers
            assert log.next_offset[source] == 3

    def test_a_column_without_headers_is_none(self) -> None:
        with self.topic() as topic, self.plain() as (_, producer, reader):
            send_all(producer, rows_of(topic, [b"1", b"2"]))
            reader.assign({TopicPartition(topic, 0): 0})
            batches: list[Fetched] = []
            poll_until(
                lambda: any(batch.offsets for batch in batches),
                lambda: batches.extend(reader.poll(1_000, POLL_MS)),
            )
            assert [batch.headers for batch in batches if batch.offsets] == [None]

    def test_the_end_of_an_empty_partition_is_told(self) -> None:
        with self.topic(2) as topic, self.plain() as (_, _producer, reader):
            sources = [TopicPartition(topic, i) for i in range(2)]
            log = read_to_end(reader, dict.fromkeys(sources, 0))
            assert log.next_offset == dict.fromkeys(sources, 0)
            assert log.rows == {source: [] for source in sources}

    def test_the_end_is_told_again_after_more_rows(self) -> None:
        with self.topic() as topic, self.plain() as (_, producer, reader):
            source = TopicPartition(topic, 0)
            log = read_to_end(reader, {source: 0})
            for number in range(1, 4):
                send_all(producer, rows_of(topic, [b"x"]))
                poll_until(
                    lambda number=number: log.next_offset[source] == number and log.at_end[source],  # type: ignore[misc]
                    lambda: log.add(reader.poll(1_000, POLL_MS)),
                )

    def test_the_end_is_told_after_an_assignment_to_the_end(self) -> None:
        with self.topic() as topic, self.plain() as (_, producer, reader):
            source = TopicPartition(topic, 0)
            send_all(producer, rows_of(topic, [b"x"] * 3))
            for _ in range(2):
                log = read_to_end(reader, {source: 3})
                assert (log.rows[source], log.next_offset[source]) == ([], 3)

    def test_each_partition_keeps_the_order_of_its_rows(self) -> None:
        with self.topic(4) as topic, self.plain() as (_, producer, reader):
            values = [b"%d" % i for i in range(5_000)]
            partitions = [i * 7 % 4 for i in range(5_000)]
            send_all(
                producer,
                Send(topic, [None] * 5_000, values, [T0_MS] * 5_000, None, partitions),
            )
            log = read_to_end(reader, {TopicPartition(topic, i): 0 for i in range(4)})
            for i in range(4):
                expected = [v for v, p in zip(values, partitions, strict=True) if p == i]
                assert log.values(TopicPartition(topic, i)) == expected

    def test_keys_go_where_kafkas_own_clients_put_them(self) -> None:
        with self.topic(6) as topic, self.plain() as (_, producer, reader):
            keys = [key.encode() for key in MURMUR2_OF_SIX]
            stamps_ms = [T0_MS] * len(keys)
            inner = Send(topic, [b"outer"] * len(keys), keys, stamps_ms, partition_keys=keys)
            send_all(producer, Send(topic, keys, keys, stamps_ms), inner)
            log = read_to_end(reader, {TopicPartition(topic, i): 0 for i in range(6)})
            for key, partition in MURMUR2_OF_SIX.items():
                values = log.values(TopicPartition(topic, partition))
                assert values.count(key.encode()) == 2, key

    def test_reading_begins_where_it_is_told_and_of_these_partitions_only(self) -> None:
        with self.topic(2) as topic, self.plain() as (_, producer, reader):
            send_all(producer, *[rows_of(topic, [b"0", b"1", b"2"], i) for i in range(2)])
            source = TopicPartition(topic, 1)
            log = read_to_end(reader, {source: 2})
            assert log.rows.keys() == {source}
            assert log.values(source) == [b"2"]

    def test_a_position_out_of_the_log_is_an_error(self) -> None:
        with self.topic() as topic, self.plain() as (cluster, producer, reader):
            source = TopicPartition(topic, 0)
            send_all(producer, rows_of(topic, [b"x"] * 4))
            admin = cluster.admin()
            admin.delete_records({source: 3}, TIMEOUT_MS)
            for position in (7, 1):
                reader.assign({source: position})
                with pytest.raises(FetchPositionGoneError) as caught:
                    poll_until(lambda: False, lambda: reader.poll(10, POLL_MS))
                assert caught.value.partition == source
            assert read_to_end(reader, {source: 3}).next_offset == {source: 4}
            admin.close()

    # -- the group

    def test_pause_and_seek_lose_no_row(self) -> None:
        with self.topic(2) as topic, self.plain() as (cluster, producer, _):
            one, two = (TopicPartition(topic, i) for i in range(2))
            with self.member(cluster, topic) as member:
                member.consumer.pause([one])
                send_all(producer, rows_of(topic, [b"1"], 0), rows_of(topic, [b"2"], 1))
                poll_until(lambda: member.log.values(two) == [b"2"], member.poll)
                for _ in range(5):
                    member.poll()
                assert member.log.values(one) == []
                member.consumer.resume([one])
                poll_until(lambda: member.log.values(one) == [b"1"], member.poll)
                member.consumer.seek(two, 0)
                poll_until(lambda: member.log.values(two) == [b"2", b"2"], member.poll)
                assert member.log.values(one) == [b"1"]

    def test_what_was_paused_is_read_once_it_is_assigned_anew(self) -> None:
        with self.topic(1) as topic, self.plain() as (cluster, producer, _):
            one = TopicPartition(topic, 0)
            with self.member(cluster, topic) as member:
                member.consumer.pause([one])
                send_all(producer, rows_of(topic, [b"1"], 0))
                member.consumer.assign({})
                member.consumer.assign({one: 0})
                poll_until(lambda: member.log.values(one) == [b"1"], member.poll)

    def test_ends_of_what_is_read_are_known_unasked_also_behind_an_open_transaction(self) -> None:
        cluster = self.cluster(self.name("group"))
        producer = cluster.producer()
        with self.topic(2) as topic, self.member(cluster, topic) as member:
            consumer, source = member.consumer, TopicPartition(topic, 0)
            send_all(producer, rows_of(topic, [b"x"] * 3))
            poll_until(lambda: member.log.values(source) == [b"x"] * 3, member.poll)
            assert consumer.high_watermarks([source]) == {source: 3}
            with self.transactional(cluster, self.name("txn")) as transaction:
                transaction.begin_transaction()
                send_all(transaction, rows_of(topic, [b"open"] * 2))
                poll_until(lambda: consumer.high_watermarks([source]) == {source: 5}, member.poll)
                transaction.abort_transaction(TIMEOUT_MS)
            assert member.log.values(source) == [b"x"] * 3
            consumer.assign({TopicPartition(topic, 1): 0})
            assert source not in consumer.high_watermarks([source])
        producer.close()

    def test_offsets_are_kept_with_their_metadata(self) -> None:
        with self.topic(2) as topic, self.plain() as (cluster, producer, _):
            one, two = (TopicPartition(topic, i) for i in range(2))
            send_all(producer, rows_of(topic, [b"x"] * 9))
            kept = OffsetAndMetadata(7, "clock é")
            with self.member(cluster, topic) as member:
                member.consumer.commit({one: kept}, TIMEOUT_MS)
                assert member.consumer.committed([one, two], TIMEOUT_MS) == {one: kept, two: None}
                longest = OffsetAndMetadata(8, "x" * 4_095)
                member.consumer.commit({one: longest}, TIMEOUT_MS)
                with pytest.raises(StreamsError):
                    member.consumer.commit({one: OffsetAndMetadata(9, "x" * 4_096)}, TIMEOUT_MS)
            with self.member(cluster, topic) as member:
                assert member.consumer.committed([one], TIMEOUT_MS) == {one: longest}

    def test_two_members_share_and_the_one_left_takes_all(self) -> None:
        with self.topic(4) as topic, self.plain() as (cluster, _, _reader):
            everything = tuple(TopicPartition(topic, i) for i in range(4))
            first = Member(cluster.consumer())
            first.consumer.subscribe([topic], first)
            poll_until(lambda: first.share == everything, first.poll)
            assert first.consumer.member_id() is not None
            second = Member(cluster.consumer())
            assert second.consumer.member_id() is None
            second.consumer.subscribe([topic], second)
            poll_until(
                lambda: len(first.share or ()) == 2 and len(second.share or ()) == 2,
                first.poll, second.poll,
            )  # fmt: skip
            assert {*(first.share or ()), *(second.share or ())} == set(everything)
            assert first.history == ["assigned", "revoked", "assigned"]
            first.consumer.close()
            assert first.history == ["assigned", "revoked", "assigned"]  # close tells nobody
            poll_until(lambda: second.share == everything, second.poll)
            second.consumer.close()

    def test_a_member_without_a_share_is_told_so(self) -> None:
        with self.topic(1) as topic, self.plain() as (cluster, _, _reader):
            members = [Member(cluster.consumer()) for _ in range(2)]
            for member in members:
                member.consumer.subscribe([topic], member)
            poll_until(
                lambda: sorted(len(m.share) for m in members if m.share is not None) == [0, 1],
                *[member.poll for member in members],
            )
            assert all(member.consumer.member_id() for member in members)
            for member in members:
                member.consumer.close()

    def test_a_commit_inside_the_revoke_callback_counts(self) -> None:
        with self.topic(2) as topic, self.plain() as (cluster, writer, _):
            source = TopicPartition(topic, 0)
            send_all(writer, rows_of(topic, [b"x"] * 6))
            first, second = Member(cluster.consumer()), Member(cluster.consumer())
            first.consumer.subscribe([topic], first)
            poll_until(lambda: first.share is not None, first.poll)
            first.commit_on_revoke = {source: OffsetAndMetadata(5)}
            second.consumer.subscribe([topic], second)
            poll_until(lambda: second.share is not None, first.poll, second.poll)
            committed = second.consumer.committed([source], TIMEOUT_MS)
            assert committed == {source: OffsetAndMetadata(5)}
            first.consumer.close()
            second.consumer.close()

    def test_what_a_listener_raises_comes_out_of_poll(self) -> None:
        class Failing(Member):
            def on_assigned(self, shares: Sequence[TopicPartition]) -> None:
                raise ZeroDivisionError(len(shares))

        with self.topic(3) as topic, self.plain() as (cluster, _, _reader):
            member = Failing(cluster.consumer())
            member.consumer.subscribe([topic], member)
            with pytest.raises(ZeroDivisionError, match="3"):
                poll_until(lambda: False, member.poll)
            member.consumer.close()

    # -- transactions

    @contextmanager
    def transactional(self, cluster: Cluster, name: str) -> Iterator[Producer]:
        """A producer that may begin."""
        producer = cluster.producer(name)
        poll_until(lambda: _done(lambda: producer.init_transactions(TIMEOUT_MS)))
        yield producer
        producer.close()

    def test_committed_rows_and_offsets_show_together_and_aborted_ones_never(self) -> None:
        with self.topic() as topic, self.plain() as (cluster, _, reader):
            source = TopicPartition(topic, 0)
            with (
                self.member(cluster, topic) as member,
                self.transactional(cluster, self.name("txn")) as producer,
            ):
                producer.begin_transaction()
                send_all(producer, rows_of(topic, [b"aborted"]))
                producer.abort_transaction(TIMEOUT_MS)
                producer.begin_transaction()
                send_all(producer, rows_of(topic, [b"1", b"2"]))
                offsets = {source: OffsetAndMetadata(2, "m")}
                producer.commit_transaction(offsets, member.consumer.group_metadata(), TIMEOUT_MS)
                assert member.consumer.committed([source], TIMEOUT_MS) == offsets
                log = read_to_end(reader, {source: 0})
                assert log.values(source) == [b"1", b"2"]
                # 3 rows and 2 markers: the end lies behind the last marker.
                assert log.next_offset[source] == 5
                admin = cluster.admin()
                assert admin.offsets([source], "latest", TIMEOUT_MS) == {source: 5}
                admin.close()

    def test_an_open_transaction_hides_the_end(self) -> None:
        with self.topic() as topic, self.plain() as (cluster, plain, reader):
            source = TopicPartition(topic, 0)
            send_all(plain, rows_of(topic, [b"before"]))
            with self.transactional(cluster, self.name("txn")) as producer:
                producer.begin_transaction()
                send_all(producer, rows_of(topic, [b"open"]))
                send_all(plain, rows_of(topic, [b"behind"]))
                log = Log()
                reader.assign({source: 0})
                poll_until(
                    lambda: log.values(source) == [b"before"],
                    lambda: log.add(reader.poll(10, POLL_MS)),
                )
                for _ in range(5):
                    log.add(reader.poll(10, POLL_MS))
                assert log.values(source) == [b"before"]
                assert (log.next_offset[source], log.at_end[source]) == (1, False)
                admin = cluster.admin()
                assert admin.offsets([source], "latest", TIMEOUT_MS) == {source: 3}
                admin.close()
                producer.abort_transaction(TIMEOUT_MS)
                poll_until(lambda: log.at_end[source], lambda: log.add(reader.poll(10, POLL_MS)))
                assert log.values(source) == [b"before", b"behind"]
                assert log.next_offset[source] == 4

    def test_a_new_producer_with_the_id_fences_the_old_one(self) -> None:
        with self.topic() as topic, self.plain() as (cluster, _, reader):
            source, name = TopicPartition(topic, 0), self.name("txn")
            with (
                self.member(cluster, topic) as member,
                self.transactional(cluster, name) as old,
            ):
                proof = member.consumer.group_metadata()
                old.begin_transaction()
                send_all(old, rows_of(topic, [b"old"]))
                with self.transactional(cluster, name) as new:
                    new.begin_transaction()
                    send_all(new, rows_of(topic, [b"new"]))
                    new.commit_transaction({}, proof, TIMEOUT_MS)
                    with pytest.raises(ProducerFencedError):
                        old.commit_transaction({}, proof, TIMEOUT_MS)
                assert read_to_end(reader, {source: 0}).values(source) == [b"new"]

    def test_offsets_of_a_past_generation_are_refused(self) -> None:
        with self.topic(2) as topic, self.plain() as (cluster, _, _reader):
            source = TopicPartition(topic, 0)
            first, second = Member(cluster.consumer()), Member(cluster.consumer())
            first.consumer.subscribe([topic], first)
            poll_until(lambda: first.share is not None, first.poll)
            past = first.consumer.group_metadata()
            second.consumer.subscribe([topic], second)
            poll_until(lambda: second.share is not None, first.poll, second.poll)
            with self.transactional(cluster, self.name("txn")) as producer:
                producer.begin_transaction()
                send_all(producer, rows_of(topic, [b"x"]))
                with pytest.raises(MemberFencedError):
                    producer.commit_transaction({source: OffsetAndMetadata(1)}, past, TIMEOUT_MS)
                producer.abort_transaction(TIMEOUT_MS)
                assert second.consumer.committed([source], TIMEOUT_MS) == {source: None}
            first.consumer.close()
            second.consumer.close()

    # -- the cluster

    def test_topics_are_made_once_and_keep_their_id(self) -> None:
        admin = self.cluster(self.name("group")).admin()
        name, other = self.name("made"), self.name("missing")
        spec = TopicSpec(name, 3, {"cleanup.policy": "compact", "retention.ms": "-1"})
        admin.create([spec], TIMEOUT_MS, only_ask=True)
        assert admin.partitions([name], TIMEOUT_MS) == {name: None}
        admin.create([spec], TIMEOUT_MS)
        admin.create([spec], TIMEOUT_MS, only_ask=True)
        ids = admin.topic_ids([name, other], TIMEOUT_MS)
        admin.create([spec], TIMEOUT_MS)
        assert admin.partitions([name, other], TIMEOUT_MS) == {name: 3, other: None}
        assert admin.topic_ids([name, other], TIMEOUT_MS) == ids
        assert ids[name]
        assert not ids[other]
        settings = admin.settings([name, other], TIMEOUT_MS)
        assert settings.keys() == {name}
        assert settings[name].items() >= dict(spec.settings).items()
        admin.close()

    def test_deleted_records_move_the_beginning(self) -> None:
        with self.topic(2) as topic, self.plain() as (cluster, producer, _):
            one, two = (TopicPartition(topic, i) for i in range(2))
            send_all(producer, rows_of(topic, [b"x"] * 4))
            admin = cluster.admin()
            assert admin.offsets([one, two], "latest", TIMEOUT_MS) == {one: 4, two: 0}
            assert admin.delete_records({one: 3}, TIMEOUT_MS) == frozenset()
            assert admin.offsets([one, two], "earliest", TIMEOUT_MS) == {one: 3, two: 0}
            admin.close()


def _done(call: Callable[[], object]) -> bool:
    """Return True when the call went through, False when it may later."""
    try:
        call()
    except StreamsError as error:
        if error.recovery.name != "RETRY":
            raise
        return False
    return True
