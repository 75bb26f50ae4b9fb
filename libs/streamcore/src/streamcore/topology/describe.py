"""A topology as text, in the words of Kafka Streams, and as a Mermaid flowchart.

The text equals Java's byte for byte where the nodes are the same: tools and eyes that know the one
can read the other. (Differences: our ``suppress`` needs no store of its own, and an unnamed table
has one.) Java prints its hash sets in the order of their buckets, so that order is computed here.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from streamcore.topology.nodes import ExternalSink, Node, Sink, Source, stores_of

# --- Java's text ------------------------------------------------------------------------------


def describe(groups: Iterable[tuple[int, Sequence[Node]]]) -> str:
    """Return the text of the sub-topologies, given as (id, nodes in topological order)."""
    parts = [f"Sub-topology: {group}\n{_nodes(nodes)}\n" for group, nodes in groups]
    return "Topologies:\n " + "".join(f"  {part}" for part in parts)


def _nodes(nodes: Sequence[Node]) -> str:
    linked = _Links(nodes)
    ordered = sorted(nodes, key=lambda node: (-linked.sizes[node.name], node.name))
    return "".join(f"    {_node(node, linked)}\n" for node in ordered)


def _node(node: Node, linked: "_Links") -> str:
    after = f"\n      --> {', '.join(linked.after[node.name]) or 'none'}"
    before = f"\n      <-- {', '.join(linked.before[node.name]) or 'none'}"
    match node:
        case Source():
            return f"Source: {node.name} (topics: [{_set(node.topics)}]){after}"
        case Sink():
            return f"Sink: {node.name} (topic: {node.topic}){before}"
        case ExternalSink():
            return f"Sink: {node.name} (external store){before}"
        case _:
            stores = _set(store.name for store in stores_of(node))
            return f"Processor: {node.name} (stores: [{stores}]){after}{before}"


def _set(names: Iterable[str]) -> str:
    return ", ".join(_hash_order(list(names)))


class _Links:
    """Neighbours of each node in the order in which Java prints them, and sizes of the subtrees.

    Java links nodes one by one in hash order and keeps neighbours in a tree sorted by (size, name)
    as the sizes are at that moment; they are still growing. We play that through.
    """

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.sizes = {node.name: 1 for node in nodes}
        self.after: Mapping[str, list[str]]
        self.before: Mapping[str, list[str]]
        parents = {node.name: node.parents for node in nodes}
        linked: dict[str, list[str]] = defaultdict(list)  # the parents linked so far
        after: dict[str, _Tree] = defaultdict(_Tree)
        before: dict[str, _Tree] = defaultdict(_Tree)
        for name in _hash_order([node.name for node in nodes]):
            for parent in parents[name]:
                before[name].add(parent, self.sizes)
                after[parent].add(name, self.sizes)
                linked[name].append(parent)
                self._grow(parent, self.sizes[name], linked)
        self.after = {name: after[name].names() for name in self.sizes}
        self.before = {name: before[name].names() for name in self.sizes}

    def _grow(self, name: str, by: int, linked: Mapping[str, list[str]]) -> None:
        self.sizes[name] += by
        for parent in linked.get(name, ()):
            self._grow(parent, by, linked)


class _Tree:
    """A sorted tree whose keys change after they went in, as Java's does. Not balanced: with up to
    three names Java's balancing does not show either.
    """

    def __init__(self) -> None:
        self._root: _Leaf | None = None

    def add(self, name: str, sizes: Mapping[str, int]) -> None:
        leaf = _Leaf(name)
        if self._root is None:
            self._root = leaf
            return
        at = self._root
        while True:
            if at.name == name:
                return
            left = (-sizes[name], name) < (-sizes[at.name], at.name)
            below = at.left if left else at.right
            if below is None:
                break
            at = below
        if left:
            at.left = leaf
        else:
            at.right = leaf

    def names(self) -> list[str]:
        return [] if self._root is None else self._root.names()


class _Leaf:
    def __init__(self, name: str) -> None:
        self.name = name
        self.left: _Leaf | None = None
        self.right: _Leaf | None = None

    def names(self) -> list[str]:
        left = [] if self.left is None else self.left.names()
        right = [] if self.right is None else self.right.names()
        return [*left, self.name, *right]


def _hash_order(names: Sequence[str]) -> list[str]:
    """Return the names in the order in which a Java HashSet gives them back."""
    buckets = 16
    while len(names) > buckets * 3 // 4:
        buckets *= 2
    return sorted(names, key=lambda name: _spread(name) & (buckets - 1))


def _spread(name: str) -> int:
    units = name.encode("utf-16-be")
    hashed = 0
    for i in range(0, len(units), 2):
        hashed = hashed * 31 + int.from_bytes(units[i : i + 2], "big") & 0xFFFFFFFF
    return hashed ^ hashed >> 16


# --- Mermaid ----------------------------------------------------------------------------------


def mermaid(groups: Iterable[tuple[int, Sequence[Node]]]) -> str:
    """Return a flowchart: a box for each sub-topology, topics between them."""
    lines = ["flowchart TD"]
    edges: list[str] = []
    ids: dict[str, str] = {}  # names hold characters that Mermaid reads as its own

    def id_of(kind: str, name: str) -> str:
        return ids.setdefault(f"{kind} {name}", f"{kind}{len(ids)}")

    for group, nodes in groups:
        lines.append(f'    subgraph sub{group} ["Sub-topology {group}"]')
        for node in nodes:
            own = id_of("node", node.name)
            lines.append(f'        {own}["{node.name}"]')
            edges += [f"    {id_of('node', parent)} --> {own}" for parent in node.parents]
            edges += [
                f'    {own} <--> {id_of("store", store.name)}[("{store.name}")]'
                for store in stores_of(node)
            ]
            match node:
                case Source():
                    edges += [
                        f'    {id_of("topic", topic)}(["{topic}"]) --> {own}'
                        for topic in node.topics
                    ]
                case Sink():
                    topic = node.topic
                    edges.append(f'    {own} --> {id_of("topic", topic)}(["{topic}"])')
                case _:
                    pass
        lines.append("    end")
    return "\n".join([*lines, *edges]) + "\n"
