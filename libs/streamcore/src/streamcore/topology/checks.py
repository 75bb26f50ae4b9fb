"""What makes a topology impossible; each check is told the nodes and names the one at fault."""

from collections.abc import Mapping

from streamcore.errors import TopologyError
from streamcore.topology.nodes import (
    Aggregate,
    ExternalSink,
    Node,
    Process,
    RowOp,
    Sink,
    Source,
    Stateless,
    Suppress,
    TableStore,
    ancestors,
)

_SENDS_ALL = frozenset({RowOp.MAP, RowOp.MAP_VALUES, RowOp.SELECT_KEY, RowOp.PEEK, RowOp.PASS})


def check_nodes(nodes: Mapping[str, Node]) -> None:
    """Check the nodes with each other.

    :raises TopologyError: if they cannot work together.
    """
    if not nodes:
        raise TopologyError("the topology is empty: it reads nothing")
    _check_sources(nodes)
    for node in nodes.values():
        match node:
            case Sink() if not node.internal:
                _check_loop(nodes, node)
            case ExternalSink():
                _check_external(nodes, node)
            case Suppress():
                _check_suppress(nodes, node)
            case _:
                pass


def _check_sources(nodes: Mapping[str, Node]) -> None:
    readers: dict[str, str] = {}
    for node in nodes.values():
        if isinstance(node, Source):
            for topic in node.topics:
                other = readers.setdefault(topic, node.name)
                if other != node.name:
                    raise TopologyError(
                        f"nodes {other!r} and {node.name!r} both read topic {topic!r}; "
                        "read it once and use that stream twice"
                    )


def _check_loop(nodes: Mapping[str, Node], sink: Sink) -> None:
    """Refuse a sink that surely feeds itself for ever: nothing on the way can drop a record.

    A loop with a filter or a processor in it may end (retries go that way), so it is let through.
    """
    todo = list(sink.parents)
    while todo:
        node = nodes[todo.pop()]
        if isinstance(node, Source) and sink.topic in node.topics:
            raise TopologyError(
                f"node {sink.name!r} writes to topic {sink.topic!r}, and all that is read from "
                "there comes back to it: an endless loop; filter, or write to another topic"
            )
        if isinstance(node, Stateless) and node.op in _SENDS_ALL:
            todo += node.parents


def _check_external(nodes: Mapping[str, Node], sink: ExternalSink) -> None:
    for node in ancestors(nodes, sink.name):
        if isinstance(node, Aggregate | TableStore | Suppress | Process):
            raise TopologyError(
                f"node {sink.name!r}: rows that come from {node.name!r} have no offset of their "
                "own; write them to a topic and end the stream of that topic in the store"
            )


def _check_suppress(nodes: Mapping[str, Node], suppress: Suppress) -> None:
    for node in ancestors(nodes, suppress.name):
        if isinstance(node, Aggregate):
            if node.store.windows is not None:
                return
            break
        if not isinstance(node, Stateless):
            break
    raise TopologyError(f"node {suppress.name!r}: only a windowed table has final results")
