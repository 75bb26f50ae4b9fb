"""TopologyTestDriver: runs a topology without a broker, on the tasks that run in production.

It owns tasks as a worker does, keeps every topic as a list, routes what is sent into internal
topics back in, and commits when it is told to. What it does not hide, unlike Kafka's driver of that
name: several partitions, batches of any size, overlays that wait for a commit, a crash between two
commits. It has no code about records.

>>> from streamcore import STR, INT64, Consumed, Produced, Grouped, Materialized
>>> from streamcore import StreamsBuilder, tumbling, windowed_serde
>>> builder = StreamsBuilder()
>>> counts = (builder.stream("words", Consumed(key=STR, value=STR))
...     .group_by(lambda _key, word: word, Grouped(key=STR, value=STR))
...     .windowed_by(tumbling(size_ms=10_000))
...     .count(Materialized("windowed-counts")))
>>> counts.to_stream().to("counts", Produced(key=windowed_serde(STR, size_ms=10_000), value=INT64))
>>> with TopologyTestDriver(builder.build()) as driver:
...     driver.input("words").pipe(None, "to", at_ms=1_000)
...     driver.input("words").pipe(None, "to", at_ms=2_000)
...     driver.commit()
...     [(r.key.key, r.key.window.start_ms, r.value) for r in driver.output("counts").read()]
[('to', 0, 2)]
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any, Literal, Self

from streamcore.errors import ProcessingError
from streamcore.model import (
    CommitPoint,
    Fetched,
    Headers,
    OffsetAndMetadata,
    Position,
    Send,
    TaskId,
    TopicPartition,
)
from streamcore.serde.base import Serde
from streamcore.state.window import WindowStore
from streamcore.task import Task, TaskConfig, build_task
from streamcore.testing.engines import Engines, MakeEngine
from streamcore.testing.log import Entry, Log
from streamcore.testing.topics import InputTopic, OutputTopic
from streamcore.topology.graph import SubTopology, Topology, partition_counts
from streamcore.topology.naming import Names
from streamcore.topology.nodes import Sink, Source
from streamcore.topology.partitioning import partition_of
from streamcore.topology.windows import Window, Windowed

FAR_FUTURE_MS = 4_000_000_000_000
"""The driver's wall clock at the start: no fixed timestamp of a test lies ahead of it."""

TOPIC_ID = "driver"


class TopologyTestDriver:
    """Tasks of one topology, their topics, and a clock that stands until it is moved.

    ``partitions``: of every source topic, or by bare name. ``batch_rows``: how many records a task
    is given at once. ``commit="each"``: commit after every piped record, as Kafka's driver does;
    ``"manual"``: only ``commit`` commits. ``exactly_once``: a crash takes back what was sent since
    the last commit. ``engine``: where stores live (memory unless given); an engine that is made
    again must find its data.

    With ``auto_run`` set to False piped records wait for ``run`` or ``step``, so that tasks can be
    fed at different speeds.
    """

    __test__ = False

    def __init__(
        self,
        topology: Topology,
        *,
        partitions: int | Mapping[str, int] = 1,
        batch_rows: int = 1_000,
        commit: Literal["manual", "each"] = "manual",
        exactly_once: bool = False,
        config: TaskConfig | None = None,
        engine: MakeEngine | None = None,
    ) -> None:
        self.topology = topology
        self.names = Names("", "app")
        self.now_ms = FAR_FUTURE_MS
        self.batch_rows = batch_rows
        self._each = commit == "each"
        self.auto_run = True
        # The clock stands still here, so an interval between rounds of markers would never pass.
        self._config = replace(
            config or TaskConfig(),
            markers_in_cut=exactly_once,
            marker_interval_ms=0,
            commit_interval_ms=0,
        )
        wanted = (*topology.source_topics, *topology.sink_topics)
        counts = (
            dict.fromkeys(wanted, partitions) if isinstance(partitions, int) else dict(partitions)
        )
        self._counts = partition_counts(topology, counts)
        self._external = counts
        self._engines = Engines(engine)
        self._exactly_once = exactly_once
        self._logs: dict[TopicPartition, Log] = {}
        self._committed: dict[TopicPartition, OffsetAndMetadata] = {}
        self._fetched_to: dict[TopicPartition, int] = {}
        self._tasks: dict[TaskId, Task] = {}
        self._poisoned: list[ProcessingError] = []
        self._inputs: dict[str, InputTopic] = {}
        self._outputs: dict[str, OutputTopic] = {}
        self.restart()

    # --- topics ------------------------------------------------------------------------------

    def input(self, topic: str) -> InputTopic:
        """Return the door into a source topic, by its bare name."""
        if topic not in self._inputs:
            source = next(
                node
                for node in self.topology.nodes.values()
                if isinstance(node, Source) and topic in node.topics
            )
            self._inputs[topic] = InputTopic(self._pipe, topic, source.key, source.value)
        return self._inputs[topic]

    def output(
        self, topic: str, key: Serde | None = None, value: Serde | None = None
    ) -> OutputTopic:
        """Return the reader of a topic that the topology writes; serdes are the sink's own."""
        if topic not in self._outputs:
            sink = next(
                (
                    node
                    for node in self.topology.nodes.values()
                    if isinstance(node, Sink) and node.topic == topic
                ),
                None,
            )
            if sink is not None:
                key, value = key or sink.key, value or sink.value
            assert key is not None, f"no sink writes {topic}: give its serdes"
            assert value is not None, f"no sink writes {topic}: give its serdes"
            name = self.names.internal(topic) if sink and sink.internal else topic
            self._outputs[topic] = OutputTopic(lambda: self._partitions(name), key, value)
        return self._outputs[topic]

    def log(self, topic: str) -> dict[int, list[Entry]]:
        """Return the raw records of a topic (its name on the broker), by partition."""
        return {partition: log.committed() for partition, log in self._partitions(topic).items()}

    def committed(self, topic: str, partition: int) -> OffsetAndMetadata:
        """Return what the group has committed for a partition (its topic's name on the broker)."""
        return self._committed.get(TopicPartition(topic, partition), OffsetAndMetadata(0))

    def write(self, at: TopicPartition, entry: Entry) -> None:
        """Append a record to any partition (its topic's name on the broker), as strangers do."""
        self._log_of(at).append(entry, stable=True)
        if self.auto_run:
            self.run()

    def _partitions(self, topic: str) -> dict[int, Log]:
        found = {at.partition: log for at, log in self._logs.items() if at.topic == topic}
        return dict(sorted(found.items()))

    def _log_of(self, at: TopicPartition) -> Log:
        return self._logs.setdefault(at, Log())

    def _pipe(self, topic: str, entry: Entry, partition: int | None) -> None:
        if partition is None:
            keyed = entry.key is not None
            partition = partition_of(entry.key or b"", self._external[topic]) if keyed else 0
        self.write(TopicPartition(self.names.topic(topic), partition), entry)
        if self._each:
            self.commit()

    # --- running -----------------------------------------------------------------------------

    def run(self) -> None:
        """Feed the tasks until nothing moves any more; nothing is committed."""
        moved = True
        while moved:
            moved = False
            for task in self._tasks.values():
                moved = self.step(task.id) or moved

    def step(self, task_id: TaskId) -> bool:
        """Feed one task a batch per input and let it process; say whether anything moved."""
        task = self._tasks[task_id]
        fed = False
        for at in task.inputs:
            fed = self._feed(task, at) or fed
        done = task.process(self.now_ms, self.batch_rows) + task.punctuate(self.now_ms)
        self._deliver(task)
        if isinstance(task.stopped_at, ProcessingError) and task.stopped_at not in self._poisoned:
            raise task.stopped_at
        return fed or done > 0

    def _feed(self, task: Task, at: TopicPartition) -> bool:
        log, low = self._log_of(at), self._fetched_to[at]
        entries = log.readable(self._exactly_once)[low : low + self.batch_rows]
        high = low + len(entries)
        at_end = high == len(log)
        headers: list[Headers] | None = [entry.headers for entry in entries]
        task.accept(
            Fetched(
                at,
                list(range(low, high)),
                [entry.key for entry in entries],
                [entry.value for entry in entries],
                [entry.stamp_ms for entry in entries],
                headers if any(headers or ()) else None,
                high,
                at_end,
            )
        )
        self._fetched_to[at] = high
        return bool(entries)

    def _deliver(self, task: Task) -> None:
        for send in task.drain():
            self._append(send)

    def _append(self, send: Send) -> None:
        headers = send.headers or [()] * len(send.keys)
        for row, key in enumerate(send.keys):
            entry = Entry(key, send.values[row], send.stamps_ms[row], tuple(headers[row]))
            at = TopicPartition(send.topic, self._partition(send, row))
            self._log_of(at).append(entry, stable=not self._exactly_once)

    def _partition(self, send: Send, row: int) -> int:
        if isinstance(send.partition, int):
            return send.partition
        if send.partition is not None:
            return send.partition[row]
        key = send.keys[row] if send.partition_keys is None else send.partition_keys[row]
        bare = send.topic.removeprefix(f"{self.names.group}-")
        known = {**self._counts.topics, **self._counts.repartitions}
        count = known.get(bare) or known.get(send.topic) or 1
        return 0 if key is None else partition_of(key, count)

    def commit(self) -> None:
        """Commit until nothing moves: results of one commit may close windows further down."""
        while self.commit_once():
            self.run()

    def commit_once(self, only: Collection[TaskId] | None = None) -> bool:
        """Commit all tasks together, once, as a worker does; say whether there was anything.

        What was sent is not processed: ``run`` does that. ``only``: the tasks of one worker among
        several (under exactly-once there is one transaction, so it must be all).
        """
        tasks = self._chosen(only)
        points = self._cut_and_send(tasks)
        self._make_durable(points)
        for task in tasks:
            if task.id in points:
                ends = {at: Position(len(self._log_of(at)), TOPIC_ID) for at in task.changelogs()}
                task.committed(points[task.id], ends)
            self._deliver(task)
        return bool(points)

    def _chosen(self, only: Collection[TaskId] | None) -> list[Task]:
        assert only is None or not self._exactly_once, "one transaction for all tasks"
        return [task for task in self._tasks.values() if only is None or task.id in only]

    def _cut_and_send(self, tasks: Collection[Task]) -> dict[TaskId, CommitPoint]:
        points = {task.id: point for task in tasks if (point := task.cut(self.now_ms))}
        for task in tasks:
            self._deliver(task)
        return points

    def _make_durable(self, points: Mapping[TaskId, CommitPoint]) -> None:
        for point in points.values():
            self._committed.update(point.offsets)
        for log in self._logs.values():
            log.settle()

    def advance_time(self, by_ms: int) -> None:
        """Let the wall clock go on; timers fire, idle partitions are noticed at the next commit."""
        self.now_ms += by_ms
        self.run()

    # --- crashes -----------------------------------------------------------------------------

    def crash(self, only: Collection[TaskId] | None = None, *, wipe: bool = False) -> None:
        """Drop tasks (all, or those of one worker) as a SIGKILL would; ``restart`` follows.

        ``wipe`` takes their disks too.
        """
        for task in self._chosen(only):
            task.close(clean=False)
            del self._tasks[task.id]
            self._engines.close(task.id, wipe=wipe)
        for log in self._logs.values():
            log.abort()

    def crash_in_commit(
        self,
        after: Literal["sends", "offsets"],
        only: Collection[TaskId] | None = None,
        *,
        wipe: bool = False,
    ) -> None:
        """Crash in the middle of a commit: when all is sent and acknowledged but the offsets are
        not committed, or when they are, but the stores have not written yet."""
        points = self._cut_and_send(self._chosen(only))
        if after == "offsets":
            self._make_durable(points)
        self.crash(only, wipe=wipe)

    def poison(self, error: ProcessingError) -> None:
        """Let tasks that are built from here on treat that row as the policy for errors says."""
        self._poisoned.append(error)

    def restart(self) -> None:
        """Build the missing tasks anew: changelogs first, then from the committed offsets."""
        for sub in self.topology.sub_topologies:
            for partition in range(self._counts.tasks[sub.id]):
                task_id = TaskId(sub.id, partition)
                if task_id not in self._tasks:
                    self._tasks[task_id] = self._build(sub, task_id)
        self._tasks = dict(sorted(self._tasks.items()))

    def _build(self, sub: SubTopology, task_id: TaskId) -> Task:
        engines = {spec.name: self._engines.open(task_id, spec.name) for spec in sub.stores}
        task = build_task(
            self.topology, sub, task_id, self.names, self._counts, engines, self._config
        )
        for error in self._poisoned:
            if error.partition in task.inputs:
                task.poison(error.partition, error.offset, error)
        self._restore(task)
        begin = {at: self._committed.get(at, OffsetAndMetadata(0)) for at in task.inputs}
        task.external_positions(dict.fromkeys(task.inputs, TOPIC_ID))
        task.start(begin, self.now_ms)
        self._fetched_to |= {at: own.offset for at, own in begin.items()}
        return task

    def _restore(self, task: Task) -> None:
        task.restored_watermarks({at: self._committed.get(at) for at in task.inputs})
        for at, wanted in task.changelogs().items():
            low = 0 if wanted.position is None else wanted.position.offset
            entries = self._log_of(at).committed()
            if wanted.until_committed:
                committed = self._committed.get(at)
                entries = entries[: 0 if committed is None else committed.offset]
            tail = entries[low:]
            columns = (
                [entry.key for entry in tail],
                [entry.value for entry in tail],
                [entry.stamp_ms for entry in tail],
            )
            offsets = list(range(low, len(entries)))
            if tail:
                task.restore(
                    wanted.store, Fetched(at, offsets, *columns, None, len(entries)), TOPIC_ID
                )

    # --- looking -----------------------------------------------------------------------------

    def stored(self, store: str) -> dict[Any, Any]:
        """Return what a store holds in all tasks: {key or Windowed: value}, overlays left out."""
        return dict(self._stored(store))

    def _stored(self, name: str) -> Iterator[tuple[Any, Any]]:
        for task in self._tasks.values():
            if name not in {spec.name for spec in self.topology.sub_topologies[task.id[0]].stores}:
                continue
            store = task.store(name)
            spec = store.spec
            if not isinstance(store, WindowStore):
                for key, value, _ in store.range(None, None):
                    yield spec.key.deserialize(key), spec.value.deserialize(value)
                continue
            size_ms = spec.windows.size_ms if spec.windows is not None else 0
            for start_ms in store.starts():
                for key, value, _ in store.scan(start_ms):
                    window = Window(start_ms, start_ms + size_ms)
                    yield Windowed(spec.key.deserialize(key), window), spec.value.deserialize(value)

    def dropped(self) -> dict[str, int]:
        """Return the dropped records of all tasks since their start, by reason."""
        none: Counter[str] = Counter()
        return dict(sum((task.counters for task in self._tasks.values()), none))

    @property
    def tasks(self) -> Mapping[TaskId, Task]:
        return self._tasks

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        for task in self._tasks.values():
            task.close(clean=False)
            self._engines.close(task.id)
