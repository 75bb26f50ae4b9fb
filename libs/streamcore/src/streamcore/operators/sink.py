"""Sinks: rows to bytes for a topic, and, into repartition topics, clocks and markers as well."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from streamcore.model import Headers, Rows, Send
from streamcore.operators.base import Outbox, Step
from streamcore.operators.marker import Marker, add_clock, marker_send
from streamcore.operators.watermark import UNKNOWN, Mark
from streamcore.topology.nodes import Sink
from streamcore.topology.windows import Windows


@dataclass(frozen=True, slots=True)
class Target:
    """Where a sink writes: topic by its name on the broker, its partitions, the task's number."""

    topic: str
    partitions: int
    own_partition: int


def sink_step(node: Sink, target: Target, outbox: Outbox) -> Step:
    """Return the step of a sink into a topic that carries neither clocks nor markers."""
    # Kafka Streams partitions a repartition topic by the whole key, windowed or not.
    inner = None if node.internal else node.key.inner
    partition: int | None = target.own_partition if node.same_partition else None

    def step(rows: Rows) -> None:
        keys = node.key.serialize_column(rows.keys)
        values = node.value.serialize_column(rows.values)
        send = Send(target.topic, keys, values, rows.stamps_ms, rows.headers, partition)
        if node.partitioner is not None:
            send.partition = _chosen(node.partitioner, target, rows)
        elif inner is not None and partition is None:
            send.partition_keys = _bytes(inner.serialize_column([key.key for key in rows.keys]))
        outbox.append(send)

    return step


def _chosen(
    partitioner: Callable[[str, Any, Any, int], int], target: Target, rows: Rows
) -> list[int]:
    topic, partitions = target.topic, target.partitions
    chosen = [
        partitioner(topic, key, value, partitions)
        for key, value in zip(rows.keys, rows.values, strict=True)
    ]
    for partition in chosen:
        if type(partition) is not int or not 0 <= partition < partitions:
            raise ValueError(
                f"the partitioner gave {partition!r} for {topic}, which has {partitions} partitions"
            )
    return chosen


def _bytes(column: Sequence[bytes | None]) -> list[bytes]:
    assert None not in column, "a windowed key without a key"
    return [key for key in column if key is not None]


@dataclass(frozen=True, slots=True)
class Downstream:
    """What stands behind a repartition topic and looks at time.

    ``windows`` with their retention; ``other`` says that something else does too (a processor's
    timers), so that every step of a clock may matter.
    """

    windows: tuple[tuple[Windows, int], ...]
    other: bool

    @property
    def looks_at_time(self) -> bool:
        return self.other or bool(self.windows)

    def lateness_matters(self, stamp_ms: int, clock_ms: int) -> bool:
        """True if a record with this clock could be late for one of its windows."""
        return self.other or any(
            windows.closes_ms(windows.starts(stamp_ms).start) <= clock_ms
            for windows, _ in self.windows
        )

    def progress_matters(self, before: Mark, now: Mark) -> bool:
        """True if something can close, expire or fire between the two marks."""
        if before.idle != now.idle or (self.other and before.ms != now.ms):
            return True
        return any(
            windows.oldest_open_ms(before.ms) != windows.oldest_open_ms(now.ms)
            or (before.ms - keep_ms) // windows.advance_ms
            != (now.ms - keep_ms) // windows.advance_ms
            for windows, keep_ms in self.windows
        )


@dataclass(frozen=True, slots=True)
class MarkerPlan:
    """Who speaks, and when: task number ``task`` of ``tasks``, at most every ``interval_ms``.

    ``in_cut``: a marker belongs to the same transaction as the rows it vouches for; else it waits
    until they are acknowledged. ``renew_ms``: how often an idle mark is repeated while nothing
    changes; whoever reads it does not believe an old one, since its owner may be gone.
    """

    task: int
    tasks: int
    interval_ms: int
    in_cut: bool
    renew_ms: int


class RepartitionSink:
    """Writes to a repartition topic and keeps the tasks behind it told how far time has come.

    A marker goes out when it can change something, at most one round an interval; once after the
    start; in front of the first rows after a marker that said idle; and while it stays idle, now
    and then. In a round all partitions get it.
    """

    def __init__(
        self,
        node: Sink,
        target: Target,
        outbox: Outbox,
        downstream: Downstream,
        plan: MarkerPlan,
    ) -> None:
        self._node = node
        self._target = target
        self._outbox = outbox
        self._downstream = downstream
        self._plan = plan
        self._write = sink_step(node, target, outbox)
        self._told: Mark | None = None
        self._told_at_ms = 0
        self._mark = UNKNOWN
        self._vouched_ms = UNKNOWN.ms  # what is acknowledged lies behind this time
        self._due: Mark | None = None
        self._round_ms: int | None = None
        self._now_ms = 0

    def restore_time(self, watermark_ms: int) -> None:
        """Start from the mark of the last commit, awake: an idle mark is earned anew."""
        self._mark = Mark(watermark_ms, False)
        self._vouched_ms = watermark_ms

    def start(self, now_ms: int) -> None:
        """Markers carry the wall clock, those in front of the first rows too."""
        self._now_ms = now_ms

    @property
    def watermark_ms(self) -> int:
        return self._mark.ms

    @property
    def owes_marker(self) -> bool:
        """True if a marker waits for the end of a commit."""
        return self._due is not None

    def process(self, rows: Rows) -> None:
        if not len(rows):
            return
        if self._told is None or self._told.idle:
            self._tell(Mark(self._vouched_ms, False))
        if rows.clocks_ms is not rows.stamps_ms:
            rows = self._with_clocks(rows)
        self._write(rows)

    def _with_clocks(self, rows: Rows) -> Rows:
        matters = self._downstream.lateness_matters
        own = rows.headers or [()] * len(rows)
        headers: list[Headers] = [
            add_clock(headers, clock_ms)
            if clock_ms > stamp_ms and matters(stamp_ms, clock_ms)
            else headers
            for headers, stamp_ms, clock_ms in zip(own, rows.stamps_ms, rows.clocks_ms, strict=True)
        ]
        if not any(headers):
            return rows
        return Rows(rows.keys, rows.values, rows.stamps_ms, rows.clocks_ms, headers)

    def flush(self) -> None:
        return None

    def advance(self, mark: Mark, now_ms: int) -> Mark:
        self._now_ms = now_ms
        self._mark = Mark(max(mark.ms, self._mark.ms), mark.idle)
        if self._downstream.looks_at_time and self._is_due(now_ms):
            self._round_ms = now_ms
            if self._plan.in_cut:
                self._tell(self._mark)
            else:
                self._due = self._mark
        elif self._due is not None:  # left from a commit that failed: it may not tell old news
            self._due = self._mark
        return mark

    def _is_due(self, now_ms: int) -> bool:
        if self._told is None:
            return True
        if self._mark.idle and self._told.idle and now_ms - self._told_at_ms >= self._plan.renew_ms:
            return True
        if self._round_ms is not None and 0 <= now_ms - self._round_ms < self._plan.interval_ms:
            return False
        return self._downstream.progress_matters(self._told, self._mark)

    def committed(self) -> None:
        self._vouched_ms = self._mark.ms
        due, self._due = self._due, None
        if due is not None:
            self._tell(due)

    def _tell(self, mark: Mark) -> None:
        self._told, self._told_at_ms = mark, self._now_ms
        marker = Marker(self._plan.task, self._plan.tasks, mark)
        target = self._target
        self._outbox.append(marker_send(target.topic, target.partitions, marker, self._now_ms))

    @property
    def live_entries(self) -> int:
        return 0
