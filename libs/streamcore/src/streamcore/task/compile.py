"""From nodes to a pipeline: steps chained from leaves to sources, operators in walking order.

Decisions are taken here, once: which results an aggregation sends where, which sinks carry clocks
and markers, which steps ask for offsets. Running the pipeline only loops.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from streamcore.errors import TopologyError
from streamcore.model import NO_TIME_MS, TaskId
from streamcore.operators.aggregate import Outputs, TableAggregate, WindowAggregate
from streamcore.operators.base import Drops, Operator, Outbox, Step, Trace, fan_out
from streamcore.operators.external import External
from streamcore.operators.processor import Context, ProcessorOperator
from streamcore.operators.sink import MarkerPlan, RepartitionSink, Target, sink_step
from streamcore.operators.stateless import branch_step, stateless_step
from streamcore.operators.table import Table
from streamcore.operators.watermark import Mark, combine
from streamcore.state.build import Store
from streamcore.state.kv import KeyValueStore
from streamcore.task.config import TaskConfig
from streamcore.task.downstream import downstream_of
from streamcore.task.meetings import ways_meet
from streamcore.task.user_code import user_code
from streamcore.topology.graph import Partitions, SubTopology, Topology
from streamcore.topology.naming import Names
from streamcore.topology.nodes import (
    Aggregate,
    Branch,
    ExternalSink,
    Node,
    Process,
    Sink,
    Source,
    Stateless,
    StoreSpec,
    Suppress,
    TableStore,
    stores_of,
)


@runtime_checkable
class TimeKeeper(Protocol):
    """Has a watermark, or a clock, which is committed with the offsets."""

    @property
    def watermark_ms(self) -> int: ...

    def restore_time(self, watermark_ms: int) -> None: ...


@dataclass(slots=True)
class Pipeline:
    """What was compiled: where rows go in, and what is walked at each commit."""

    entries: dict[str, Step]  # source node -> first step
    operators: dict[str, Operator]  # in topological order
    parents: Mapping[str, tuple[str, ...]]  # of every node
    order: tuple[str, ...]
    needs_offsets: bool
    row_by_row: bool
    trace: Trace
    store_keepers: Mapping[str, TimeKeeper]  # store -> the operator that lets it expire
    keepers: list[TimeKeeper] = field(default_factory=list)
    externals: list[External] = field(default_factory=list)
    speakers: list[RepartitionSink] = field(default_factory=list)
    processors: list[ProcessorOperator] = field(default_factory=list)

    def flush_and_advance(self, marks: Mapping[str, Mark], now_ms: int) -> None:
        """Walk from the sources (their marks given) to the leaves; see operators.base."""
        reached: dict[str, Mark] = dict(marks)
        for name in self.order:
            if name in reached:
                continue
            mark = combine(reached[parent] for parent in self.parents[name])
            operator = self.operators.get(name)
            if operator is not None:
                operator.flush()
                mark = operator.advance(mark, now_ms)
            reached[name] = mark

    def watermark_of(self, store: str) -> int:
        """Return the watermark by which a store's windows expire."""
        keeper = self.store_keepers.get(store)
        return NO_TIME_MS if keeper is None else keeper.watermark_ms

    @property
    def watermark_ms(self) -> int:
        """The lowest watermark of the task's time-keeping operators (-1 without any)."""
        return min((keeper.watermark_ms for keeper in self.keepers), default=NO_TIME_MS)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a pipeline is compiled into."""

    topology: Topology
    sub_topology: SubTopology
    task: TaskId
    names: Names
    counts: Partitions
    config: TaskConfig
    stores: Mapping[str, Store]
    outbox: Outbox
    drops: Drops


def compile_pipeline(around: Surroundings) -> Pipeline:
    """Return the pipeline of one task."""
    return _Compiler(around).run()


class _Compiler:
    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self._nodes = {node.name: node for node in around.sub_topology.nodes}
        self._operators: dict[str, Operator] = {}
        self._trace = Trace()
        self._steps: dict[tuple[str, bool], Step | None] = {}
        self._finals = {name for name in self._nodes if self._leads_to_suppress(name)}

    def run(self) -> Pipeline:
        order = tuple(node.name for node in self._around.sub_topology.nodes)
        sources = self._around.sub_topology.sources
        entries = {source.name: self._behind(source.name, finals=False) for source in sources}
        operators = {name: self._operators[name] for name in order if name in self._operators}
        made = list(operators.values())
        return Pipeline(
            entries={name: step or fan_out([]) for name, step in entries.items()},
            operators=operators,
            parents={node.name: node.parents for node in self._nodes.values()},
            order=order,
            store_keepers=self._store_keepers(operators),
            needs_offsets=any(
                isinstance(operator, External | ProcessorOperator) for operator in made
            ),
            row_by_row=ways_meet(self._around.sub_topology),
            trace=self._trace,
            keepers=_keepers(made),
            externals=[operator for operator in made if isinstance(operator, External)],
            speakers=[operator for operator in made if isinstance(operator, RepartitionSink)],
            processors=[operator for operator in made if isinstance(operator, ProcessorOperator)],
        )

    def _store_keepers(self, operators: Mapping[str, Operator]) -> dict[str, TimeKeeper]:
        keepers: dict[str, TimeKeeper] = {}
        for spec in self._around.sub_topology.stores:
            owner = self._owner(spec.name)
            for keeper in _keepers([operators[owner]] if owner in operators else [])[:1]:
                keepers[spec.name] = keeper
        return keepers

    def _leads_to_suppress(self, name: str) -> bool:
        """True for a table node with a suppress behind it, through nodes that keep no state."""
        node = self._nodes[name]
        if isinstance(node, Suppress):
            return True
        if isinstance(node, Stateless):
            return any(self._leads_to_suppress(child) for child in self._children(name))
        return False

    def _children(self, name: str) -> tuple[str, ...]:
        return tuple(c for c in self._around.topology.children(name) if c in self._nodes)

    def _behind(self, name: str, *, finals: bool) -> Step | None:
        """Return the step that feeds the children of a node, None where nothing listens.

        ``finals`` selects the way of final results: only what leads to a suppress is on it; the way
        of updates ends where a suppress stands.
        """
        steps = []
        for child in self._children(name):
            step = self._step(child, finals=finals)
            if step is not None:
                steps.append(step)
        return fan_out(steps) if steps else None

    def _step(self, name: str, *, finals: bool) -> Step | None:
        if (name, finals) not in self._steps:
            self._steps[name, finals] = self._compile(self._nodes[name], finals=finals)
        return self._steps[name, finals]

    def _compile(self, node: Node, *, finals: bool) -> Step | None:
        if isinstance(node, Suppress):
            return (self._behind(node.name, finals=False) or fan_out([])) if finals else None
        if finals and node.name not in self._finals:
            return None
        match node:
            case Stateless():
                return self._stateless(node, finals=finals)
            case Branch():
                outputs = [self._step(o, finals=False) or fan_out([]) for o in node.outputs]
                return branch_step(node.predicates, outputs)
            case Sink():
                return self._sink(node)
            case _:
                return self._keeping(node)

    def _keeping(self, node: Node) -> Step:
        """Compile a node that becomes an operator."""
        match node:
            case Aggregate():
                operator: Operator = self._aggregate(node)
            case TableStore():
                operator = self._table(node)
            case Process():
                operator = self._process(node)
            case ExternalSink():
                operator = self._external(node)
            case _:
                raise TopologyError(f"node {node.name}: {type(node).__name__} cannot be compiled")
        self._operators[node.name] = operator
        return self._trace.before(operator.process)

    def _stateless(self, node: Stateless, *, finals: bool) -> Step | None:
        then = self._behind(node.name, finals=finals)
        if then is None and node.name in self._finals:
            return None
        return stateless_step(node.op, node.function, then or fan_out([]), self._around.drops)

    def _target(self, node: Sink) -> Target:
        names, counts = self._around.names, self._around.counts
        topic = names.internal(node.topic) if node.internal else names.topic(node.topic)
        asks = node.internal or node.partitioner is not None
        return Target(topic, counts.of(node.topic) if asks else 0, self._around.task.partition)

    def _sink(self, node: Sink) -> Step:
        around = self._around
        if not node.internal or around.config.event_time != "source":
            return self._trace.after(sink_step(node, self._target(node), around.outbox))
        sink = RepartitionSink(
            node,
            self._target(node),
            around.outbox,
            downstream_of(around.topology, node.topic),
            MarkerPlan(
                around.task.partition,
                around.counts.tasks[around.sub_topology.id],
                around.config.marker_interval_ms,
                around.config.markers_in_cut,
                around.config.idle_renewal_ms,
            ),
        )
        self._operators[node.name] = sink
        return self._trace.after(sink.process)

    def _each(self, spec: StoreSpec) -> bool:
        """True if no change may wait for the commit: also where a processor reads the store, for
        what waits is not in there yet."""
        shared = any(
            isinstance(node, Process) and any(own.name == spec.name for own in node.stores)
            for node in self._nodes.values()
        )
        return self._around.config.forward_each_update or not spec.cached or shared

    def _aggregate(self, node: Aggregate) -> Operator:
        around, store = self._around, self._around.stores[node.store.name]
        updates = self._behind(node.name, finals=False)
        each = self._each(node.store)
        if isinstance(store, KeyValueStore):
            return TableAggregate(node, store, updates or fan_out([]), around.drops, each=each)
        return WindowAggregate(
            node,
            store,
            Outputs(updates, self._behind(node.name, finals=True)),
            around.drops,
            by_operator_time=around.config.event_time == "operator",
            each=each,
        )

    def _table(self, node: TableStore) -> Operator:
        store = self._around.stores[node.store.name]
        assert isinstance(store, KeyValueStore), node.name
        then = self._behind(node.name, finals=False) or fan_out([])
        each = self._each(node.store)
        return Table(node, store, then, self._around.drops, each=each)

    def _process(self, node: Process) -> Operator:
        around = self._around
        children = {
            name: self._step(name, finals=False) or fan_out([])
            for name in self._children(node.name)
        }
        bare = {around.names.topic(t): t for t in around.sub_topology.source_topics}
        bare |= {around.names.internal(t): t for t in around.sub_topology.repartition_sources}
        context = Context(node, around.task, around.stores, children, bare)
        owned = tuple(
            around.stores[spec.name] for spec in node.stores if self._owner(spec.name) == node.name
        )
        with user_code(around.task, "in a processor's constructor"):
            processor = node.supplier()
        return ProcessorOperator(node, processor, context, owned)

    def _owner(self, store: str) -> str:
        """The first node with a store is the one that lets it expire."""
        return next(
            node.name
            for node in self._nodes.values()
            if any(spec.name == store for spec in stores_of(node))
        )

    def _external(self, node: ExternalSink) -> Operator:
        for parent in self._ancestors(node.name):
            if isinstance(self._nodes[parent], Aggregate | TableStore | Process):
                raise TopologyError(
                    f"{node.name} stands behind {parent}, whose results have no offsets of their "
                    "own; send them through a topic and read that into the external store"
                )
        with user_code(self._around.task, "in an external store's constructor"):
            store = node.supplier()
        return External(store)

    def _ancestors(self, name: str) -> set[str]:
        found: set[str] = set()
        waiting = list(self._nodes[name].parents)
        while waiting:
            parent = waiting.pop()
            if parent not in found and parent in self._nodes:
                found.add(parent)
                waiting += self._nodes[parent].parents
        return found


def _keepers(operators: list[Operator]) -> list[TimeKeeper]:
    keepers: list[TimeKeeper] = []
    for operator in operators:
        if isinstance(operator, TimeKeeper):
            keepers.append(operator)
        if isinstance(operator, ProcessorOperator) and operator.own_clock is not None:
            keepers.append(operator.own_clock)
    return keepers


def sources_of(sub_topology: SubTopology, names: Names) -> dict[str, Source]:
    """Return the source node of every topic (by its name on the broker) that the task reads."""
    found: dict[str, Source] = {}
    for source in sub_topology.sources:
        name: Callable[[str], str] = names.internal if source.internal else names.topic
        found |= {name(topic): source for topic in source.topics}
    return found
