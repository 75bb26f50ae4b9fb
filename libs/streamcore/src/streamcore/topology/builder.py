"""StreamsBuilder: where a topology begins, and where it is closed and checked."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from streamcore.errors import TopologyError
from streamcore.topology.draft import Draft, checked_name, needed
from streamcore.topology.graph import Topology, make_topology
from streamcore.topology.grouped import store_of
from streamcore.topology.materialized import Consumed, Materialized
from streamcore.topology.nodes import (
    Aggregate,
    Node,
    RowOp,
    Source,
    Stateless,
    StoreSpec,
    Suppress,
    TableStore,
    stores_of,
)
from streamcore.topology.stream import KStream
from streamcore.topology.table import KTable, table_of

UPDATES_KEPT_MS = 24 * 3_600_000
"""How long the windows of a table that sends updates stay beyond size and grace, by default."""

_TABLE_OPS = frozenset({RowOp.TABLE_FILTER, RowOp.TABLE_FILTER_NOT, RowOp.TABLE_MAP_VALUES})


class StreamsBuilder:
    """Describes a topology step by step; ``build`` checks it and makes it final.

    >>> from streamcore.serde.builtin import STR
    >>> builder = StreamsBuilder()
    >>> lines = builder.stream("lines", Consumed(key=STR, value=STR))
    >>> lines.flat_map_values(str.split).map_values(str.lower).peek(print) is not lines
    True
    >>> list(builder.build().nodes)[:2]
    ['KSTREAM-SOURCE-0000000000', 'KSTREAM-FLATMAPVALUES-0000000001']
    """

    def __init__(self) -> None:
        self._draft = Draft()
        self._streams: dict[tuple[str, ...], tuple[Consumed, str]] = {}

    def stream(self, topics: str | Sequence[str], consumed: Consumed) -> KStream:
        """Return the records of a topic, or of several together.

        The same topics may be asked for again: they are read once.
        """
        names = (topics,) if isinstance(topics, str) else tuple(topics)
        if not names or len(set(names)) < len(names):
            raise TopologyError(f"a stream reads one topic or several different ones, not {names}")
        node = self._draft.name("KSTREAM-SOURCE-", consumed.name)
        asked, known = self._streams.get(names, (consumed, ""))
        if known:
            if replace(asked, name=None) != replace(consumed, name=None):
                raise TopologyError(
                    f"topic {names[0]!r} is read by {known!r} already, with other serdes or "
                    "settings; use that stream twice"
                )
            node = known
        else:
            self._draft.add(_source(node, names, consumed))
            self._streams[names] = (consumed, node)
        return KStream(self._draft, node, consumed.key, consumed.value)

    def table(
        self, topic: str, consumed: Consumed, materialized: Materialized | None = None
    ) -> KTable[KStream]:
        """Return a compacted topic as a table; the topic itself is the store's changelog."""
        draft = self._draft
        wanted = materialized or Materialized()
        if wanted.name is None:
            wanted = replace(wanted, name=draft.store_name(f"{topic}-"))
        given = consumed.name
        source = draft.name("KSTREAM-SOURCE-", None if given is None else f"{given}-source")
        node = draft.name("KTABLE-SOURCE-", given)
        store = store_of(wanted, node, (wanted.key or consumed.key, wanted.value or consumed.value))
        draft.add_store(store)
        draft.add(_source(source, (topic,), consumed))
        draft.add(TableStore(name=node, parents=(source,), store=store, source_topic=topic))
        return table_of(draft, node, store, KStream)

    def add_store(self, store: StoreSpec) -> "StreamsBuilder":
        """Make a store known (``key_value_store``, ``window_store``) that processors name."""
        self._draft.add_store(store)
        return self

    def build(self) -> Topology:
        """Return the topology, checked.

        :raises TopologyError: if it is empty, or a processor wants an unknown store, or a store is
            used by nobody, or nodes cannot work together.
        """
        nodes = dict(self._draft.nodes)
        stores = dict(self._draft.stores)
        for node in nodes.values():
            if isinstance(node, Aggregate):
                stores[node.store.name] = _with_retention(node, nodes, self._draft.connections)
        nodes = self._draft.connected(stores)
        for name, node in nodes.items():
            if isinstance(node, Aggregate):
                nodes[name] = replace(node, store=stores[node.store.name])
        used = {store.name for node in nodes.values() for store in stores_of(node)}
        if unused := sorted(stores.keys() - used):
            raise TopologyError(
                f"store {unused[0]!r} is used by nobody; connect it with process(stores=...)"
            )
        return make_topology(nodes)


def _source(node: str, topics: tuple[str, ...], consumed: Consumed) -> Source:
    hint = "Consumed(key=..., value=...)"
    return Source(
        name=node,
        topics=tuple(checked_name("topic", topic) for topic in topics),
        key=needed(consumed.key, node, "key", hint, read=True),
        value=needed(consumed.value, node, "value", hint, read=True),
        timestamp=consumed.timestamp,
        offset_reset=consumed.offset_reset,
    )


def _with_retention(
    node: Aggregate, nodes: Mapping[str, Node], connections: Mapping[str, tuple[str, ...]]
) -> StoreSpec:
    """Return the node's store with the time that its windows stay.

    Where only finals leave the table, a closed window is of no more use. Where updates do, it can
    still take a record that is not late but came behind the closing (a replay, a silent partition).
    """
    store = node.store
    if store.windows is None or store.retention_ms is not None:
        return store
    closes_ms = store.windows.size_ms + store.windows.grace_ms
    shared = any(store.name in names for names in connections.values())
    if not shared and _only_finals(node.name, nodes):
        return replace(store, retention_ms=closes_ms)
    return replace(store, retention_ms=closes_ms + UPDATES_KEPT_MS)


def _only_finals(name: str, nodes: Mapping[str, Node]) -> bool:
    """Tell if every way out of the table leads through suppress (and there is one)."""
    children = [node for node in nodes.values() if name in node.parents]
    return bool(children) and all(
        isinstance(child, Suppress)
        or (
            isinstance(child, Stateless)
            and child.op in _TABLE_OPS
            and _only_finals(child.name, nodes)
        )
        for child in children
    )
