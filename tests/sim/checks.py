"""What must hold after each event, whatever has happened. A checker never changes anything."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tests.sim.inputs import Inputs
from tests.sim.ledger import Ledger
from tests.sim.processes import Disk, Process, is_current
from tests.sim.words import CHANGELOG, REPARTITION, RETENTION_MS, STORE, SeenLog, Source

from streamcore.model import TaskId, TopicPartition
from streamcore.runtime.worker import Worker
from streamcore.state.memory import MemoryEngine
from streamcore.task import metadata
from streamcore.testing.partition_log import Record


class ViolationError(AssertionError):
    """An invariant does not hold."""


@dataclass(slots=True)
class _Fold:
    """The changelog up to a position, as an engine should hold it."""

    rows: dict[bytes, bytes] = field(default_factory=dict)
    last: dict[bytes, int] = field(default_factory=dict)  # offset of each key's last record
    at: int = 0
    undecided: list[Record] = field(default_factory=list)

    def advance(self, log: SeenLog, to: int) -> None:
        waiting, self.undecided = self.undecided, []
        fresh = log.written[self.at : to]
        self.at = to
        for record in (*waiting, *fresh):
            if record.is_marker:
                continue
            if record.transaction is not None and record.transaction.outcome != "committed":
                if record.transaction.outcome == "open":
                    self.undecided.append(record)
                continue
            assert record.key is not None
            key = record.key[-12:-4] + record.key[:-12]
            self.last[key] = record.offset
            if record.value is None:
                self.rows.pop(key, None)
            else:
                self.rows[key] = record.stamp_ms.to_bytes(8, "big") + record.value

    def settle(self, stored: Mapping[bytes, bytes], log: SeenLog, closed_ms: int) -> bool:
        """Take over what may rightly differ; True if the rest is equal.

        A restore leaves out rows of windows that are closed, tombstones included; the next owner
        forgets those windows again. And it does not meet what compaction has removed by then.
        """
        for key in [k for k in self.rows.keys() | stored.keys() if self._differs(k, stored)]:
            closed = int.from_bytes(key[:8], "big") <= closed_ms
            compacted = key in self.last and not log.holds(self.last[key])
            if compacted or closed:
                if key in stored:
                    self.rows[key] = stored[key]
                else:
                    del self.rows[key]
        return self.rows == stored

    def _differs(self, key: bytes, stored: Mapping[bytes, bytes]) -> bool:
        return self.rows.get(key) != stored.get(key)

    def copy(self) -> "_Fold":
        return _Fold(dict(self.rows), dict(self.last), self.at, list(self.undecided))


class Checker:
    """All invariants of one history; ``found`` holds what was violated."""

    def __init__(self, source: Source, *, exactly_once: bool, gentle: bool) -> None:
        self._source = source
        self.found: list[str] = []
        self.ledger = Ledger(source, self.found.append, exactly_once=exactly_once, gentle=gentle)
        self.inputs = Inputs(source, self.found.append, self.ledger.committed)
        self._folds: dict[MemoryEngine, _Fold] = {}

    def after_event(self, workers: Mapping[Process, Worker]) -> None:
        """Check what is cheap to check.

        :raises ViolationError: at the first thing that does not hold.
        """
        self._one_owner(workers)
        self.ledger.check()
        self.raise_found()

    def raise_found(self) -> None:
        if self.found:
            raise ViolationError("; ".join(self.found[:3]))

    def is_current(self, process: Process) -> bool:
        """Tell whether a process is a member of the current generation."""
        return any(is_current(consumer) for consumer in process.consumers)

    def may_commit(self, process: Process) -> bool:
        """Tell whether the broker would take a commit: of a member, in no expired transaction."""
        broker, producer = self._source.broker, process.producer
        broker.expire_transactions()
        if producer is not None and producer._id is not None:
            fenced = broker.epochs.get(producer._id) != producer._epoch
            return self.is_current(process) and not fenced
        return self.is_current(process)

    def owners(self, workers: Mapping[Process, Worker]) -> dict[TaskId, list[str]]:
        """Return who runs each task as a member of the current generation."""
        owners: dict[TaskId, list[str]] = {}
        for process, worker in workers.items():
            if self.is_current(process):
                for task in worker._tasks.running:
                    owners.setdefault(task, []).append(process.name)
        return owners

    def stopped_without(self, process: Process, lost: Mapping[TopicPartition, int]) -> None:
        """Note that a worker left these records uncommitted, and nothing had kept it from that.

        At-least-once would count them again, exactly-once does them again.
        """
        rows = ", ".join(f"{records} of {tp}" for tp, records in sorted(lost.items()))
        self.found.append(f"{process.name} stopped without committing what it had done: {rows}")

    def _one_owner(self, workers: Mapping[Process, Worker]) -> None:
        for task, names in self.owners(workers).items():
            if len(names) > 1:
                self.found.append(f"task {task} runs in {' and '.join(names)}")

    def engines(self, disks: Iterable[Disk]) -> None:
        """Compare every store on every disk with its changelog, up to its own position.

        :raises ViolationError: if one of them holds something else.
        """
        logs = self._source.broker.seen(CHANGELOG)
        for disk in disks:
            for (task, _store), engine in disk.engines.items():
                self._engine(task, engine, logs[task.partition])
        self.raise_found()

    def _engine(self, task: TaskId, engine: MemoryEngine, log: SeenLog) -> None:
        position = engine.position()
        offset = 0 if position is None else position.offset
        fold = self._folds.setdefault(engine, _Fold())
        if offset < fold.at:
            fold = self._folds[engine] = _Fold()
        if offset > log.end:
            self.found.append(f"the store of task {task} is at {offset}, its changelog {log.end}")
            return
        fold.advance(log, offset)
        stored, closed_ms = engine._data, self._watermark_ms(task) - RETENTION_MS
        if fold.rows == stored or fold.settle(stored, log, closed_ms):
            return
        # Where nobody could tell the end of the changelog the old position stays, which is safe.
        later = fold.copy()
        while later.at < log.end:
            later.advance(log, later.at + 1)
            if later.settle(stored, log, closed_ms):
                return
        self.found.append(
            f"the store of task {task} is not what its changelog holds in front of {offset}: "
            f"{_difference(stored, fold.rows)}"
        )

    def watermarks(self) -> dict[int, int]:
        """Return the committed watermark of each counting task, by partition."""
        partitions = range(self._source.partitions)
        return {p: self._watermark_ms(TaskId(1, p)) for p in partitions}

    def nothing_expired(
        self, workers: Mapping[Process, Worker], watermarks_ms: Mapping[int, int]
    ) -> None:
        """Look into the stores of running tasks, some commits after these watermarks.

        :raises ViolationError: if one still holds a window that has expired.
        """
        for process, worker in workers.items():
            for task in worker._tasks.running:
                engine = process.disk.engines.get((task, STORE))
                closed_ms = watermarks_ms[task.partition] - RETENTION_MS
                if engine is not None and any(
                    int.from_bytes(key[:8], "big") <= closed_ms for key in engine._data
                ):
                    self.found.append(f"the store of task {task} holds windows that have expired")
        self.raise_found()

    def _watermark_ms(self, task: TaskId) -> int:
        """Return the committed watermark of a task: what it has closed is closed for good."""
        at = self.ledger.committed().get(TopicPartition(REPARTITION, task.partition))
        return -1 if at is None else max(metadata.decode(at.metadata).watermarks_ms, default=-1)


def _difference(stored: Mapping[bytes, bytes], logged: Mapping[bytes, bytes]) -> str:
    keys = sorted(k for k in stored.keys() | logged.keys() if stored.get(k) != logged.get(k))
    shown = ", ".join(
        f"{key[8:].decode()}@{int.from_bytes(key[:8], 'big')} stored "
        f"{_count(stored.get(key))} logged {_count(logged.get(key))}"
        for key in keys[:3]
    )
    return f"{len(keys)} rows, {shown}"


def _count(raw: bytes | None) -> int | None:
    return None if raw is None else int.from_bytes(raw[8:], "big")
