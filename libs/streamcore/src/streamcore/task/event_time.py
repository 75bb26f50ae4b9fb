"""EventTime: the clocks of all inputs of one task, the marks that they make, and what is committed.

Inputs that somebody outside writes have a clock of their own; a repartition partition follows the
clocks of the tasks that write it. By Kafka Streams' rule every input has its own.
"""

from collections.abc import Iterable, Mapping

from streamcore.model import NO_TIME_MS, TopicPartition
from streamcore.operators.marker import Marker
from streamcore.operators.watermark import Mark, combine
from streamcore.task.buffer import Buffers
from streamcore.task.clocks import SourceClock, UpstreamClocks
from streamcore.task.config import TaskConfig
from streamcore.task.metadata import TimeState
from streamcore.topology.nodes import Source


class EventTime:
    """See the module. ``start`` comes first, once for each input."""

    def __init__(
        self,
        inputs: Mapping[TopicPartition, Source],
        upstream_tasks: Mapping[TopicPartition, int],
        config: TaskConfig,
    ) -> None:
        self._inputs = inputs
        self._upstream_tasks = upstream_tasks
        self._config = config
        self._by_operator_time = config.event_time == "operator"
        self._clocks: dict[TopicPartition, SourceClock] = {}
        self._upstream: dict[TopicPartition, UpstreamClocks] = {}
        self._reached_ms = NO_TIME_MS
        self.moved_ms = 0  # by the wall clock: when a watermark last moved; 0: not known

    def remember(self, states: Iterable[TimeState]) -> None:
        """Take over from the last commit when the watermarks had moved."""
        for state in states:
            self._reached_ms = max(self._reached_ms, *state.watermarks_ms, NO_TIME_MS)
            self.moved_ms = max(self.moved_ms, state.moved_ms)

    def start(self, partition: TopicPartition, time: TimeState, now_ms: int) -> None:
        """Begin with the clocks of the last commit; idleness counts from now."""
        if self._inputs[partition].internal and not self._by_operator_time:
            self._upstream[partition] = UpstreamClocks(
                self._upstream_tasks[partition],
                self._config.idle_lease_ms,
                list(time.upstream_ms),
            )
        else:
            self._clocks[partition] = SourceClock(self._config.idle_after_ms, time.clock_ms, now_ms)

    def clock_of(self, partition: TopicPartition) -> SourceClock | None:
        """Return the input's own clock; None: its rows bring their clocks with them."""
        return self._clocks.get(partition)

    def hear(self, partition: TopicPartition, marker: Marker, said_at_ms: int) -> None:
        """Note what an upstream task says of itself.

        By Kafka Streams' rule nobody listens; markers may still lie there from before the rule was
        changed.
        """
        if not self._by_operator_time:
            self._upstream[partition].hear(marker, said_at_ms)

    def marks(self, buffers: Buffers, now_ms: int) -> dict[str, Mark]:
        """Return the mark of each source node: that of its partitions together."""
        marks: dict[str, list[Mark]] = {}
        for partition, source in self._inputs.items():
            marks.setdefault(source.name, []).append(self._mark_of(partition, buffers, now_ms))
        return {source: combine(own) for source, own in marks.items()}

    def _mark_of(self, partition: TopicPartition, buffers: Buffers, now_ms: int) -> Mark:
        if self._by_operator_time:  # Kafka Streams' stream time: the highest of all inputs
            return Mark(max(clock.ms for clock in self._clocks.values()), False)
        clock = self._clocks.get(partition)
        if clock is not None:
            return clock.mark(now_ms, caught_up=buffers[partition].caught_up)
        return self._upstream[partition].mark()

    def doubt_idleness(self, now_ms: int, unheard_ms: int) -> None:
        """Take so much from how long each input has been silent."""
        for clock in self._clocks.values():
            clock.start(min(now_ms, clock.moved_at_ms + unheard_ms))

    def state(
        self, partition: TopicPartition, watermarks_ms: tuple[int, ...], now_ms: int
    ) -> TimeState:
        """Return what an input's commit has to remember; the watermarks are there by now."""
        reached_ms = max(watermarks_ms, default=NO_TIME_MS)
        if reached_ms > self._reached_ms:
            self._reached_ms, self.moved_ms = reached_ms, now_ms
        clock, upstream = self._clocks.get(partition), self._upstream.get(partition)
        return TimeState(
            clock.ms if clock is not None else NO_TIME_MS,
            tuple(upstream.marks_ms) if upstream is not None else (),
            watermarks_ms,
            self.moved_ms,
        )
