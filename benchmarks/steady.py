"""Words at a steady rate, and when their counts arrive: the two ends of an application that runs.

A word tells by which partition it came in, and its hash where it is counted. So each count that
arrives proves two tasks alive, and the longest time without one is how long a task stood still.
"""

import struct
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition, murmur2

from benchmarks.topics import Broker

WORDS_PER_PATH = 8
_TURN_S = 0.01
_COUNT = struct.Struct(">q")
_WINDOW_START_BYTES = 8


def spread(partitions: int) -> list[list[bytes]]:
    """Return for each partition of the words its words, going in turn to each partition behind."""
    return [[*_words(source, partitions)] for source in range(partitions)]


def _words(source: int, partitions: int) -> Iterator[bytes]:
    for number in range(WORDS_PER_PATH):
        for target in range(partitions):
            salt = 0
            while murmur2(word := b"from-%d-%d-%d" % (source, number, salt), partitions) != target:
                salt += 1
            yield word


class Steady:
    """Feeds `rate` words a second into every partition, from `start` to `stop`."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, rate: int) -> None:
        self.fed = 0
        self._topic = topic
        self._words = spread(partitions)
        self._rate = rate
        self._failed: list[str] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="steady", daemon=True)
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 0,
                "log_level": 2,
                "delivery.report.only.error": True,
                "on_delivery": lambda error, _message: self._failed.append(str(error)),
            }
        )

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End, and return when all is with the broker; KafkaException when something is not."""
        self._stop.set()
        self._thread.join()
        if self._producer.flush(30) or self._failed:
            raise KafkaException(f"words were not delivered: {self._failed[:1]}")

    def _run(self) -> None:
        begun = time.monotonic()
        sent = 0
        while not self._stop.wait(_TURN_S):
            due = int((time.monotonic() - begun) * self._rate)
            now_ms = time.time_ns() // 1_000_000
            for number in range(sent, due):
                for partition, words in enumerate(self._words):
                    word = words[number % len(words)]
                    self._producer.produce(self._topic, word, partition=partition, timestamp=now_ms)
            self.fed += (due - sent) * len(self._words)
            sent = due
            self._producer.poll(0)


@dataclass(frozen=True, slots=True)
class Gap:
    """A time without counts."""

    begin: float
    end: float
    ended: bool
    """False: still without one when it was last looked at."""

    @property
    def seconds(self) -> float:
        """Return how long it was."""
        return self.end - self.begin


@dataclass(slots=True)
class Series:
    """When one task's counts arrived."""

    times: list[float] = field(default_factory=list)

    def longest_gap(self, since: float, until: float, *, whole: bool = True) -> Gap:
        """Return the longest time without a count that ended behind `since`.

        `whole`: one that was under way at `since` counts from its beginning.
        """
        seen = [moment for moment in self.times if moment <= until]
        before = [moment for moment in seen if moment <= since]
        behind = seen[len(before) :]
        begin = before[-1] if before and whole else since
        gaps = [
            Gap(early, late, ended=True)
            for early, late in zip([begin, *behind], behind, strict=False)
        ]
        gaps.append(Gap(behind[-1] if behind else begin, until, ended=False))
        return max(gaps, key=lambda gap: gap.seconds)


class Arrivals:
    """Reads the counts topic from its end, committed records only, and notes when what arrived."""

    def __init__(self, broker: Broker, topic: str, partitions: int) -> None:
        self.counted = 0
        """The sum of the last counts of every word and window."""
        self._series = {
            f"{stage}_{partition}": Series()
            for stage in range(2)
            for partition in range(partitions)
        }
        self._tasks = {
            word: (f"0_{source}", f"1_{murmur2(word, partitions)}")
            for source, words in enumerate(spread(partitions))
            for word in words
        }
        self._last: dict[bytes, int] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="arrivals", daemon=True)
        self._reader = Consumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "group.id": "benchmark-arrivals",
                "log_level": 2,
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 20,
            }
        )
        ends = broker.ends(topic, partitions)
        self._reader.assign([TopicPartition(topic, p, end) for p, end in enumerate(ends)])

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()
        self._reader.close()

    @property
    def series(self) -> dict[str, Series]:
        """Return a copy of what arrived so far, by task."""
        return {task: Series([*series.times]) for task, series in self._series.items()}

    def all_since(self, moment: float) -> bool:
        """Say whether every task has shown a count since then."""
        return all(kept.times and kept.times[-1] >= moment for kept in self._series.values())

    def _run(self) -> None:
        while not self._stop.is_set():
            message = self._reader.poll(0.1)
            if message is None or message.error() is not None:
                continue
            key, value = message.key(), message.value()
            assert isinstance(key, bytes)
            assert isinstance(value, bytes)
            tasks = self._tasks.get(key[:-_WINDOW_START_BYTES])
            if tasks is None:
                continue
            now = time.monotonic()
            for task in tasks:
                self._series[task].times.append(now)
            (count,) = _COUNT.unpack(value)
            self.counted += count - self._last.get(key, 0)
            self._last[key] = count
