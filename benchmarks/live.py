"""A million live (word, window) pairs: distinct words, all in one window that never closes."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks import contestants
from benchmarks.broker import bootstrap
from benchmarks.contestants import Job
from benchmarks.jars import CACHE
from benchmarks.measure import Run, RunError, measure
from benchmarks.topics import Broker
from benchmarks.words import FIRST_TIMESTAMP_MS, feed

PARTITIONS = 4
# Enough for every partition of the repartition topic to get some.
TOUCHED = 400


@dataclass(slots=True)
class LivePairs:
    """The aggregator over its pairs: fill it, touch it, lose its disk."""

    broker: Broker
    job: Job
    pairs: int
    fed: int = 0

    def run(self) -> Run:
        """Run the aggregator until all that was fed is counted and committed.

        Raises RunError when the counts in its output are not exactly those.
        """
        run = measure(self.broker, contestants.streamcore, self.job, timeout_s=600)
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
        """Remove what the aggregator has on disk."""
        shutil.rmtree(self.job.state_dir)

    def _feed(self, words: int) -> None:
        # Ten thousand milliseconds are one window.
        rows = (
            (b"word-%07d" % number, FIRST_TIMESTAMP_MS + number * 9_000 // self.pairs)
            for number in range(words)
        )
        feed(self.broker.bootstrap, self.job.words_topic, PARTITIONS, rows)
        self.fed += words


@contextmanager
def live_pairs(pairs: int, commit_interval_ms: int) -> Iterator[LivePairs]:
    """Yield an aggregator with topics, broker and folder of its own."""
    CACHE.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="live-", dir=CACHE))
    try:
        with bootstrap(folder / "broker") as servers:
            broker = Broker(servers)
            name = folder.name
            job = Job(
                bootstrap=servers,
                application_id=name,
                words_topic=f"{name}-words",
                counts_topic=f"{name}-counts",
                guarantee="at_least_once",
                state_dir=folder / "state",
                commit_interval_ms=commit_interval_ms,
            )
            broker.create(job.words_topic, PARTITIONS)
            broker.create(job.counts_topic, PARTITIONS)
            try:
                yield LivePairs(broker, job, pairs)
            finally:
                broker.delete(topic for topic in broker.topics() if topic.startswith(name))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
