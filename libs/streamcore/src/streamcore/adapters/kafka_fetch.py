"""Messages to columns: what one call of ``consume`` gave, as one batch per partition."""

from collections.abc import Callable, Iterable, Sequence
from itertools import compress, islice, pairwise
from operator import itemgetter, ne

from confluent_kafka import KafkaError, Message

from streamcore.model import Fetched, Headers, TopicPartition

_stamp_of = itemgetter(1)
_END = KafkaError._PARTITION_EOF  # noqa: SLF001 - how the binding spells local codes


def split(
    messages: list[Message], high_watermark: Callable[[TopicPartition], int]
) -> tuple[list[Fetched], list[Message]]:
    """Return a batch for each partition with rows or an end, and the messages that are errors.

    One column at a time, each by one call of ``map``: a loop over rows would cost more than
    librdkafka itself. A partition is at its end when the offset of its end-of-partition event is
    its high watermark: the event alone may stand in front of an open transaction.
    """
    errors: list[Message] = []
    ends: dict[TopicPartition, int] = {}
    if any(map(Message.error, messages)):
        messages, ends, errors = _set_aside(messages)
    batches = [_columns(source, rows) for source, rows in _by_partition(messages)]
    if ends:
        _note_ends(batches, ends, high_watermark)
    return batches, errors


def _set_aside(
    messages: list[Message],
) -> tuple[list[Message], dict[TopicPartition, int], list[Message]]:
    rows, ends, errors = [], {}, []
    for message in messages:
        error = message.error()
        if error is None:
            rows.append(message)
        elif error.code() == _END:
            ends[_source_of(message)] = _number(message.offset())
        else:
            errors.append(message)
    return rows, ends, errors


def _by_partition(messages: list[Message]) -> Iterable[tuple[TopicPartition, list[Message]]]:
    if not messages:
        return []
    topics = list(map(Message.topic, messages))
    partitions = list(map(Message.partition, messages))
    count = len(messages)
    # Most calls give rows of one partition: librdkafka hands out fetched batches in turn.
    if partitions.count(partitions[0]) == count and topics.count(topics[0]) == count:
        return [(_source_of(messages[0]), messages)]
    sources = list(zip(topics, partitions, strict=True))
    bounds = compress(range(1, count), map(ne, sources, islice(sources, 1, None)))
    groups: dict[TopicPartition, list[Message]] = {}
    for start, stop in pairwise([0, *bounds, count]):
        run = messages[start:stop]
        groups.setdefault(_source_of(run[0]), []).extend(run)
    return groups.items()


def _columns(source: TopicPartition, rows: list[Message]) -> Fetched:
    offsets: list[int] = list(map(Message.offset, rows))  # type: ignore[arg-type]
    return Fetched(
        source=source,
        offsets=offsets,
        keys=list(map(Message.key, rows)),
        values=list(map(Message.value, rows)),
        stamps_ms=list(map(_stamp_of, map(Message.timestamp, rows))),  # -1: it has none
        headers=_headers(rows),
        next_offset=offsets[-1] + 1,
    )


def _headers(rows: list[Message]) -> list[Headers] | None:
    try:
        headers: Sequence[object] = list(map(Message.headers, rows))
    except UnicodeDecodeError:  # a name that is not UTF-8: that record loses its headers
        headers = list(map(_headers_if_legible, rows))
    if not any(headers):
        return None
    return [tuple(pairs) if pairs else () for pairs in headers]  # type: ignore[arg-type]


def _headers_if_legible(row: Message) -> object:
    try:
        return row.headers()
    except UnicodeDecodeError:
        return None


def _note_ends(
    batches: list[Fetched],
    ends: dict[TopicPartition, int],
    high_watermark: Callable[[TopicPartition], int],
) -> None:
    by_source = {batch.source: batch for batch in batches}
    for source, end in ends.items():
        batch = by_source.get(source)
        if batch is None:
            batch = Fetched(source, [], [], [], [], None, next_offset=end)
            batches.append(batch)
        # Rows behind the event came in the same call: then it tells nothing any more.
        batch.next_offset = max(batch.next_offset, end)
        batch.at_end = batch.next_offset == end == high_watermark(source)


def _source_of(message: Message) -> TopicPartition:
    topic = message.topic()
    assert topic is not None
    return TopicPartition(topic, _number(message.partition()))


def _number(value: int | None) -> int:
    assert value is not None
    return value
