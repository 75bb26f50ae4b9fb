"""Topology: nodes that were checked, cut into sub-topologies at the repartition topics.

A **sub-topology** is a connected component of the graph; nodes that share a store are connected,
too. Each of them runs as one task per partition of its source topics. Ids count in the order in
which the first node of each was written, so that tasks are called as in Kafka Streams.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from streamcore.errors import TopologyError
from streamcore.topology.checks import check_nodes
from streamcore.topology.describe import describe, mermaid
from streamcore.topology.nodes import (
    Node,
    Sink,
    Source,
    StoreSpec,
    TableStore,
    ancestors,
    stores_of,
)

# --- values -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SubTopology:
    """A connected part of the graph; ``nodes`` in topological order, topics by bare names."""

    id: int
    nodes: tuple[Node, ...]

    @property
    def sources(self) -> tuple[Source, ...]:
        return tuple(node for node in self.nodes if isinstance(node, Source))

    @property
    def sinks(self) -> tuple[Sink, ...]:
        return tuple(node for node in self.nodes if isinstance(node, Sink))

    @property
    def stores(self) -> tuple[StoreSpec, ...]:
        """The stores of its nodes, each once."""
        found = {store.name: store for node in self.nodes for store in stores_of(node)}
        return tuple(found.values())

    @property
    def source_topics(self) -> tuple[str, ...]:
        """Topics that it reads and that others own."""
        return tuple(topic for node in self.sources if not node.internal for topic in node.topics)

    @property
    def repartition_sources(self) -> tuple[str, ...]:
        """Repartition topics that it reads (named without prefix and application id)."""
        return tuple(topic for node in self.sources if node.internal for topic in node.topics)

    @property
    def repartition_sinks(self) -> tuple[str, ...]:
        """Repartition topics that it writes (named without prefix and application id)."""
        return tuple(dict.fromkeys(node.topic for node in self.sinks if node.internal))

    @property
    def table_sources(self) -> Mapping[str, str]:
        """Store -> bare source topic, of the tables whose topic is their changelog."""
        return {
            node.store.name: node.source_topic
            for node in self.nodes
            if isinstance(node, TableStore) and node.source_topic is not None
        }

    @property
    def changelogged(self) -> tuple[StoreSpec, ...]:
        """The stores with a changelog topic of their own."""
        tables = self.table_sources
        return tuple(store for store in self.stores if store.logged and store.name not in tables)


@dataclass(frozen=True, slots=True)
class Topology:
    """What to compute: frozen, checked. ``nodes`` stand in the order in which they were written."""

    nodes: Mapping[str, Node]
    sub_topologies: tuple[SubTopology, ...]

    def children(self, name: str) -> tuple[str, ...]:
        """Return the nodes that get this node's rows, in the order in which they were written."""
        return tuple(node.name for node in self.nodes.values() if name in node.parents)

    @property
    def source_topics(self) -> tuple[str, ...]:
        """Topics that it reads and that others own (bare names)."""
        return tuple(topic for sub in self.sub_topologies for topic in sub.source_topics)

    @property
    def sink_topics(self) -> tuple[str, ...]:
        """Topics that it writes and that others own (bare names)."""
        sinks = (sink for sub in self.sub_topologies for sink in sub.sinks)
        return tuple(dict.fromkeys(sink.topic for sink in sinks if not sink.internal))

    def describe(self) -> str:
        """Return the topology in the words of Kafka Streams' ``Topology.describe()``."""
        return describe((sub.id, sub.nodes) for sub in self.sub_topologies)

    def mermaid(self) -> str:
        """Return the topology as a Mermaid flowchart."""
        return mermaid((sub.id, sub.nodes) for sub in self.sub_topologies)


@dataclass(frozen=True, slots=True)
class Partitions:
    """How many partitions everything has; topics by bare names.

    ``topics``: those of others, as they were found. ``tasks``: by sub-topology.
    """

    topics: Mapping[str, int]
    repartitions: Mapping[str, int]
    changelogs: Mapping[str, int]
    tasks: Mapping[int, int]

    def of(self, topic: str) -> int:
        """Return the partitions of a topic of any kind."""
        for kind in (self.repartitions, self.changelogs, self.topics):
            if topic in kind:
                return kind[topic]
        raise KeyError(topic)


# --- building ---------------------------------------------------------------------------------


def make_topology(nodes: Mapping[str, Node]) -> Topology:
    """Check the nodes (parents stand before children) and cut them into sub-topologies.

    :raises TopologyError: if they cannot work together; the message names the node.
    """
    check_nodes(nodes)
    subs = _cut(nodes)
    _check_repartitions(subs)
    return Topology(MappingProxyType(dict(nodes)), subs)


def _cut(nodes: Mapping[str, Node]) -> tuple[SubTopology, ...]:
    leader = {name: name for name in nodes}

    def find(name: str) -> str:
        while leader[name] != name:
            name = leader[name]
        return name

    users: dict[str, str] = {}  # store -> a node with it
    for node in nodes.values():
        neighbours = [*node.parents]
        neighbours += [users.setdefault(store.name, node.name) for store in stores_of(node)]
        for other in neighbours:
            leader[find(other)] = find(node.name)
    groups: dict[str, list[Node]] = {}
    for node in nodes.values():
        groups.setdefault(find(node.name), []).append(node)
    return tuple(SubTopology(i, tuple(group)) for i, group in enumerate(groups.values()))


def _check_repartitions(subs: Sequence[SubTopology]) -> None:
    # Watermarks cross a repartition topic as one vector of the writer's tasks: one writer each.
    writers: dict[str, int] = {}
    for sub in subs:
        for topic in sub.repartition_sinks:
            if writers.setdefault(topic, sub.id) != sub.id:
                raise TopologyError(
                    f"repartition topic {topic!r} is written by sub-topologies {writers[topic]} "
                    f"and {sub.id}; give each grouping a name of its own"
                )
    for sub in subs:
        for topic in sub.repartition_sources:
            if topic not in writers:
                raise TopologyError(f"repartition topic {topic!r} is written by nobody")


# --- partitions ----------------------------------------------------------------------------------


def partition_counts(topology: Topology, counts: Mapping[str, int]) -> Partitions:
    """Return the partitions of all repartition topics and changelogs, and the number of tasks.

    ``counts``: partitions of the topics that the topology reads, and of those that it writes by
    partition number (others do no harm); bare names. The rules are Kafka Streams': a sub-topology
    has as many tasks as its widest source; a repartition topic as many partitions as its writer
    has tasks. Sources that fill one store must be equal (**co-partitioned**), or the same key would
    be in two tasks: repartition topics are made so, a difference between other topics is refused.

    :raises TopologyError: if topics are missing or do not fit; the message has names and counts.
    """
    known, tasks = _solved(topology, counts)
    _check_same_partition(topology, counts, tasks)
    writers = {topic for sub in topology.sub_topologies for topic in sub.repartition_sinks}
    return Partitions(
        topics=dict(counts),
        repartitions={topic: count for topic, count in known.items() if topic in writers},
        changelogs={
            store.changelog: tasks[sub.id]
            for sub in topology.sub_topologies
            for store in sub.changelogged
        },
        tasks=tasks,
    )


def fitting_counts(
    topology: Topology, counts: Mapping[str, int], default: int
) -> Mapping[str, int]:
    """Return partitions for the topics of others that ``partition_counts`` is content with.

    ``counts`` are kept. What they leave open has ``default`` partitions, unless it meets a topic of
    ``counts``: in one store, or where rows are written by partition number.

    :raises TopologyError: if ``counts`` do not fit each other already.
    """
    chosen = dict(counts)
    for sub in topology.sub_topologies:
        for group in _groups(topology, sub):
            if given := _agreed(group, counts):
                outer = group.intersection(topology.source_topics)
                chosen |= dict.fromkeys(outer - chosen.keys(), given)
        by_number = [sink.topic for sink in sub.sinks if sink.same_partition]
        given = max((chosen.get(topic, 0) for topic in (*sub.source_topics, *by_number)), default=0)
        for topic in sub.source_topics:
            chosen.setdefault(topic, given if by_number and given else default)
    _, tasks = _solved(topology, chosen)
    for sub in topology.sub_topologies:
        for sink in sub.sinks:
            if not sink.internal:
                chosen.setdefault(sink.topic, tasks[sub.id] if sink.same_partition else default)
    return chosen


def _solved(topology: Topology, counts: Mapping[str, int]) -> tuple[dict[str, int], dict[int, int]]:
    """Return the partitions of all topics that are read, and the tasks by sub-topology."""
    if missing := [topic for topic in topology.source_topics if topic not in counts]:
        raise TopologyError(f"source topics without partitions: {', '.join(missing)}")
    known = {topic: counts[topic] for topic in topology.source_topics}
    groups = [group for sub in topology.sub_topologies for group in _groups(topology, sub)]
    forced = {topic: _agreed(group, counts) for group in groups for topic in group}
    writers = {topic: sub for sub in topology.sub_topologies for topic in sub.repartition_sinks}
    before = None
    while before != known:  # a repartition topic may depend on others; the counts only grow
        before = dict(known)
        for topic, sub in writers.items():
            known[topic] = forced.get(topic) or _tasks(sub, known)
        for group in groups:
            known |= dict.fromkeys(group, max(known.get(topic, 0) for topic in group))
    return known, {sub.id: _tasks(sub, known) for sub in topology.sub_topologies}


def _tasks(sub: SubTopology, known: Mapping[str, int]) -> int:
    return max(known.get(topic, 0) for node in sub.sources for topic in node.topics)


def _groups(topology: Topology, sub: SubTopology) -> list[set[str]]:
    """Return the topics that must be co-partitioned: those whose rows meet in a store."""
    groups: list[set[str]] = []
    for store in sub.stores:
        topics: set[str] = set()
        for node in sub.nodes:
            if store in stores_of(node):
                for above in ancestors(topology.nodes, node.name):
                    topics |= set(above.topics) if isinstance(above, Source) else set()
        joined = [group for group in groups if group & topics]
        groups = [group for group in groups if not group & topics]
        groups.append(topics.union(*joined))
    return groups


def _agreed(group: set[str], counts: Mapping[str, int]) -> int:
    """Return the count that the external topics of the group share; 0 if there are none."""
    external: Sequence[str] = sorted(topic for topic in group if topic in counts)
    for topic in external[1:]:
        if counts[topic] != counts[external[0]]:
            raise TopologyError(
                f"topics {external[0]!r} ({counts[external[0]]} partitions) and {topic!r} "
                f"({counts[topic]} partitions) meet in one store and must have equally many; "
                "recreate one of them, or group by the key again (a repartition topic)"
            )
    return counts[external[0]] if external else 0


def _check_same_partition(
    topology: Topology, counts: Mapping[str, int], tasks: Mapping[int, int]
) -> None:
    for sub in topology.sub_topologies:
        for sink in sub.sinks:
            if sink.same_partition and counts.get(sink.topic) != tasks[sub.id]:
                raise TopologyError(
                    f"node {sink.name!r} writes to the partition number that it reads from: "
                    f"{', '.join(sub.source_topics + sub.repartition_sources)} "
                    f"({tasks[sub.id]} partitions) and {sink.topic!r} "
                    f"({counts.get(sink.topic, 0)} partitions) must have equally many"
                )
