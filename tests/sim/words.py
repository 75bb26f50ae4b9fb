"""The word count that the simulation runs, in two versions, and the broker under it."""

from bisect import bisect_left
from collections import Counter
from random import Random

from tests.unit.runtime.simulated import settings

from streamcore import (
    INT64,
    STR,
    Consumed,
    Grouped,
    Materialized,
    Produced,
    StreamsBuilder,
    Topology,
    tumbling,
    windowed_serde,
)
from streamcore.model import TopicPartition
from streamcore.runtime.settings import WorkerSettings
from streamcore.testing.broker import InMemoryBroker
from streamcore.testing.clock import ManualClock
from streamcore.testing.partition_log import PartitionLog, Record, Transaction
from streamcore.topology.naming import Names

NAMES = Names("", "app")
WORDS, COUNTS, FINALS = "words", "windowed-counts", "final-counts"
REPARTITION = "app-windowed-counts-repartition"
CHANGELOG = "app-windowed-counts-changelog"
STORE = "windowed-counts"
START_MS = 1_700_000_000_000
SIZE_MS, GRACE_MS, RETENTION_MS = 10_000, 5_000, 25_000
VOCABULARY = ("to", "be", "or", "not", "question")


def word_count(version: int) -> Topology:
    """Return a version of the application: the second one has a sink more."""
    builder = StreamsBuilder()
    counts = (
        builder.stream(WORDS, Consumed(key=STR, value=STR))
        .group_by(lambda _key, word: word, Grouped(key=STR, value=STR))
        .windowed_by(tumbling(size_ms=SIZE_MS, grace_ms=GRACE_MS))
        .count(Materialized(STORE, retention_ms=RETENTION_MS))
    )
    produced = Produced(key=windowed_serde(STR), value=INT64)
    counts.to_stream().to(COUNTS, produced)
    counts.suppress().to_stream().to(FINALS, produced)
    if version == 2:
        counts.to_stream().to("more-counts", produced)
    return builder.build()


TOPOLOGIES = {1: word_count(1), 2: word_count(2)}


def some_settings(rng: Random, guarantee: str) -> WorkerSettings:
    """Return settings of a seed: small batches and small caches, so that much can come between."""
    return settings(
        guarantee,
        commit_interval_ms=rng.choice((300, 1_000, 1_000)),
        cache_max_bytes=rng.choice((10_000, 1 << 25)),
        poll_rows_max=rng.choice((25, 50, 10_000)),
        process_rows_max=rng.choice((5, 10_000)),
        restore_rows_max=rng.choice((3, 20, 20_000)),
        request_timeout_ms=rng.choice((1_000, 5_000)),
        repartition_purge_interval_ms=5_000,
        counts_check_interval_ms=rng.choice((5_000, 30_000)),
        num_standby_replicas=rng.choice((0, 1)),
        acceptable_recovery_lag=rng.choice((0, 10, 10_000)),
        warmup_max_ms=rng.choice((0, 5_000, 60_000)),
        task={"idle_after_ms": rng.choice((2_000, 5_000, 60_000))},
    )


class SeenLog(PartitionLog):
    """A partition that remembers all that was ever written, whatever the broker deletes."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[Record] = []  # by offset

    def append(
        self,
        key: bytes | None,
        value: bytes | None,
        stamp_ms: int,
        headers: object = (),
        transaction: Transaction | None = None,
    ) -> int:
        offset = super().append(key, value, stamp_ms, headers, transaction)  # type: ignore[arg-type]
        self.written.append(self.records[-1])
        return offset

    def mark(self, transaction: Transaction, stamp_ms: int) -> None:
        super().mark(transaction, stamp_ms)
        self.written.append(self.records[-1])

    def holds(self, offset: int) -> bool:
        """Tell whether the broker still has that record."""
        at = bisect_left(self.records, offset, key=lambda record: record.offset)
        return at < len(self.records) and self.records[at].offset == offset


class SeenBroker(InMemoryBroker):
    """The in-memory broker, with partitions that remember, and leaders that come back late."""

    def __init__(self, clock: ManualClock, **settings: int) -> None:
        super().__init__(clock, **settings)
        self.silent_until_ms: dict[TopicPartition, int] = {}

    def silent(self) -> set[TopicPartition]:
        """Return the partitions whose leaders bring no records yet, whatever else is answered."""
        now_ms = self.clock.now_ms()
        return {tp for tp, until_ms in self.silent_until_ms.items() if now_ms < until_ms}

    def new_log(self) -> SeenLog:
        return SeenLog()

    def seen(self, topic: str) -> list[SeenLog]:
        """Return the partitions of a topic; none if it does not exist yet."""
        made = self.topics.get(topic)
        return [] if made is None else made.partitions  # type: ignore[return-value]


class Source:
    """The broker, and who writes words into it and knows what must come out."""

    def __init__(self, rng: Random, partitions: int) -> None:
        self._rng = rng
        self.clock = ManualClock(START_MS)
        self.broker = SeenBroker(self.clock, max_poll_ms=20_000)
        for topic in (WORDS, COUNTS, FINALS, "more-counts"):
            self.broker.create(topic, partitions)
        self.partitions = partitions
        self.stamp_ms = START_MS - 86_400_000
        self.fed: Counter[tuple[str, int]] = Counter()

    def feed(self, words: int) -> None:
        """Write words into some of the partitions; none is late, some are out of order."""
        rng = self._rng
        some = rng.sample(range(self.partitions), rng.randrange(1, self.partitions + 1))
        step_ms = rng.choice((0, 7, 300))
        back_ms = rng.choice((0, 0, GRACE_MS - 1_000))
        for row in range(words):
            word = rng.choice(VOCABULARY)
            stamp_ms = self.stamp_ms - (rng.randrange(back_ms) if back_ms else 0)
            self.broker.write(WORDS, None, word.encode(), stamp_ms, some[row % len(some)])
            self.fed[word, stamp_ms // SIZE_MS * SIZE_MS] += 1
            self.stamp_ms += step_ms
        self.stamp_ms += rng.choice((0, 1_000, 20_000))

    def delete_what_is_counted(self) -> None:
        """Let retention take words in front of the committed offsets."""
        offsets = self.broker.group(NAMES.group).offsets
        for partition in range(self.partitions):
            tp = TopicPartition(WORDS, partition)
            if tp in offsets:
                self.broker.log(tp).delete_before(offsets[tp].offset)

    def unread(self) -> int:
        """Return how many records of all inputs are not committed; markers of clocks go on."""
        offsets = self.broker.group(NAMES.group).offsets
        unread = 0
        for topic in (WORDS, REPARTITION):
            for partition, log in enumerate(self.broker.seen(topic)):
                at = offsets.get(TopicPartition(topic, partition))
                rest = log.written[0 if at is None else at.offset :]
                unread += sum(_counts(record) for record in rest)
        return unread


def _counts(record: Record) -> bool:
    """Tell whether a record is, or may become, one to be counted."""
    aborted = record.transaction is not None and record.transaction.outcome == "aborted"
    return record.value is not None and not aborted
