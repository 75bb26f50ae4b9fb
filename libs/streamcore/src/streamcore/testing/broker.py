"""InMemoryBroker: a cluster in one object, behind the same ports as the real one.

It does what the real one was seen to do, as far as a worker can notice: transaction markers take
offsets and may come late, readers stop at the last stable offset, offsets of open transactions are
unstable, groups fence by generation and member, producers by epoch, and an expired transaction is
fatal for its producer. Time is a ``ManualClock``; faults are asked for by name (``faults``), and
``away`` takes the whole cluster away until it is set back.

>>> from streamcore.testing.clock import ManualClock
>>> broker = InMemoryBroker(ManualClock())
>>> broker.create("words", 2)
>>> broker.write("words", b"k", b"to", stamp_ms=5, partition=1)
>>> [(r.key, r.value, r.stamp_ms) for r in broker.read("words")]
[(b'k', b'to', 5)]
"""

from collections.abc import Collection

from streamcore.model import Headers, TaskId
from streamcore.runtime.ports import Process, World
from streamcore.state.memory import MemoryEngine
from streamcore.testing.cluster import Cluster
from streamcore.testing.consumer import MemoryConsumer, MemoryReader
from streamcore.testing.partition_log import Record
from streamcore.testing.producer import MemoryAdmin, MemoryProducer
from streamcore.topology.partitioning import partition_of


class InMemoryBroker(Cluster):
    """See the module."""

    def write(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        stamp_ms: int,
        partition: int | None = None,
        headers: Headers = (),
    ) -> None:
        """Write a record as some other program would."""
        logs = self.topics[topic].partitions
        if partition is None:
            partition = 0 if key is None else partition_of(key, len(logs))
        logs[partition].append(key, value, stamp_ms, headers)

    def read(self, topic: str, partition: int | None = None) -> list[Record]:
        """Return the committed records of a topic, partition by partition."""
        logs = self.topics[topic].partitions
        chosen = logs if partition is None else [logs[partition]]
        return [record for log in chosen for record in log.read(log.start, 1 << 60)[0]]

    def world(
        self,
        group: str,
        *,
        slot: str = "a",
        state_dir: "MemoryStateDir | None" = None,
    ) -> World:
        """Return the ports of one worker; each call is a new process, in a slot of that name."""
        self.processes += 1
        return World(
            process=Process(slot, f"r{self.processes}", self.clock.now_ms()),
            consumer=lambda client_id: MemoryConsumer(self, self.group(group), client_id),
            producer=lambda transactional_id: MemoryProducer(self, transactional_id),
            reader=lambda: MemoryReader(self),
            admin=MemoryAdmin(self),
            state_dir=state_dir or MemoryStateDir(),
            clock=self.clock,
        )


class MemoryStateDir:
    """Port ``StateDir`` over engines in memory; it survives the worker, as a disk would."""

    def __init__(self) -> None:
        self._engines: dict[tuple[TaskId, str], MemoryEngine] = {}
        self.discarded: list[tuple[TaskId, str]] = []

    def open(self, task: TaskId, store: str) -> MemoryEngine:
        engine = self._engines.setdefault((task, store), MemoryEngine())
        engine.reopen()
        return engine

    def discard(self, task: TaskId, store: str) -> None:
        self._engines.pop((task, store), None)
        self.discarded.append((task, store))

    def clean_up(self, keep: Collection[TaskId]) -> None:
        for at in [at for at in self._engines if at[0] not in keep]:
            del self._engines[at]

    def close(self) -> None:
        for engine in self._engines.values():
            engine.close()

    def wipe(self) -> None:
        """Lose the disk."""
        self._engines.clear()
