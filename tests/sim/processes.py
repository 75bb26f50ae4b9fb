"""A worker's process as the simulation sees it: it can die, or stand still, at any call.

Every port that a worker is given goes through its process. A dead one gets no call through any
more, so whatever ``finally`` and ``except`` do on the way out of a kill changes nothing, as if the
process were gone. A process that stands still does so inside the call, while others go on.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tests.sim.inputs import Inputs
from tests.sim.words import SeenBroker

from streamcore.model import Fetched, OffsetAndMetadata, Position, TaskId, TopicPartition
from streamcore.runtime.ports import World
from streamcore.state.engine import Engine
from streamcore.state.memory import MemoryEngine
from streamcore.testing.consumer import MemoryConsumer
from streamcore.testing.group import Membership
from streamcore.testing.producer import MemoryProducer


class Killed(BaseException):
    """The process is dead; nobody in it may catch this and go on."""


class Disk:
    """What a state folder holds, whoever has it open."""

    def __init__(self) -> None:
        self.engines: dict[tuple[TaskId, str], MemoryEngine] = {}
        self.last_run = ""

    def wipe(self) -> None:
        self.engines.clear()


class Process:
    """One process, from its start to its death; ``plan`` says what happens at which call."""

    def __init__(self, name: str, disk: Disk) -> None:
        self.name = name
        self.disk = disk
        self.dead = False
        self.consumers: list[MemoryConsumer] = []
        self.producer: MemoryProducer | None = None  # the newest of its own
        self._at = ""
        self._in = 0
        self._before = True
        self._act: Callable[[str], None] | None = None

    def plan(self, call: str, count: int, act: Callable[[str], None], *, before: bool) -> None:
        """Let ``act`` happen at the ``count``-th call of that name from now on."""
        self._at, self._in, self._act, self._before = call, count, act, before

    def silence(self, *, silent: bool) -> None:
        """Send no heartbeats, or send them again."""
        for consumer in self.consumers:
            consumer.dead = silent

    def die(self) -> None:
        """Do nothing from here on. Nobody is told."""
        self.dead = True
        self.silence(silent=True)

    def call(self, name: str, function: Callable[..., Any], *args: Any, **named: Any) -> Any:
        """Let a call through, unless we are dead, with what is planned before or behind it."""
        if self.dead:
            raise Killed(self.name)
        act = self._due(name) if self._act is not None else None
        if act is not None and self._before:
            act(f"before {name}")
            if self.dead:
                raise Killed(self.name)
        result = function(*args, **named)
        if act is not None and not self._before:
            act(f"after {name}")
        if self.dead:
            raise Killed(self.name)
        return result

    def _due(self, name: str) -> Callable[[str], None] | None:
        if name != self._at:
            return None
        self._in -= 1
        if self._in > 0:
            return None
        act, self._act = self._act, None
        return act


class Port:
    """A port whose calls go through a process."""

    def __init__(self, process: Process, kind: str, inner: Any) -> None:
        self._process, self._kind, self._inner = process, kind, inner

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not callable(found):
            return found
        process, label = self._process, f"{self._kind}.{name}"

        def through(*args: Any, **named: Any) -> Any:
            return process.call(label, found, *args, **named)

        setattr(self, name, through)
        return through


class SimEngine:
    """An engine on a disk that outlives the process; the dead write nothing."""

    def __init__(self, process: Process, inner: MemoryEngine) -> None:
        self._process, self._inner = process, inner
        self.get = inner.get
        self.range: Callable[[bytes, bytes | None], Iterator[tuple[bytes, bytes]]] = inner.range
        self.position: Callable[[], Position | None] = inner.position
        self.compact: Callable[[bytes, bytes], None] = inner.compact
        self.size_bytes: Callable[[], int] = inner.size_bytes

    def write(
        self, changes: Iterable[tuple[bytes, bytes | None]], position: Position | None
    ) -> None:
        self._process.call("engine.write", self._inner.write, changes, position)

    def close(self) -> None:
        """The engine under it stays: another process may have opened it since."""


class SimStateDir:
    """Port ``StateDir`` of one process over a disk."""

    def __init__(self, process: Process) -> None:
        self._process, self._disk = process, process.disk

    def open(self, task: TaskId, store: str) -> Engine:
        return SimEngine(
            self._process, self._disk.engines.setdefault((task, store), MemoryEngine())
        )

    def discard(self, task: TaskId, store: str) -> None:
        self._process.call("disk.discard", self._disk.engines.pop, (task, store), None)

    def clean_up(self, keep: Collection[TaskId]) -> None:
        for at in [at for at in self._disk.engines if at[0] not in keep]:
            self._process.call("disk.clean_up", self._disk.engines.pop, at)

    def close(self) -> None:
        """Nothing to let go of."""


@dataclass(frozen=True, slots=True)
class Watch:
    """Who is told of what processes do, and the broker that they do it to."""

    report: Callable[[str], None]
    inputs: Inputs
    broker: SeenBroker


def is_current(consumer: MemoryConsumer) -> bool:
    """Tell whether this is a member of the current generation."""
    group = consumer._group
    return consumer._id in group.members and consumer._generation == group.generation


class SimConsumer(Port):
    """A member; whatever it commits must have been its to commit, and it begins where that ended.

    Of partitions whose leader is not back yet it hears nothing, not even how long they are by now.
    """

    def __init__(self, process: Process, inner: MemoryConsumer, watch: Watch) -> None:
        super().__init__(process, "consumer", inner)
        self._report, self._inputs, self._broker = watch.report, watch.inputs, watch.broker
        self._ends: dict[TopicPartition, int] = {}  # as last heard

    def poll(self, rows_max: int, timeout_ms: int) -> list[Fetched]:
        found: list[Fetched] = self._process.call("consumer.poll", self._poll, rows_max, timeout_ms)
        return found

    def _poll(self, rows_max: int, timeout_ms: int) -> list[Fetched]:
        inner = self._inner
        paused = set(inner._paused)
        inner._paused |= self._broker.silent()
        found: list[Fetched] = inner.poll(rows_max, timeout_ms)
        inner._paused &= paused  # an assignment has emptied it
        heard = inner._positions.keys() - self._broker.silent()
        self._ends |= inner.high_watermarks(heard)
        self._inputs.hand_over(found)
        return found

    def unread(self, positions: Mapping[TopicPartition, int]) -> set[TopicPartition]:
        found: set[TopicPartition] = self._process.call(
            "consumer.unread", self._inner.unread, positions
        )
        silent = self._broker.silent()
        return {tp for tp in found if tp not in silent or self._ends.get(tp, 0) > positions[tp]}

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        self._process.call("consumer.assign", self._assign, positions)

    def _assign(self, positions: Mapping[TopicPartition, int]) -> None:
        self._inner.assign(positions)
        self._ends.clear()
        if is_current(self._inner):
            self._inputs.begin(self._process.name, positions)

    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], timeout_ms: int) -> None:
        self._process.call("consumer.commit", self._commit, offsets, timeout_ms)

    def _commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], timeout_ms: int) -> None:
        inner = self._inner
        group = inner._group
        try:
            inner.commit(offsets, timeout_ms)
        finally:
            applied = any(group.offsets.get(tp) is at for tp, at in offsets.items())
            if applied and not is_current(inner):
                self._report(
                    f"{self._process.name} committed in generation {group.generation} as a member "
                    f"of {inner._generation}"
                )


class SimProducer(Port):
    """A producer; the offsets in its transactions must have been a member's to commit."""

    def __init__(
        self, process: Process, inner: MemoryProducer, report: Callable[[str], None]
    ) -> None:
        super().__init__(process, "producer", inner)
        self._report = report

    def commit_transaction(self, *args: Any) -> None:
        self._process.call("producer.commit_transaction", self._commit, *args)

    def _commit(self, offsets: object, group_metadata: Membership, timeout_ms: int) -> None:
        inner = self._inner
        began = inner._began
        try:
            inner.commit_transaction(offsets, group_metadata, timeout_ms)
        finally:
            if began and not inner._began:
                group = inner._cluster.groups[group_metadata.group]
                current = group_metadata.generation == group.generation
                if offsets and not (current and group_metadata.member_id in group.members):
                    self._report(
                        f"{self._process.name} committed a transaction in generation "
                        f"{group.generation} as a member of {group_metadata.generation}"
                    )


def inside(world: World, process: Process, watch: Watch) -> World:
    """Return the ports of a world for use in one process."""

    def consumer(client_id: str) -> Any:
        made = world.consumer(client_id)
        assert isinstance(made, MemoryConsumer)
        process.consumers.append(made)
        return SimConsumer(process, made, watch)

    def producer(transactional_id: str | None) -> Any:
        made = world.producer(transactional_id)
        assert isinstance(made, MemoryProducer)
        # With the id of a dead one another is made now and then, to end what that one has left.
        if process.producer is None or process.producer._id == transactional_id:
            process.producer = made
        return SimProducer(process, made, watch.report)

    disk = process.disk
    predecessor, disk.last_run = disk.last_run, world.process.run
    return replace(
        world,
        process=replace(world.process, predecessor=predecessor),
        consumer=consumer,
        producer=producer,
        reader=lambda: Port(process, "reader", world.reader()),
        admin=Port(process, "admin", world.admin),
        state_dir=SimStateDir(process),
    )
