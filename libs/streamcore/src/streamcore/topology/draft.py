"""Draft: the nodes of a topology while it is being written, and the counter behind their names.

Streams and tables only hold a draft and the name of a node. Kafka Streams numbers nodes with one
counter, and burns a number even where a name is given; ours counts the same way, so that texts,
stores and internal topics carry the names that Java gives them.
"""

import re
from dataclasses import dataclass, field, replace
from typing import Final

from streamcore.errors import TopologyError
from streamcore.serde.base import Serde
from streamcore.topology.nodes import Node, Process, RowOp, Sink, Source, Stateless, StoreSpec

REPARTITION: Final = "-repartition"

_LEGAL = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_GENERATED = re.compile(r"KSTREAM.*-[0-9]{10}")


def checked_name(what: str, name: str) -> str:
    """Return ``name`` if it can be (part of) a topic's name.

    :raises TopologyError: if Kafka would refuse it.
    """
    if not _LEGAL.fullmatch(name) or name in {".", ".."}:
        raise TopologyError(
            f"{what} {name!r}: a name has 1 to 249 letters, digits, '.', '_' or '-' (ASCII)"
        )
    return name


def needed(serde: Serde | None, node: str, what: str, hint: str, *, read: bool = False) -> Serde:
    """Return the serde, or refuse the node that cannot do without.

    ``read``: it must be able to read, too.
    """
    if serde is None:
        raise TopologyError(f"node {node!r} has no {what} serde; give it with {hint}")
    if read and not serde.readable:
        raise TopologyError(
            f"node {node!r}: its {what} serde {serde.name} can only write; give it size_ms"
        )
    return serde


@dataclass(slots=True)
class Draft:
    """Nodes in the order in which they were written, parents first."""

    nodes: dict[str, Node] = field(default_factory=dict)
    stores: dict[str, StoreSpec] = field(default_factory=dict)
    connections: dict[str, tuple[str, ...]] = field(default_factory=dict)
    _next: int = 0

    # --- names ------------------------------------------------------------------------------

    def name(self, prefix: str, given: str | None = None) -> str:
        """Return ``given``, or prefix and number; either way one number is used up."""
        number, self._next = self._next, self._next + 1
        return checked_name("node", given) if given is not None else f"{prefix}{number:010d}"

    def store_name(self, prefix: str) -> str:
        """Return the name of a store that the user has not named."""
        return self.name(f"{prefix}STATE-STORE-")

    # --- nodes and stores -------------------------------------------------------------------

    def add(self, node: Node) -> str:
        """Add a node whose parents are there, and return its name."""
        if node.name in self.nodes:
            raise TopologyError(f"two nodes are called {node.name!r}; give one another name")
        assert all(parent in self.nodes for parent in node.parents), node
        self.nodes[node.name] = node
        return node.name

    def change(self, node: Node) -> None:
        """Put ``node`` in the place of the one of the same name."""
        assert node.name in self.nodes, node
        self.nodes[node.name] = node

    def add_store(self, spec: StoreSpec) -> None:
        """Make a store known; each name belongs to one store."""
        checked_name("store", spec.name)
        if spec.name in self.stores:
            raise TopologyError(f"two stores are called {spec.name!r}; give one another name")
        self.stores[spec.name] = spec

    def connect(self, node: str, stores: tuple[str | StoreSpec, ...]) -> None:
        """Note the stores of a processor; names may become known later, until the build."""
        names = []
        for store in stores:
            if isinstance(store, StoreSpec):
                if self.stores.get(store.name) != store:
                    self.add_store(store)
                names.append(store.name)
            else:
                names.append(store)
        self.connections[node] = tuple(dict.fromkeys(names))

    def connected(self, stores: dict[str, StoreSpec]) -> dict[str, Node]:
        """Return all nodes, the processors with their ``stores``.

        :raises TopologyError: if a processor wants a store that does not exist.
        """
        nodes = dict(self.nodes)
        for name, wanted in self.connections.items():
            if unknown := [store for store in wanted if store not in stores]:
                raise TopologyError(
                    f"node {name!r} wants the unknown store {unknown[0]!r}; known are: "
                    f"{', '.join(sorted(stores)) or 'none'}"
                )
            node = nodes[name]
            assert isinstance(node, Process), node
            nodes[name] = replace(node, stores=tuple(stores[store] for store in wanted))
        return nodes

    # --- repartition ------------------------------------------------------------------------

    def repartition(
        self, parent: str, prefix: str, key: Serde | None, value: Serde | None, hint: str
    ) -> str:
        """Send ``parent``'s rows through a repartition topic; return the name of its source.

        The topic is ``<prefix>-repartition``, or one that this draft has already under ``parent``.
        """
        topic = prefix if prefix.endswith(REPARTITION) else prefix + REPARTITION
        sink, drop, source = (
            self.name(f"KSTREAM-{kind}-") for kind in ("SINK", "FILTER", "SOURCE")
        )
        if not _GENERATED.fullmatch(prefix):
            sink, drop, source = f"{topic}-sink", f"{topic}-filter", f"{topic}-source"
        checked_name("topic", topic)
        key = needed(key, sink, "key", hint, read=True)
        value = needed(value, sink, "value", hint, read=True)
        self.add(
            Stateless(name=checked_name("node", drop), parents=(parent,), op=RowOp.DROP_NULL_KEYS)
        )
        self.add(Sink(name=sink, parents=(drop,), topic=topic, key=key, value=value, internal=True))
        return self.add(Source(name=source, topics=(topic,), key=key, value=value, internal=True))

    def burn_repartition(self) -> None:
        """Use up the numbers of a repartition whose topic is there already."""
        self._next += 3
