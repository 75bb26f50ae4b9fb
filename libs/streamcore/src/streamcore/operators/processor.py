"""Users' processors: the context they see, what they forward, and their timers.

What a processor forwards for a batch is gathered and passed on as one batch. A forwarded record
keeps the clock of the record it was made from, less what its output may lie behind (``hold_ms``).
One that sets timestamps of its own (``own_time``) starts a clock of its own: the highest that it
has set. What a timer forwards has its timestamp as clock.
"""

from collections.abc import Callable, Mapping
from typing import Any

from streamcore.model import NO_TIME_MS, Headers, Rows, TaskId, TopicPartition
from streamcore.operators.base import Step
from streamcore.operators.views import view
from streamcore.operators.watermark import UNKNOWN, Mark
from streamcore.state.build import Store
from streamcore.state.window import WindowStore
from streamcore.topology.nodes import Process
from streamcore.topology.processor import Clock, Processor, Scheduled

_NOWHERE = TopicPartition("", -1)


class Timer:
    """One schedule. After a gap it fires once and falls into step again."""

    def __init__(
        self, interval_ms: int, clock: Clock, callback: Callable[[int], None], next_ms: int
    ) -> None:
        self.clock = clock
        self.cancelled = False
        self._interval_ms = interval_ms
        self._callback = callback
        self._next_ms = next_ms

    def cancel(self) -> None:
        self.cancelled = True

    def fire(self, time_ms: int, enter: Callable[[int], None]) -> bool:
        """Call back if it is due at ``time_ms``; say whether it was."""
        if self.cancelled or time_ms < self._next_ms:
            return False
        missed = (time_ms - self._next_ms) // self._interval_ms
        self._next_ms += (missed + 1) * self._interval_ms
        enter(time_ms)
        self._callback(time_ms)
        return True


class OwnClock:
    """The highest timestamp that a processor with ``own_time`` has set; outlives the task."""

    def __init__(self) -> None:
        self.watermark_ms = NO_TIME_MS

    def restore_time(self, watermark_ms: int) -> None:
        self.watermark_ms = watermark_ms

    def see(self, stamp_ms: int) -> int:
        """Note a timestamp and return the clock."""
        self.watermark_ms = max(self.watermark_ms, stamp_ms)
        return self.watermark_ms


class Gathered:
    """Forwarded records on their way to one or all children."""

    def __init__(self, then: Step) -> None:
        self.then = then
        self.rows = Rows([], [], [], [], [])

    def pass_on(self, source: TopicPartition | None) -> None:
        rows, self.rows = self.rows, Rows([], [], [], [], [])
        if not len(rows):
            return
        rows.headers = rows.headers if rows.headers and any(rows.headers) else None
        if rows.clocks_ms == rows.stamps_ms:
            rows.clocks_ms = rows.stamps_ms
        rows.source = source
        self.then(rows)


class Context:
    """The ProcessorContext of one processor of one task."""

    def __init__(
        self,
        node: Process,
        task: TaskId,
        stores: Mapping[str, Store],
        children: Mapping[str, Step],
        bare_topics: Mapping[str, str],
    ) -> None:
        self.task_id = task
        self.watermark_ms = NO_TIME_MS
        self.now_ms = 0
        self.stamp_ms = NO_TIME_MS
        self.headers: Headers = ()
        self.offset = -1
        self.at = _NOWHERE
        self.clock_ms: int | None = None
        self.own_clock = OwnClock() if node.own_time else None
        self.timers: list[Timer] = []
        self.outputs = {name: Gathered(step) for name, step in children.items()}
        self._node = node
        self._bare_topics = bare_topics
        self._views = {
            spec.name: view(spec, stores[spec.name], self._current_ms) for spec in node.stores
        }

    @property
    def topic(self) -> str:
        return self._bare_topics.get(self.at.topic, self.at.topic)

    @property
    def partition(self) -> int:
        return self.at.partition

    def _current_ms(self) -> int:
        return self.stamp_ms

    def enter_timer(self, time_ms: int) -> None:
        """From here on there is no record."""
        self.stamp_ms, self.headers, self.offset = time_ms, (), -1
        self.at, self.clock_ms = _NOWHERE, None

    def forward(
        self,
        key: Any,
        value: Any,
        stamp_ms: int | None = None,
        headers: Headers | None = None,
        child: str | None = None,
    ) -> None:
        stamp_ms = self.stamp_ms if stamp_ms is None else stamp_ms
        headers = self.headers if headers is None else tuple(headers)
        clock_ms = self.clock_ms
        if self.own_clock is not None:
            own_ms = self.own_clock.see(stamp_ms)
            clock_ms = None if clock_ms is None else own_ms
        clock_ms = stamp_ms if clock_ms is None else max(stamp_ms, clock_ms - self._node.hold_ms)
        if child is not None and child not in self.outputs:
            raise KeyError(f"{self._node.name} has no child {child!r}: {sorted(self.outputs)}")
        outputs = self.outputs.values() if child is None else (self.outputs[child],)
        for output in outputs:
            rows = output.rows
            rows.keys.append(key)
            rows.values.append(value)
            rows.stamps_ms.append(stamp_ms)
            rows.clocks_ms.append(clock_ms)
            assert rows.headers is not None, "Gathered starts with a column of headers"
            rows.headers.append(headers)

    def store(self, name: str) -> Any:
        if name not in self._views:
            raise KeyError(
                f"store {name!r} is not connected to {self._node.name}; "
                f"name it in process(stores=...)"
            )
        return self._views[name]

    def schedule(
        self, interval_ms: int, clock: Clock, callback: Callable[[int], None]
    ) -> Scheduled:
        if interval_ms <= 0:
            raise ValueError(f"interval_ms is {interval_ms}; it must be above 0")
        if clock == "wall":
            first_ms = self.now_ms + interval_ms
        else:
            first_ms = 0  # as soon as there is a watermark
            if self.watermark_ms >= 0:
                first_ms = (self.watermark_ms // interval_ms + 1) * interval_ms
        timer = Timer(interval_ms, clock, callback, first_ms)
        self.timers.append(timer)
        return timer


class ProcessorOperator:
    """Runs one processor of one task."""

    def __init__(
        self, node: Process, processor: Processor, context: Context, owned: tuple[Store, ...]
    ) -> None:
        self._node = node
        self._context = context
        self._owned = owned
        self._processor = processor
        self._mark = UNKNOWN
        self._committed_ms = NO_TIME_MS

    @property
    def watermark_ms(self) -> int:
        return self._mark.ms

    @property
    def own_clock(self) -> OwnClock | None:
        return self._context.own_clock

    def restore_time(self, watermark_ms: int) -> None:
        self._mark = Mark(watermark_ms, False)
        self._committed_ms = watermark_ms
        self._context.watermark_ms = watermark_ms

    def start(self, now_ms: int) -> None:
        """Call the processor's ``init``; its stores are complete by now."""
        self._context.now_ms = now_ms
        self._processor.init(self._context)

    def process(self, rows: Rows) -> None:
        context, process = self._context, self._processor.process
        headers = rows.headers or [()] * len(rows)
        offsets = rows.offsets or [-1] * len(rows)
        context.at = rows.source or _NOWHERE
        for row, key in enumerate(rows.keys):
            context.stamp_ms = rows.stamps_ms[row]
            context.clock_ms = rows.clocks_ms[row]
            context.headers = headers[row]
            context.offset = offsets[row]
            process(key, rows.values[row])
        self._pass_on()

    def flush(self) -> None:
        return None

    def advance(self, mark: Mark, now_ms: int) -> Mark:
        self._context.now_ms = now_ms
        self._mark = Mark(max(mark.ms, self._mark.ms), mark.idle)
        self._context.watermark_ms = self._mark.ms
        if self._mark.ms > NO_TIME_MS:
            self._fire("stream", self._mark.ms)
        for store in self._owned:
            if isinstance(store, WindowStore):
                store.expire(self._committed_ms - store.retention_ms + 1)
        own = self._context.own_clock
        passed_ms = self._mark.ms if own is None else own.watermark_ms
        return Mark(max(NO_TIME_MS, passed_ms - self._node.hold_ms), mark.idle)

    def punctuate(self, now_ms: int) -> int:
        """Fire the wall-clock timers that are due; return how many."""
        self._context.now_ms = now_ms
        return self._fire("wall", now_ms)

    def _fire(self, clock: Clock, time_ms: int) -> int:
        context = self._context
        fired = sum(
            timer.fire(time_ms, context.enter_timer)
            for timer in list(context.timers)
            if timer.clock == clock
        )
        context.timers = [timer for timer in context.timers if not timer.cancelled]
        self._pass_on()
        return fired

    def _pass_on(self) -> None:
        for output in self._context.outputs.values():
            output.pass_on(None)

    def committed(self) -> None:
        self._committed_ms = self._mark.ms

    def close(self) -> None:
        self._processor.close()

    @property
    def live_entries(self) -> int:
        return 0
