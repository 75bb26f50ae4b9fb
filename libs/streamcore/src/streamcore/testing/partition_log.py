"""PartitionLog: one partition as a broker keeps it, transactions and all.

Markers occupy offsets, compaction and deletion leave holes, and readers of committed records see
nothing from the first open transaction on (the last stable offset).
"""

from bisect import bisect_left
from dataclasses import dataclass, field

from streamcore.model import Headers


@dataclass(eq=False, slots=True)
class Transaction:
    """One transaction; a partition is settled for readers when its marker is in the log."""

    producer: str
    began_ms: int
    outcome: str = "open"  # open, committed, aborted
    unmarked: dict["PartitionLog", None] = field(default_factory=dict)  # in order


@dataclass(slots=True)
class Record:
    """One record, or a marker that ends a transaction."""

    offset: int
    key: bytes | None
    value: bytes | None
    stamp_ms: int
    headers: Headers = ()
    transaction: Transaction | None = None
    is_marker: bool = False

    @property
    def readable(self) -> bool:
        """True for records that somebody gets to see, once they are stable."""
        if self.is_marker:
            return False
        return self.transaction is None or self.transaction.outcome == "committed"


class PartitionLog:
    """Records by offset; [start, end)."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.start = 0
        self.end = 0
        self._unsettled: dict[Transaction, int] = {}  # where each one begins here
        self._cleaned_to = 0  # tombstones in front of it have outlived a compaction

    def append(
        self,
        key: bytes | None,
        value: bytes | None,
        stamp_ms: int,
        headers: Headers = (),
        transaction: Transaction | None = None,
    ) -> int:
        """Append a record and return its offset."""
        offset = self.end
        self.records.append(Record(offset, key, value, stamp_ms, headers, transaction))
        if transaction is not None:
            transaction.unmarked[self] = None
            self._unsettled.setdefault(transaction, offset)
        self.end += 1
        return offset

    def mark(self, transaction: Transaction, stamp_ms: int) -> None:
        """Write the marker of a transaction that has ended."""
        transaction.unmarked.pop(self, None)
        del self._unsettled[transaction]
        self.records.append(Record(self.end, None, None, stamp_ms, (), transaction, True))
        self.end += 1

    @property
    def stable_end(self) -> int:
        """The last stable offset: where the first transaction without a marker begins."""
        return min(self._unsettled.values(), default=self.end)

    def read(self, offset: int, rows_max: int) -> tuple[list[Record], int]:
        """Return committed records from ``offset`` on, and the next offset to read."""
        stable = self.stable_end
        rows: list[Record] = []
        for record in self.records[bisect_left(self.records, offset, key=_offset) :]:
            if record.offset >= stable:
                break
            if record.readable:
                if len(rows) == rows_max:
                    return rows, rows[-1].offset + 1
                rows.append(record)
        return rows, max(offset, stable)

    def compact(self) -> None:
        """Keep the newest committed record of each key, and what is not settled yet.

        A tombstone outlives one compaction, so that a reader who is behind gets to see it.
        """
        stable = self.stable_end
        newest = {r.key: r.offset for r in self.records if r.readable and r.offset < stable}
        self.records = [
            r
            for r in self.records
            if r.offset >= stable
            or (
                r.readable
                and newest[r.key] == r.offset
                and (r.value is not None or r.offset >= self._cleaned_to)
            )
        ]
        self._cleaned_to = stable

    def delete_before(self, offset: int) -> None:
        """Forget everything in front of ``offset``."""
        self.start = max(self.start, min(offset, self.end))
        self.records = [r for r in self.records if r.offset >= self.start]

    def retain(self, oldest_ms: int) -> None:
        """Delete from the start what is older than that, by record timestamp."""
        keep = next(
            (r.offset for r in self.records if r.is_marker or r.stamp_ms >= oldest_ms), self.end
        )
        self.delete_before(keep)


def _offset(record: Record) -> int:
    return record.offset
