"""The broker in memory does what the real one was seen to do, or it would test nothing."""

from collections.abc import Sequence

import pytest

from streamcore.errors import (
    AuthorizationError,
    FetchPositionGoneError,
    MemberFencedError,
    ProducerFencedError,
    ProductionError,
    RetriableError,
    StreamsError,
)
from streamcore.model import OffsetAndMetadata, Send, TopicPartition
from streamcore.runtime.ports import GroupView
from streamcore.testing.broker import InMemoryBroker
from streamcore.testing.clock import ManualClock
from streamcore.testing.consumer import MemoryConsumer, MemoryReader
from streamcore.testing.producer import MemoryAdmin, MemoryProducer

T0 = TopicPartition("t", 0)


class Listener:
    def __init__(self, consumer: MemoryConsumer) -> None:
        self.consumer = consumer
        self.calls: list[tuple[str, int]] = []

    def on_assigned(self, shares: Sequence[TopicPartition]) -> None:
        self.calls.append(("assigned", len(shares)))
        self.consumer.assign({})

    def on_revoked(self, shares: Sequence[TopicPartition]) -> None:
        self.calls.append(("revoked", len(shares)))

    def on_lost(self, shares: Sequence[TopicPartition]) -> None:
        self.calls.append(("lost", len(shares)))


def broker(partitions: int = 1, **settings: str) -> InMemoryBroker:
    made = InMemoryBroker(ManualClock())
    made.create("t", partitions, {key.replace("_", "."): value for key, value in settings.items()})
    return made


def member(made: InMemoryBroker) -> tuple[MemoryConsumer, Listener]:
    consumer = MemoryConsumer(made, made.group("g"))
    listener = Listener(consumer)
    consumer.subscribe(["t"], listener)
    return consumer, listener


def send(value: bytes, key: bytes | None = b"k") -> Send:
    return Send("t", [key], [value], [1])


def transactional(made: InMemoryBroker) -> MemoryProducer:
    producer = MemoryProducer(made, "tx")
    producer.init_transactions(1_000)
    producer.begin_transaction()
    return producer


def test_readers_stop_at_the_last_stable_offset_and_pass_markers() -> None:
    made = broker()
    producer = transactional(made)
    made.write("t", b"k", b"before", 1)
    producer.send(send(b"open"))
    made.write("t", b"k", b"after", 1)
    reader = MemoryReader(made)
    reader.assign({T0: 0})
    (first,) = reader.poll(10, 0)
    assert (first.values, first.next_offset, first.at_end) == ([b"before"], 1, False)
    producer.abort_transaction(1_000)
    (second,) = reader.poll(10, 0)
    assert (second.offsets, second.next_offset, second.at_end) == ([2], 4, True)
    assert reader.poll(10, 0) == []  # the end is told once


def test_late_markers_keep_readers_and_offsets_waiting() -> None:
    made = broker()
    made.late_markers = True
    consumer, _ = member(made)
    consumer.poll(1, 0)
    producer = transactional(made)
    producer.send(send(b"x"))
    producer.commit_transaction({T0: OffsetAndMetadata(5)}, consumer.group_metadata(), 1_000)
    assert made.read("t") == []
    with pytest.raises(RetriableError, match="UNSTABLE"):
        consumer.committed([T0], 1_000)
    made.write_markers()
    assert [record.value for record in made.read("t")] == [b"x"]
    assert consumer.committed([T0], 1_000) == {T0: OffsetAndMetadata(5)}


def test_an_expired_transaction_is_fatal_for_its_producer() -> None:
    made = broker()
    producer = transactional(made)
    producer.send(send(b"x"))
    made.clock.advance(11_000)
    with pytest.raises(ProducerFencedError):
        producer.flush(1_000)
    transactional(made).flush(1_000)


def test_a_new_producer_of_that_id_aborts_what_the_old_one_left() -> None:
    made = broker()
    old = transactional(made)
    old.send(send(b"x"))
    transactional(made)
    assert made.read("t") == []
    with pytest.raises(ProducerFencedError):
        old.send(send(b"y"))


def test_every_member_hears_of_every_generation_an_empty_share_included() -> None:
    made = broker()
    one, heard_one = member(made)
    two, heard_two = member(made)
    one.poll(1, 0)
    two.poll(1, 0)  # joins: the first has to give up
    one.poll(1, 0)
    two.poll(1, 0)
    assert heard_one.calls == [("assigned", 1), ("revoked", 1), ("assigned", 1)]
    assert heard_two.calls == [("assigned", 0)]
    two.close()
    one.poll(1, 0)
    assert heard_one.calls[-2:] == [("revoked", 1), ("assigned", 1)]


def test_a_silent_member_is_put_out_and_hears_of_it_in_its_next_poll() -> None:
    made = broker()
    one, heard = member(made)
    one.poll(1, 0)
    one.dead = True
    two, _ = member(made)
    made.clock.advance(11_000)
    two.poll(1, 0)
    assert one.member_id() is None
    with pytest.raises(MemberFencedError):
        one.commit({T0: OffsetAndMetadata(1)}, 1_000)
    one.poll(1, 0)
    assert heard.calls == [("assigned", 1), ("lost", 1)]


def test_nobody_commits_between_two_generations() -> None:
    made = broker()
    one, heard = member(made)
    two, _ = member(made)
    for _ in range(2):
        one.poll(1, 0)
        two.poll(1, 0)
    three, _ = member(made)
    three.poll(1, 0)
    one.commit({T0: OffsetAndMetadata(1)}, 1_000)  # it has not heard of the rebalance yet
    one.poll(1, 0)  # waits for the second one now
    assert heard.calls[-1][0] == "revoked"
    with pytest.raises(MemberFencedError):
        one.commit({T0: OffsetAndMetadata(2)}, 1_000)
    two.poll(1, 0)
    one.poll(1, 0)
    one.commit({T0: OffsetAndMetadata(3)}, 1_000)


def test_a_list_without_an_answer() -> None:
    made = broker()
    admin = MemoryAdmin(made)
    made.faults.next("admin.group", False)
    assert admin.group("g", 300) is None
    assert admin.group("g", 300) is not None
    made.away = True
    began_ms = made.clock.now_ms()
    assert admin.group("g", 300) is None
    assert made.clock.now_ms() == began_ms + 300
    made.away = False
    made.faults.next("admin.group", AuthorizationError("no"))
    with pytest.raises(AuthorizationError):
        admin.group("g", 300)


def test_the_list_has_no_member_that_was_silent_for_too_long() -> None:
    made = broker()
    one, _ = member(made)
    one.poll(1, 0)
    one.dead = True
    made.clock.advance(11_000)
    assert MemoryAdmin(made).group("g", 300) == GroupView(stable=True, members=())


def test_offsets_of_a_dead_transaction_are_pending_until_somebody_takes_its_id() -> None:
    made = broker()
    consumer, _ = member(made)
    consumer.poll(1, 0)
    dead = transactional(made)
    made.faults.next("producer.commit_transaction.offsets_sent", RetriableError("killed"))
    with pytest.raises(RetriableError, match="killed"):
        dead.commit_transaction({T0: OffsetAndMetadata(5)}, consumer.group_metadata(), 1_000)
    with pytest.raises(RetriableError, match="UNSTABLE"):
        consumer.committed([T0], 1_000)
    MemoryProducer(made, "tx").init_transactions(1_000)
    assert consumer.committed([T0], 1_000) == {T0: None}


def test_metadata_over_the_limit_is_refused() -> None:
    made = broker()
    consumer, _ = member(made)
    consumer.poll(1, 0)
    consumer.commit({T0: OffsetAndMetadata(1, "x" * 4_095)}, 1_000)
    with pytest.raises(StreamsError, match="OFFSET_METADATA_TOO_LARGE"):
        consumer.commit({T0: OffsetAndMetadata(1, "x" * 4_096)}, 1_000)


def test_positions_outside_the_log_are_gone() -> None:
    made = broker()
    made.write("t", b"k", b"x", 1)
    made.write("t", b"k", b"y", 1)
    MemoryAdmin(made).delete_records({T0: 1}, 1_000)
    for offset in (0, 3):
        reader = MemoryReader(made)
        reader.assign({T0: offset})
        with pytest.raises(FetchPositionGoneError):
            reader.poll(1, 0)


def test_a_compacted_topic_keeps_the_newest_and_refuses_records_without_a_key() -> None:
    made = broker(cleanup_policy="compact")
    for key, value in ((b"a", b"1"), (b"b", b"1"), (b"a", b"2"), (b"b", None)):
        made.write("t", key, value, 1)
    made.compact("t")
    assert [r.offset for r in made.read("t")] == [2, 3], "a tombstone was not there to be seen"
    made.compact("t")
    assert [(r.offset, r.key, r.value) for r in made.read("t")] == [(2, b"a", b"2")]
    producer = MemoryProducer(made, None)
    producer.send(send(b"x", key=None))
    with pytest.raises(ProductionError, match="without key"):
        producer.flush(1_000)
    assert producer.flush(1_000)


def test_a_full_queue_gives_back_what_did_not_fit() -> None:
    made = broker()
    made.queue_rows_max = 2
    made.away = True
    producer = MemoryProducer(made, None)
    rest = producer.send(Send("t", [b"k"] * 3, [b"1", b"2", b"3"], [1, 2, 3], partition=0))
    assert rest is not None
    assert (rest.values, rest.stamps_ms) == ([b"3"], [3])
    assert not producer.flush(1_000)
    made.away = False
    assert producer.flush(1_000)
    assert [record.value for record in made.read("t")] == [b"1", b"2"]
