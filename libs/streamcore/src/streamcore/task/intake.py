"""Intake: what the broker gave becomes what a task can process, one input partition at a time.

A fetched batch is decoded by column and cut into items: chunks of good rows, markers of upstream
tasks, faults (rows that a policy must decide about) and gaps (nothing but a new position). Offsets
advance past every kind of item when it is processed, never when it is fetched.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from streamcore.errors import (
    DeserializationError,
    ProcessingError,
    RecordError,
    TimestampError,
)
from streamcore.model import Fetched, Headers, TopicPartition
from streamcore.operators.base import FOREIGN_REPARTITION_RECORD
from streamcore.operators.marker import Marker, read_marker, take_clocks
from streamcore.serde.base import Serde
from streamcore.task.user_code import blame_no_record
from streamcore.topology.nodes import Source


@dataclass(slots=True)
class Chunk:
    """Good rows in offset order; ``clocks_ms`` None: the source's clock decides at processing.

    ``raw`` is the batch that they were decoded from.
    """

    keys: list[Any]
    values: list[Any]
    stamps_ms: list[int]
    headers: list[Headers] | None
    clocks_ms: list[int] | None
    offsets: list[int]
    next_offset: int
    raw: Fetched

    low: int = 0

    @property
    def rows(self) -> int:
        """Rows not taken yet."""
        return len(self.offsets) - self.low

    def take(self, rows: int) -> "Chunk":
        """Return the next ``rows`` rows as a chunk of their own; these are taken then."""
        low, high = self.low, self.low + rows
        assert low < high <= len(self.offsets), (low, high)
        self.low = high
        if low == 0 and high == len(self.offsets):
            return replace(self, low=0)
        return Chunk(
            self.keys[low:high],
            self.values[low:high],
            self.stamps_ms[low:high],
            None if self.headers is None else self.headers[low:high],
            None if self.clocks_ms is None else self.clocks_ms[low:high],
            self.offsets[low:high],
            self.next_offset if high == len(self.offsets) else self.offsets[high - 1] + 1,
            self.raw,
        )

    def apart(self) -> "list[Chunk]":
        """Return the rows one by one; all are taken then."""
        return [self.take(1) for _ in range(self.rows)]

    def as_fault(self, error: RecordError) -> "Fault":
        """Return the only row as it was on the broker."""
        assert len(self.offsets) == 1, self.offsets
        fault = _fault(self.raw, bisect_left(self.raw.offsets, self.offsets[0]), error)
        fault.next_offset = self.next_offset
        return fault


@dataclass(slots=True)
class Heard:
    """A marker of an upstream task, and when it was written there (wall clock)."""

    marker: Marker
    said_at_ms: int
    next_offset: int


@dataclass(slots=True)
class Fault:
    """A row that cannot go on, as it was on the broker."""

    error: RecordError
    key: bytes | None
    value: bytes | None
    stamp_ms: int
    headers: Headers
    next_offset: int


@dataclass(slots=True)
class Gap:
    """Nothing to process; ``drop`` counts the skipped record, if it was one."""

    next_offset: int
    drop: str | None = None


Item = Chunk | Heard | Fault | Gap


class Intake:
    """Decodes the batches of one input partition."""

    def __init__(
        self, partition: TopicPartition, source: Source, poisoned: Mapping[int, ProcessingError]
    ) -> None:
        self._partition = partition
        self._source = source
        self._poisoned = poisoned

    def items(self, fetched: Fetched, stamp_limit_ms: int) -> list[Item]:
        """Return the items of a batch, in offset order.

        A stamp below 0 or above ``stamp_limit_ms`` is invalid and makes a fault.
        """
        if not fetched.offsets:
            return [Gap(fetched.next_offset)]
        special = self._special(fetched)
        found: list[Item] = []
        low = 0
        for row in sorted(special):
            found += self._good(fetched, low, row, stamp_limit_ms)
            found.append(special[row])
            low = row + 1
        found += self._good(fetched, low, len(fetched.offsets), stamp_limit_ms)
        last = found[-1]
        if last.next_offset < fetched.next_offset:
            found.append(Gap(fetched.next_offset))
        return found

    def _special(self, fetched: Fetched) -> dict[int, Item]:
        """Return rows known to be no ordinary record before anything is decoded."""
        special: dict[int, Item] = {}
        if self._source.internal and None in fetched.keys:
            for row, key in enumerate(fetched.keys):
                if key is None:
                    special[row] = self._marker(fetched, row)
        if self._poisoned:
            for row, offset in enumerate(fetched.offsets):
                if offset in self._poisoned:
                    special[row] = _fault(fetched, row, self._poisoned[offset])
        return special

    def _marker(self, fetched: Fetched, row: int) -> Item:
        next_offset = fetched.offsets[row] + 1
        marker = read_marker(None if fetched.headers is None else fetched.headers[row])
        if marker is None:
            return Gap(next_offset, drop=FOREIGN_REPARTITION_RECORD)
        return Heard(marker, fetched.stamps_ms[row], next_offset)

    def _good(self, fetched: Fetched, low: int, high: int, limit_ms: int) -> list[Item]:
        """Return the chunk of rows [low, high), or more items if some of them have faults."""
        if low == high:
            return []
        keys = self._decoded(self._source.key, fetched.keys[low:high])
        values = self._decoded(self._source.value, fetched.values[low:high])
        if keys is None or values is None:
            return self._around_faults(fetched, low, high, limit_ms)
        stamps_ms = fetched.stamps_ms[low:high]
        extract = self._source.timestamp
        if extract is not None:
            try:
                stamps_ms = list(map(extract, keys, values, stamps_ms))
            except Exception as error:  # user code; the row is found one by one
                blame_no_record(error)
                return self._around_faults(fetched, low, high, limit_ms)
        if (
            (extract is not None and set(map(type, stamps_ms)) != {int})
            or min(stamps_ms) < 0
            or max(stamps_ms) > limit_ms
        ):
            return self._around_faults(fetched, low, high, limit_ms)
        headers = None if fetched.headers is None else fetched.headers[low:high]
        if headers is not None and not any(headers):
            headers = None  # only a marker or a fault had some
        clocks_ms: list[int] | None = None
        if self._source.internal:
            clocks_ms = stamps_ms
            if headers is not None:
                clocks_ms, headers = take_clocks(headers, stamps_ms)
        offsets = fetched.offsets[low:high]
        whole = high == len(fetched.offsets)
        next_offset = fetched.next_offset if whole else offsets[-1] + 1
        return [Chunk(keys, values, stamps_ms, headers, clocks_ms, offsets, next_offset, fetched)]

    def _decoded(self, serde: Serde, column: Sequence[bytes | None]) -> list[Any] | None:
        try:
            return serde.deserialize_column(column)
        except Exception as error:  # a serde may raise anything; the row is found one by one
            blame_no_record(error)
            return None

    def _around_faults(self, fetched: Fetched, low: int, high: int, limit_ms: int) -> list[Item]:
        """Look at each row alone and cut the batch around those that fail."""
        found: list[Item] = []
        good_from = low
        for row in range(low, high):
            error = self._fault_of(fetched, row, limit_ms)
            if error is not None:
                found += self._good(fetched, good_from, row, limit_ms)
                found.append(_fault(fetched, row, error))
                good_from = row + 1
        found += self._good(fetched, good_from, high, limit_ms)
        return found

    def _fault_of(self, fetched: Fetched, row: int, limit_ms: int) -> RecordError | None:
        source, offset = self._source, fetched.offsets[row]
        at = (self._partition, offset)
        decoded: list[Any] = []
        for what, serde, data in (
            ("key", source.key, fetched.keys[row]),
            ("value", source.value, fetched.values[row]),
        ):
            try:
                decoded += serde.deserialize_column([data])
            except Exception as error:  # a serde may raise anything
                blame_no_record(error)
                return DeserializationError(*at, f"{what} as {serde!r}: {_brief(error)}")
        stamp_ms = fetched.stamps_ms[row]
        if source.timestamp is not None:
            try:
                stamp_ms = source.timestamp(decoded[0], decoded[1], stamp_ms)
            except Exception as error:  # user code
                blame_no_record(error)
                return TimestampError(*at, f"the timestamp extractor failed: {_brief(error)}")
        return _stamp_fault(at, stamp_ms, limit_ms)


def _stamp_fault(
    at: tuple[TopicPartition, int], stamp_ms: Any, limit_ms: int
) -> TimestampError | None:
    if type(stamp_ms) is not int:  # what a user's extractor gave
        return TimestampError(
            *at, f"the timestamp extractor gave {type(stamp_ms).__name__}, not int"
        )
    if stamp_ms < 0:
        return TimestampError(*at, f"timestamp {stamp_ms} is negative")
    if stamp_ms > limit_ms:
        return TimestampError(
            *at, f"timestamp {stamp_ms} lies more than max_timestamp_ahead_ms ahead of the clock"
        )
    return None


def _fault(fetched: Fetched, row: int, error: RecordError) -> Fault:
    return Fault(
        error,
        fetched.keys[row],
        fetched.values[row],
        fetched.stamps_ms[row],
        () if fetched.headers is None else fetched.headers[row],
        fetched.offsets[row] + 1,
    )


def _brief(error: Exception) -> str:
    """Name the error and say what it says, without the record's data where that is easy to tell."""
    if isinstance(error, UnicodeDecodeError):
        return f"invalid {error.encoding} at byte {error.start}"
    return f"{type(error).__name__}: {error}"
