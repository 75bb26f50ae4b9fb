"""A million live (word, window) pairs: distinct words, all in one window that never closes."""

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.contestants import Contestant, Job
from benchmarks.jars import CACHE
from benchmarks.measure import Run, RunError, measure
from benchmarks.topics import Broker
from benchmarks.words import feed

PARTITIONS = 4
WINDOW_SIZE_MS = 10_000
# Enough for every partition of the repartition topic to get some.
TOUCHED = 400


@dataclass(slots=True)
class LivePairs:
    """A contestant over its pairs: fill it, touch it, lose its disk."""

    broker: Broker
    contestant: Contestant
    job: Job
    pairs: int
    begin_ms: int
    fed: int = 0

    def run(self) -> Run:
        """Run the contestant until all that was fed is counted and committed.

        Raises RunError when the counts in its output are not exactly those.
        """
        run = measure(self.broker, self.contestant, self.job, timeout_s=600)
        if (run.counted.words, run.counted.pairs) != (self.fed, self.pairs):
            raise RunError(
                f"counted {run.counted.words}/{self.fed} words"
                f" in {run.counted.pairs}/{self.pairs} pairs"
            )
        return run

    def fill(self) -> None:
        """Feed every word once."""
        self._feed(self.pairs)

    def touch(self) -> None:
        """Feed the first words once more: a restored store gives 2 for each of them."""
        self._feed(TOUCHED)

    def lose_disk(self) -> None:
        """Remove what the contestant has on disk."""
        shutil.rmtree(self.job.state_dir)

    def _feed(self, words: int) -> None:
        rows = (
            (b"word-%07d" % number, self.begin_ms + number * (WINDOW_SIZE_MS - 1) // self.pairs)
            for number in range(words)
        )
        feed(self.broker.bootstrap, self.job.words_topic, PARTITIONS, rows)
        self.fed += words


@contextmanager
def live_pairs(
    broker: Broker, contestant: Contestant, pairs: int, commit_interval_ms: int
) -> Iterator[LivePairs]:
    """Yield a contestant with topics and folder of its own."""
    CACHE.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="live-", dir=CACHE))
    name = folder.name
    job = Job(
        bootstrap=broker.bootstrap,
        application_id=name,
        words_topic=f"{name}-words",
        counts_topic=f"{name}-counts",
        guarantee="at_least_once",
        state_dir=folder / "state",
        commit_interval_ms=commit_interval_ms,
    )
    broker.create(job.words_topic, PARTITIONS)
    broker.create(job.counts_topic, PARTITIONS)
    # A changelog keeps windows for a day, so an old one would vanish under the benchmark.
    now_ms = time.time_ns() // 1_000_000
    try:
        yield LivePairs(broker, contestant, job, pairs, now_ms - now_ms % WINDOW_SIZE_MS)
    finally:
        broker.delete(topic for topic in broker.topics() if topic.startswith(name))
        shutil.rmtree(folder, ignore_errors=True)
