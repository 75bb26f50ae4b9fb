"""A word count, workers and the in-memory broker, for the tests of the runtime."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace

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
from streamcore.runtime.lifecycle import WorkerState
from streamcore.runtime.settings import WorkerSettings
from streamcore.runtime.worker import Worker, create_worker
from streamcore.task import TaskConfig
from streamcore.testing.broker import InMemoryBroker, MemoryStateDir
from streamcore.testing.clock import ManualClock
from streamcore.topology.naming import Names

NAMES = Names("", "app")
REPARTITION = "app-windowed-counts-repartition"
CHANGELOG = "app-windowed-counts-changelog"
START_MS = 1_700_000_000_000
Counts = dict[tuple[str, int], int]


def word_count(
    word: Callable[[object, str], str] = lambda _key, word: word, *, final: bool = False
) -> Topology:
    builder = StreamsBuilder()
    counts = (
        builder.stream("words", Consumed(key=STR, value=STR))
        .group_by(word, Grouped(key=STR, value=STR))
        .windowed_by(tumbling(size_ms=10_000))
        .count(Materialized("windowed-counts"))
    )
    counts = counts.suppress() if final else counts
    counts.to_stream().to("windowed-counts", Produced(key=windowed_serde(STR), value=INT64))
    return builder.build()


def settings(guarantee: str = "at_least_once", **changes: object) -> WorkerSettings:
    exactly_once = guarantee == "exactly_once_v2"
    task = TaskConfig(markers_in_cut=exactly_once, **changes.pop("task", {}))  # type: ignore[arg-type]
    return replace(WorkerSettings(task=task, guarantee=guarantee), **changes)  # type: ignore[arg-type]


class Cluster:
    """A broker with the topics of the word count, and the workers on it."""

    def __init__(self, partitions: int = 4, guarantee: str = "at_least_once") -> None:
        self.clock = ManualClock(START_MS)
        self.broker = InMemoryBroker(self.clock)
        self.broker.create("words", partitions)
        self.broker.create("windowed-counts", partitions)
        self.guarantee = guarantee
        self.fed: Counter[tuple[str, int]] = Counter()
        self._fed_rows = 0

    def worker(
        self,
        slot: str = "a",
        topology: Topology | None = None,
        state_dir: MemoryStateDir | None = None,
        **changes: object,
    ) -> Worker:
        """Return a worker that has joined, or is about to."""
        world = self.broker.world(NAMES.group, slot=slot, state_dir=state_dir)
        worker = create_worker(
            topology or word_count(), NAMES, settings(self.guarantee, **changes), world
        )
        worker.start(self.clock.now_ms())
        return worker

    def feed(self, words: Iterable[str], stamp_ms: int, step_ms: int = 0) -> None:
        """Write words round the partitions, each ``step_ms`` later than the one before."""
        partitions = len(self.broker.topics["words"].partitions)
        for word in words:
            self.broker.write("words", None, word.encode(), stamp_ms, self._fed_rows % partitions)
            self.fed[word, stamp_ms // 10_000 * 10_000] += 1
            self._fed_rows += 1
            stamp_ms += step_ms

    def run(self, *workers: Worker, turns: int = 20, step_ms: int = 200) -> None:
        """Let the workers take turns while time passes."""
        for _ in range(turns):
            for worker in workers:
                worker.turn(self.clock.now_ms())
            self.clock.advance(step_ms)

    def settle(self, *workers: Worker) -> None:
        """Run until every record is counted and committed, as far as that takes a few seconds."""
        self.run(*workers, turns=60)
        assert all(worker.state is WorkerState.RUNNING for worker in workers)

    def counts(self) -> Counts:
        """Return the newest count of every word and window in the output topic."""
        serde = windowed_serde(STR, size_ms=10_000)
        found: Counts = {}
        for record in self.broker.read("windowed-counts"):
            assert record.key is not None
            assert record.value is not None
            key = serde.deserialize(record.key)
            found[key.key, key.window.start_ms] = INT64.deserialize(record.value)
        return found

    def lag(self) -> int:
        """Return how many offsets of all inputs are not committed."""
        offsets = self.broker.group(NAMES.group).offsets
        lag = 0
        for topic in ("words", REPARTITION):
            for partition, log in enumerate(self.broker.topics[topic].partitions):
                at = offsets.get((topic, partition))  # type: ignore[call-overload]
                lag += log.end - (0 if at is None else at.offset)
        return lag
