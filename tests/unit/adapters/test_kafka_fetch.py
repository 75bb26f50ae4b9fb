"""Messages to columns."""

from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_NOT_AVAILABLE, KafkaError, Message
from hypothesis import given
from hypothesis import strategies as st

from streamcore.adapters.kafka_fetch import split
from streamcore.model import Fetched, TopicPartition

ONE = TopicPartition("t", 1)


def row(source: TopicPartition, offset: int, stamp_ms: int = 5) -> Message:
    kind = TIMESTAMP_NOT_AVAILABLE if stamp_ms < 0 else TIMESTAMP_CREATE_TIME
    return Message(*source, offset, b"k", b"%d" % offset, None, None, (kind, stamp_ms))


def event(source: TopicPartition, offset: int, code: int = KafkaError._PARTITION_EOF) -> Message:
    return Message(*source, offset, error=KafkaError(code))


def high(offset: int) -> "dict[TopicPartition, int]":
    return {ONE: offset}


def test_one_partition_is_one_batch() -> None:
    batches, errors = split([row(ONE, 3), row(ONE, 5, -1)], high(9).__getitem__)
    expected = Fetched(ONE, [3, 5], [b"k", b"k"], [b"3", b"5"], [5, -1], None, next_offset=6)
    assert (batches, errors) == ([expected], [])


def test_headers_are_tuples_for_every_row_as_soon_as_one_has_some() -> None:
    marked = Message("t", 1, 4, b"k", b"v", [("h", b"1"), ("h", None)], None, (1, 5))
    ((batch,), _) = split([row(ONE, 3), marked], high(9).__getitem__)
    assert batch.headers == [(), (("h", b"1"), ("h", None))]


def test_the_end_of_a_partition_is_its_high_watermark() -> None:
    cases = [
        ([row(ONE, 3), event(ONE, 4)], 4, (4, True)),
        ([row(ONE, 3), event(ONE, 6)], 6, (6, True)),  # behind a marker
        ([row(ONE, 3), event(ONE, 4)], 9, (4, False)),  # in front of an open transaction
        ([event(ONE, 4), row(ONE, 4)], 4, (5, False)),  # something came behind the event
        ([event(ONE, 0)], 0, (0, True)),
        ([row(ONE, 3)], 4, (4, False)),  # no event
    ]
    for messages, watermark, expected in cases:
        ((batch,), errors) = split(messages, high(watermark).__getitem__)
        assert ((batch.next_offset, batch.at_end), errors) == (expected, [])


def test_other_errors_are_handed_on() -> None:
    error = event(ONE, 3, KafkaError._AUTO_OFFSET_RESET)
    batches, errors = split([row(ONE, 3), error], high(9).__getitem__)
    assert [batch.offsets for batch in batches] == [[3]]
    assert errors == [error]


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 2)), max_size=30))
def test_every_partition_keeps_its_rows_in_order(sources: list[tuple[str, int]]) -> None:
    messages = [row(TopicPartition(*source), i) for i, source in enumerate(sources)]
    batches, _ = split(messages, high(9).__getitem__)
    assert {batch.source: batch.offsets for batch in batches} == {
        TopicPartition(*source): [i for i, other in enumerate(sources) if other == source]
        for source in sources
    }
    assert len(batches) == len(set(sources))
    assert all(batch.values == [b"%d" % i for i in batch.offsets] for batch in batches)
