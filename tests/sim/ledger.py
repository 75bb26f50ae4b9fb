"""What the logs of the broker say, kept up to date record by record, and whether it fits together.

Everything here is read from what was written, never from a worker. Exactly-once: at any moment the
committed counts are those of the committed inputs, in changelog and output alike. At-least-once:
they are not lower.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from struct import Struct

from tests.sim.words import (
    CHANGELOG,
    COUNTS,
    FINALS,
    NAMES,
    REPARTITION,
    SIZE_MS,
    WORDS,
    SeenLog,
    Source,
)

from streamcore.model import OffsetAndMetadata, TopicPartition
from streamcore.testing.partition_log import Record

Key = tuple[str, int]
"""A word and the start of its window."""

_INT64 = Struct(">q")


def changelog_key(key: bytes) -> Key:
    return key[:-12].decode(), _INT64.unpack(key[-12:-4])[0]


def output_key(key: bytes) -> Key:
    """Return word and start; the serde of the output has the start alone behind the word."""
    return key[:-8].decode(), _INT64.unpack(key[-8:])[0]


def count_of(value: bytes) -> int:
    return int(_INT64.unpack(value)[0])


@dataclass(slots=True)
class Follower:
    """Gives the records of a log once they are known to be committed."""

    log: SeenLog
    at: int = 0
    undecided: list[Record] = field(default_factory=list)

    def news(self) -> Iterator[Record]:
        written = self.log.written
        waiting, self.undecided = self.undecided, []
        fresh = range(self.at, len(written))
        self.at = len(written)
        for record in (*waiting, *(written[i] for i in fresh)):
            if record.is_marker:
                continue
            transaction = record.transaction
            if transaction is None or transaction.outcome == "committed":
                yield record
            elif transaction.outcome == "open":
                self.undecided.append(record)


class Ledger:
    """Counts by word and window, as inputs, changelog and outputs tell them."""

    def __init__(
        self,
        source: Source,
        report: Callable[[str], None],
        *,
        exactly_once: bool,
        gentle: bool,
    ) -> None:
        self._source = source
        self._broker = source.broker
        self._report = report
        self._exactly_once = exactly_once
        self._steady = exactly_once or gentle  # else results may be out before what they are from
        self._followers: dict[str, list[Follower]] = {}
        self._read_to: dict[int, int] = {}  # of each repartition partition
        self._offsets: dict[TopicPartition, int] = {}
        self._told: set[Key] = set()  # finals, as of the last check
        self._telling: set[Key] = set()
        self._closed: set[Key] = set()
        self._split = 0  # records in the repartition topic
        self._changed: set[Key] = set()
        self.expected: Counter[Key] = Counter()
        self.logged: dict[Key, int] = {}
        self.output: dict[Key, int] = {}
        self.finals: dict[Key, int] = {}

    def check(self) -> None:
        """Read on, and compare what has changed."""
        offsets = self.committed()
        self._offsets_never_go_back(offsets)
        self._changed.clear()
        for record in self._news(CHANGELOG):
            self._log(record)
        for record in self._news(COUNTS):
            self._put(record)
        for record in self._news(FINALS):
            self._end(record)
        self._split += sum(record.key is not None for record in self._news(REPARTITION))
        self._read_inputs(offsets)
        for key in self._changed:
            self._compare(key)
        read = sum(at.offset for tp, at in offsets.items() if tp.topic == WORDS)
        if self._split < read or (self._exactly_once and self._split != read):
            self._report(f"{read} words are committed as read, {self._split} passed on")

    def committed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the offsets that hold, those of transactions without markers yet included."""
        group = self._broker.group(NAMES.group)
        offsets = dict(group.offsets)
        for transaction, own in group.pending.items():
            if transaction.outcome == "committed":
                offsets |= own
        return offsets

    def _news(self, topic: str) -> Iterator[Record]:
        followers = self._followers.get(topic)
        if followers is None:
            followers = [Follower(log) for log in self._broker.seen(topic)]
            if not followers:
                return
            self._followers[topic] = followers
        for follower in followers:
            if follower.undecided or follower.at < len(follower.log.written):
                yield from follower.news()

    def _offsets_never_go_back(self, offsets: dict[TopicPartition, OffsetAndMetadata]) -> None:
        for tp, at in offsets.items():
            if tp.topic not in (WORDS, REPARTITION):
                continue
            before = self._offsets.get(tp, 0)
            if at.offset < before:
                self._report(f"the committed offset of {tp} went back from {before} to {at.offset}")
            self._offsets[tp] = at.offset

    def _read_inputs(self, offsets: dict[TopicPartition, OffsetAndMetadata]) -> None:
        for partition, log in enumerate(self._broker.seen(REPARTITION)):
            at = offsets.get(TopicPartition(REPARTITION, partition))
            if at is None:
                continue
            low = self._read_to.get(partition, 0)
            self._read_to[partition] = max(low, at.offset)
            for record in log.written[low : at.offset]:
                if record.key is None or not record.readable:
                    continue
                key = record.key.decode(), record.stamp_ms // SIZE_MS * SIZE_MS
                self.expected[key] += 1
                self._changed.add(key)
                if self._exactly_once and key in self._told:
                    self._report(f"{key} was counted behind its final result")
        self._told |= self._telling
        self._telling.clear()

    def _log(self, record: Record) -> None:
        assert record.key is not None
        key = changelog_key(record.key)
        if record.value is None:
            self.logged.pop(key, None)
            self._closed.add(key)
            return
        if key in self._closed:
            self._report(f"{key} had expired and is back in the changelog")
        self._rise("changelog", self.logged, key, count_of(record.value))

    def _put(self, record: Record) -> None:
        assert record.key is not None
        assert record.value is not None
        key, count = output_key(record.key), count_of(record.value)
        if self._steady:
            self._rise("output", self.output, key, count)
        else:
            self.output[key] = count
            self._changed.add(key)

    def _end(self, record: Record) -> None:
        assert record.key is not None
        assert record.value is not None
        key = output_key(record.key)
        if key in self.finals and self._exactly_once:
            self._report(f"{key} got a second final result")
        self._telling.add(key)
        self._rise("final result", self.finals, key, count_of(record.value))

    def _rise(self, where: str, counts: dict[Key, int], key: Key, count: int) -> None:
        if count < counts.get(key, 0):
            self._report(f"{where} of {key} fell from {counts[key]} to {count}")
        counts[key] = count
        self._changed.add(key)

    def _compare(self, key: Key) -> None:
        expected = self.expected[key]
        found = {"output": self.output.get(key, 0)}
        if key not in self._closed:
            found["changelog"] = self.logged.get(key, 0)
        if key in self.finals:
            found["final result"] = self.finals[key]
        for where, count in found.items():
            if count < expected or (self._exactly_once and count != expected):
                self._report(f"{where} has {count} of {key}, its committed inputs {expected}")
