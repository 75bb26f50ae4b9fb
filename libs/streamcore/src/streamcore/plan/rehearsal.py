"""A rehearsal: the topologies of several services run on sample lines, and what they send is kept.

They run together in test drivers, tick by tick: what one sends is a batch when its producer has
lingered, then the next reads it; commits come as often as the settings say. At the end time jumps,
so that windows close and expire as they do all the time in a run that lasts.
"""

import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import cycle
from typing import Final

from streamcore.app import worker_settings
from streamcore.errors import StreamsError, TopologyError
from streamcore.model import TopicPartition
from streamcore.plan import sample
from streamcore.plan.batches import BATCH_HEADER_BYTES, compressed_bytes, records_bytes
from streamcore.plan.services import Service
from streamcore.plan.topics import Plan
from streamcore.testing.driver import FAR_FUTURE_MS, TopologyTestDriver
from streamcore.testing.external import Shelf
from streamcore.testing.log import Entry
from streamcore.topology.graph import Topology, make_topology
from streamcore.topology.nodes import ExternalSink

TICK_MS: Final = 25

LINGER_MS: Final = 100
"""For so long a batch waits for more (``linger.ms``), unless there is a commit."""

COMMITS_MIN: Final = 10

WORDS_MAX: Final = 40_000
"""Longer windows are not run to their end: it would take too long to be told."""

COMPRESSED_BYTES: Final = 40_000
"""Of so much payload of each topic the batches are really made; the others are alike."""


@dataclass(frozen=True, slots=True)
class Load:
    """What comes in: lines of so many words, so many words a second in all.

    ``text``: the lines themselves, over and over, in place of a sample of so many different words.
    """

    words_per_s: float = 1_000
    words_per_line: float = 10
    distinct_words: int = 5_000
    text: tuple[str, ...] = ()

    @property
    def lines_per_s(self) -> float:
        return self.words_per_s / self.words_per_line


@dataclass(slots=True)
class Sent:
    """What one topic got, in batches; some are kept to be encoded and compressed."""

    records: int = 0
    batches: int = 0
    _payload_bytes: int = 0
    _kept: list[bytes] = field(default_factory=list)
    _kept_records: int = 0
    _kept_payload_bytes: int = 0

    def add(self, entries: list[Entry]) -> None:
        """Count one batch."""
        payload_bytes = sum(len(entry.key or b"") + len(entry.value or b"") for entry in entries)
        # Every seventh: in step neither with the partitions nor with the commits.
        if self._kept_payload_bytes < COMPRESSED_BYTES and self.batches % 7 == 0:
            self._kept.append(records_bytes(entries))
            self._kept_records += len(entries)
            self._kept_payload_bytes += payload_bytes
        self.records += len(entries)
        self.batches += 1
        self._payload_bytes += payload_bytes

    @property
    def bytes(self) -> float:
        """All batches with their headers, compressed."""
        raw = sum(map(len, self._kept))
        ratio = sum(map(compressed_bytes, self._kept)) / max(1, raw)
        around = (raw - self._kept_payload_bytes) / max(1, self._kept_records)
        records_bytes_in_all = self._payload_bytes + around * self.records
        return self.batches * BATCH_HEADER_BYTES + records_bytes_in_all * ratio


@dataclass(frozen=True, slots=True)
class Rehearsed:
    """What was sent: by topic (its name on the broker), for so many lines in so many seconds."""

    sent: Mapping[str, Sent]
    lines: int
    seconds: float


def rehearse(services: Sequence[Service], plan: Plan, load: Load) -> Rehearsed:
    """Run the services on sample lines; writers must stand before readers.

    :raises TopologyError: if lines of text are no input of these topologies, or one cannot start.
    """
    with ExitStack() as stack:
        actors = [_started(service, plan, stack) for service in services]
        try:
            return _Rehearsal(actors, plan, load).run()
        except StreamsError as error:
            names = ", ".join(service.name for service in services)
            raise TopologyError(
                f"lines of text are no input of {names}; name the services in front as well"
            ) from error


def check_start(services: Sequence[Service], plan: Plan) -> None:
    """Build all tasks, as the workers' start does.

    :raises TopologyError: if it cannot be, as with too many partitions.
    """
    for service in services:
        with ExitStack() as stack:
            _started(service, plan, stack)


def _started(service: Service, plan: Plan, stack: ExitStack) -> "_Actor":
    try:
        return _Actor(service, plan, stack)
    except TopologyError as error:
        raise TopologyError(f"{service.name} could not start: {error}") from error


Parcel = tuple[str, int, list[Entry]]
"""Topic (its name on the broker), partition, records."""


class _Actor:
    """A service in its driver."""

    def __init__(self, service: Service, plan: Plan, stack: ExitStack) -> None:
        topology = _without_the_world(service.topology)
        counts = plan.partitions[service.name]
        settings = worker_settings(service.config, service.names).task
        self.service = service
        self.commit_ms = service.config.commit_interval_ms
        self.driver = stack.enter_context(
            TopologyTestDriver(topology, partitions=counts.topics, config=settings)
        )
        self.driver.auto_run = False
        self._reads = {service.names.topic(topic): topic for topic in topology.source_topics}
        # The driver's names of what it sends -> names on the broker
        self._sends = {topic: service.names.topic(topic) for topic in topology.sink_topics}
        for bare in (*counts.repartitions, *counts.changelogs):
            self._sends[self.driver.names.internal(bare)] = service.names.internal(bare)
        self._seen: dict[TopicPartition, int] = defaultdict(int)
        self._repartitions = {service.names.internal(bare) for bare in counts.repartitions}
        self._idle = False

    def read(self, wire: str, partition: int, entries: Sequence[Entry]) -> None:
        """Take records, if the topic is one that it reads."""
        if wire in self._reads:
            self._idle = False
            for entry in entries:
                self.driver.write(TopicPartition(self._reads[wire], partition), entry)

    def run(self) -> None:
        """Process what was read."""
        if not self._idle:
            self.driver.run()
            self._idle = True
        for task in self.driver.tasks.values():
            if task.stopped_at is not None:
                raise task.stopped_at

    def commit(self) -> tuple[list[Parcel], list[Parcel]]:
        """Commit; return what was sent in the commit, and the markers sent behind it."""
        self.driver.commit_once()
        self._idle = False
        parcels = [*self.sent()]
        behind = [parcel for parcel in parcels if parcel[0] in self._repartitions]
        return [parcel for parcel in parcels if parcel not in behind], behind

    def sent(self) -> Iterator[Parcel]:
        """Yield what it has sent since the last call: name on the broker, partition, records."""
        for name, wire in self._sends.items():
            for partition, entries in self.driver.log(name).items():
                at = TopicPartition(name, partition)
                fresh = entries[self._seen[at] :]
                self._seen[at] = len(entries)
                if fresh:
                    yield wire, partition, fresh


def _without_the_world(topology: Topology) -> Topology:
    """Return the topology with stores in memory where it ends outside Kafka."""
    shelf = Shelf()
    return make_topology(
        {
            name: replace(node, supplier=shelf.store) if isinstance(node, ExternalSink) else node
            for name, node in topology.nodes.items()
        }
    )


class _Rehearsal:
    def __init__(self, actors: Sequence[_Actor], plan: Plan, load: Load) -> None:
        self._actors = actors
        self._load = load
        self._sent: dict[str, Sent] = defaultdict(Sent)
        # Batches that linger: by sender, topic and partition; since when, and the records.
        self._open: dict[tuple[_Actor | None, str, int], tuple[int, list[Entry]]] = {}
        self._chance = random.Random(3)  # noqa: S311  # the same at each call
        self._next_ms = 0.0
        self._lines = (
            cycle(load.text)
            if load.text
            else sample.lines(round(load.words_per_line), load.distinct_words)
        )
        self._inputs = [topic for topic in plan.topics if topic.readers and not topic.writers]
        if not self._inputs:
            raise TopologyError("no topic comes from outside")
        stores = [
            store
            for actor in actors
            for sub in actor.service.topology.sub_topologies
            for store in sub.stores
        ]
        sizes_ms = [store.windows.size_ms for store in stores if store.windows is not None]
        self._period_ms = max(sizes_ms, default=10_000)
        self._kept_ms = max((store.retention_ms or 0 for store in stores), default=0)

    def run(self) -> Rehearsed:
        ticks = self._ticks()
        base_ms = -(-FAR_FUTURE_MS // self._period_ms) * self._period_ms
        lines = 0
        for tick in range(ticks):
            count = self._arrivals((tick + 1) * TICK_MS)
            lines += count
            self._tick(base_ms, tick * TICK_MS, count)
        self._close()
        self._jump(base_ms + ticks * TICK_MS + self._kept_ms + 2 * self._period_ms)
        return Rehearsed(dict(self._sent), max(1, lines), ticks * TICK_MS / 1_000)

    def _arrivals(self, until_ms: int) -> int:
        """Return how many lines came since the last call, at an even rate but by chance."""
        count = 0
        while self._next_ms < until_ms:
            self._next_ms += self._chance.uniform(0.5, 1.5) * 1_000 / self._load.lines_per_s
            count += 1
        return count

    def _ticks(self) -> int:
        """Whole windows and some commits, unless that is too much."""
        least_ms = COMMITS_MIN * max(actor.commit_ms for actor in self._actors)
        span_ms = -(-max(least_ms, self._period_ms) // self._period_ms) * self._period_ms
        most_ms = max(COMMITS_MIN * LINGER_MS, int(WORDS_MAX / self._load.words_per_s * 1_000))
        return min(span_ms, most_ms) // TICK_MS

    def _tick(self, base_ms: int, at_ms: int, count: int) -> None:
        now_ms = base_ms + at_ms
        self._close(until_ms=now_ms - LINGER_MS)
        for row in range(count):
            topic = self._inputs[row % len(self._inputs)]
            entry = Entry(None, next(self._lines).encode(), now_ms + row * TICK_MS // count)
            partition = self._chance.randrange(topic.partitions)
            self._send(None, (topic.wire, partition, [entry]), now_ms)
        for actor in self._actors:
            actor.driver.now_ms = now_ms + TICK_MS
            self._process(actor, now_ms, commit=(at_ms + TICK_MS) % actor.commit_ms < TICK_MS)

    def _process(self, actor: _Actor, now_ms: int, *, commit: bool) -> None:
        actor.run()
        for parcel in actor.sent():
            self._send(actor, parcel, now_ms)
        if commit:
            within, behind = actor.commit()
            for parcel in within:
                self._send(actor, parcel, now_ms)
            self._close(actor)  # a commit waits for nothing
            for parcel in behind:
                self._send(actor, parcel, now_ms)

    def _jump(self, to_ms: int) -> None:
        """Let so much time pass that all windows close and expire."""
        for actor in self._actors:
            actor.driver.now_ms = to_ms
            actor.driver.run()  # else the records would lie ahead of the clock that tasks know
        for topic in self._inputs:
            for partition in range(topic.partitions):
                self._deliver(topic.wire, partition, [Entry(None, b"later", to_ms)])
        for actor in self._actors:
            for _ in range(3):  # markers of one commit are acted on by the next
                self._process(actor, to_ms, commit=True)
            self._close()

    def _send(self, sender: _Actor | None, parcel: Parcel, now_ms: int) -> None:
        wire, partition, entries = parcel
        _, batch = self._open.setdefault((sender, wire, partition), (now_ms, []))
        batch += entries

    def _close(self, sender: _Actor | None = None, *, until_ms: int | None = None) -> None:
        """Let batches go: those of one sender, or those that were begun by then, or all."""
        for key, (since_ms, entries) in [*self._open.items()]:
            owned = sender is None or key[0] is sender
            if owned and (until_ms is None or since_ms <= until_ms):
                del self._open[key]
                self._deliver(key[1], key[2], entries)

    def _deliver(self, wire: str, partition: int, entries: list[Entry]) -> None:
        self._sent[wire].add(entries)
        for actor in self._actors:
            actor.read(wire, partition, entries)
