"""Rows on their way into librdkafka, and what becomes of those that it gives back."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from confluent_kafka import KafkaError

from streamcore.model import Refused, Send, TopicPartition

ProduceHeaders = list[tuple[str, bytes | None]]  # the binding takes no tuples


@dataclass(frozen=True, slots=True)
class Columns:
    """What ``produce`` is called with, row by row; ``first`` numbers the rows of a producer."""

    topic: str
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    stamps_ms: Sequence[int]
    partitions: int | Sequence[int]
    headers: Sequence[ProduceHeaders] | None
    first: int

    def behind(self, row: int, rows_max: int | None = None) -> "Columns":
        """Return the rows from this one on, all or so many."""
        stop = len(self.values) if rows_max is None else row + rows_max
        if row == 0 and stop >= len(self.values):
            return self
        part, fixed = slice(row, stop), isinstance(self.partitions, int)
        return Columns(
            self.topic,
            self.keys[part],
            self.values[part],
            self.stamps_ms[part],
            self.partitions if fixed else self.partitions[part],  # type: ignore[index]
            None if self.headers is None else self.headers[part],
            self.first + row,
        )

    def partition(self, row: int) -> int:
        """Return the partition that a row was sent to, -1 for any."""
        return self.partitions if isinstance(self.partitions, int) else self.partitions[row]


@dataclass(frozen=True, slots=True)
class Failure:
    """A row that was not written; ``rows`` is None where the producer does not keep them."""

    source: TopicPartition
    error: KafkaError
    rows: Columns | None = None
    row: int = 0
    alone: bool = False  # refused by itself, and not with the batch that it was in

    @property
    def number(self) -> int:
        """Where the row stood among all that the producer was given."""
        assert self.rows is not None, "this producer does not keep its rows"
        return self.rows.first + self.row

    @property
    def reason(self) -> str:
        return f"{self.error.str()} ({self.error.name()})"

    def refused(self) -> Refused:
        """Return the row as it was sent, with what the broker said."""
        return Refused(resend([self])[0], self.source.partition, self.reason)


def resend(failures: Iterable[Failure]) -> list[Send]:
    """Return the rows as batches of one topic each, in this order, to where they were sent."""
    sends: list[Send] = []
    for failure in failures:
        rows, row = failure.rows, failure.row
        assert rows is not None, "this producer does not keep its rows"
        headers = () if rows.headers is None else tuple(rows.headers[row])
        if not sends or sends[-1].topic != rows.topic:
            sends.append(Send(rows.topic, [], [], [], [], []))
        send = sends[-1]
        for column, value in (
            (send.keys, rows.keys[row]),
            (send.values, rows.values[row]),
            (send.stamps_ms, rows.stamps_ms[row]),
            (send.headers, headers),
            (send.partition, failure.source.partition),
        ):
            column.append(value)  # type: ignore[union-attr]
    return sends


def rest_of(send: Send, columns: Columns, row: int) -> Send:
    """Return what was not taken. Partitions stay as computed: a key keeps its own."""
    rest = columns.behind(row)
    computed = send.partition is None and send.partition_keys is not None
    return Send(
        topic=send.topic,
        keys=rest.keys,
        values=rest.values,
        stamps_ms=rest.stamps_ms,
        headers=None if send.headers is None else send.headers[row:],
        partition=rest.partitions if computed or send.partition is not None else None,
    )
