"""Do ways from one input meet again? Then batches would show, and the task goes row by row.

A batch runs through one branch as a whole before it enters the next. Where two branches end in one
node, one topic or one store, their rows would arrive in another order than one by one.
"""

from collections.abc import Mapping

from streamcore.topology.graph import SubTopology
from streamcore.topology.nodes import Node, Sink, Source, stores_of


def ways_meet(sub: SubTopology) -> bool:
    """True if rows of one source can reach some node, topic or store on more than one way."""
    nodes = {node.name: node for node in sub.nodes}
    return any(_meet(nodes, source.name) for source in sub.sources)


def _meet(nodes: Mapping[str, Node], source: str) -> bool:
    reached = {source}
    places: set[tuple[str, str]] = set()
    for node in nodes.values():  # parents stand in front of children
        ways = [parent for parent in node.parents if parent in reached]
        if len(ways) > 1:
            return True
        if not ways and node.name != source:
            continue
        reached.add(node.name)
        for place in _places(node):
            if place in places:
                return True
            places.add(place)
    return False


def _places(node: Node) -> list[tuple[str, str]]:
    found = [("store", spec.name) for spec in stores_of(node)]
    if isinstance(node, Sink):
        found.append(("topic", node.topic))
    assert not (isinstance(node, Source) and found), node
    return found
