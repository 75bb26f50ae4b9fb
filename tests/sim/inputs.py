"""What of the inputs was handed to workers, what of it again, and what a stop must have committed.

At-least-once may count a word again only if somebody was given its record again, and a worker is
given again at most what had come in since the last commit: it begins where that commit ended. Both
is judged by the logs of the broker and by what its consumers gave, never by what a worker says.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from tests.sim.ledger import Key
from tests.sim.words import REPARTITION, SIZE_MS, WORDS, Source

from streamcore.model import Fetched, OffsetAndMetadata, TopicPartition
from streamcore.runtime.worker import Worker
from streamcore.testing.partition_log import Record

INPUTS = (WORDS, REPARTITION)
Committed = Mapping[TopicPartition, OffsetAndMetadata]


class Inputs:
    """The inputs of one history, and how often each of their records was handed over."""

    def __init__(
        self, source: Source, report: Callable[[str], None], committed: Callable[[], Committed]
    ) -> None:
        self._source = source
        self._report = report
        self._committed = committed
        self._handed: dict[TopicPartition, set[int]] = {}
        self.again: Counter[Key] = Counter()
        """Records that were handed over once more, by the word and window that they count for."""

    def hand_over(self, batches: Iterable[Fetched]) -> None:
        """Note what a consumer gave."""
        for batch in batches:
            if batch.source.topic not in INPUTS:
                continue
            handed = self._handed.setdefault(batch.source, set())
            written = self._source.broker.seen(batch.source.topic)[batch.source.partition].written
            for offset in batch.offsets:
                key = counts_for(batch.source.topic, written[offset])
                if offset in handed and key is not None:
                    self.again[key] += 1
                handed.add(offset)

    def begin(self, who: str, positions: Mapping[TopicPartition, int]) -> None:
        """Note where a member of the current generation begins to read."""
        committed = self._committed()
        for tp, offset in positions.items():
            at = committed.get(tp)
            if tp.topic in INPUTS and at is not None and offset < at.offset:
                self._report(f"{who} begins {tp} at {offset}, committed is {at.offset}")

    def uncommitted(self, reached: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return how many records that count are not committed in front of these offsets."""
        committed = self._committed()
        found = {}
        for tp, offset in reached.items():
            at = committed.get(tp)
            log = self._source.broker.seen(tp.topic)[tp.partition]
            rest = log.written[0 if at is None else at.offset : offset]
            records = sum(counts_for(tp.topic, record) is not None for record in rest)
            if records:
                found[tp] = records
        return found


def reached(worker: Worker) -> dict[TopicPartition, int]:
    """Return how far each input of a worker's running tasks is processed."""
    tasks = worker._tasks.running.values()
    return {tp: offset for task in tasks for tp, offset in task._next.items()}


def counts_for(topic: str, record: Record) -> Key | None:
    """Return what a record of an input counts for, if it counts at all."""
    word = record.value if topic == WORDS else record.key
    if word is None or record.is_marker or not record.readable:
        return None
    return word.decode(), record.stamp_ms // SIZE_MS * SIZE_MS
