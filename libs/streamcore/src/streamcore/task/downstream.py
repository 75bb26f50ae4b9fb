"""What looks at time behind a repartition topic: it decides which clocks and markers travel."""

from streamcore.operators.sink import Downstream
from streamcore.topology.graph import Topology
from streamcore.topology.nodes import Aggregate, Process, Sink, Source
from streamcore.topology.windows import Windows


def downstream_of(topology: Topology, repartition_topic: str) -> Downstream:
    """Return the windowed steps and processors that records of this topic can reach.

    The search crosses further repartition topics and stops behind a windowed step, whose results
    have clocks of their own.
    """
    windows: list[tuple[Windows, int]] = []
    other = False
    seen: set[str] = set()
    waiting = _readers(topology, repartition_topic)
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        node = topology.nodes[name]
        if isinstance(node, Aggregate) and node.store.windows is not None:
            assert node.store.retention_ms is not None, f"{name} has no retention"
            windows.append((node.store.windows, node.store.retention_ms))
            continue
        other = other or isinstance(node, Process)
        if isinstance(node, Sink) and node.internal:
            waiting += _readers(topology, node.topic)
        waiting += topology.children(name)
    return Downstream(tuple(windows), other)


def _readers(topology: Topology, repartition_topic: str) -> list[str]:
    return [
        node.name
        for node in topology.nodes.values()
        if isinstance(node, Source) and node.internal and repartition_topic in node.topics
    ]
