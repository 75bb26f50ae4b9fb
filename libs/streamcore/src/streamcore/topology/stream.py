"""KStream: records, one after the other; its operators describe nodes and return what follows."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from streamcore.errors import TopologyError
from streamcore.serde.base import Serde
from streamcore.topology.draft import Draft, checked_name, needed
from streamcore.topology.external import StoreSupplier
from streamcore.topology.grouped import Grouping, KGroupedStream, store_of
from streamcore.topology.materialized import Grouped, Materialized, Produced
from streamcore.topology.nodes import (
    Branch,
    ExternalSink,
    Process,
    RowOp,
    Sink,
    Stateless,
    StoreSpec,
    TableStore,
)
from streamcore.topology.table import KTable, table_of


class KStream:
    """A stream. ``rekeyed``: the key may have changed since the partition was chosen by it, so
    that grouping needs a repartition topic in between.

    An operator that may change the key or the value loses that serde, as in Kafka Streams; say it
    again where bytes are needed (``Grouped``, ``Produced``, ``Materialized``).
    """

    def __init__(
        self,
        draft: Draft,
        node: str,
        key: Serde | None,
        value: Serde | None,
        *,
        rekeyed: bool = False,
    ) -> None:
        self._draft, self._node, self._rekeyed = draft, node, rekeyed
        self._key, self._value = key, value

    # --- row by row -------------------------------------------------------------------------

    def map(
        self, change: Callable[[Any, Any], tuple[Any, Any]], name: str | None = None
    ) -> "KStream":
        """Return ``change(key, value)``, a pair, for each record."""
        node = self._row_op("KSTREAM-MAP-", RowOp.MAP, change, name)
        return KStream(self._draft, node, None, None, rekeyed=True)

    def map_values(self, change: Callable[[Any], Any], name: str | None = None) -> "KStream":
        """Return each record with ``change(value)``."""
        node = self._row_op("KSTREAM-MAPVALUES-", RowOp.MAP_VALUES, change, name)
        return self._next(node, self._key, None)

    def filter(self, keep: Callable[[Any, Any], bool], name: str | None = None) -> "KStream":
        """Return the records for which ``keep(key, value)`` holds."""
        node = self._row_op("KSTREAM-FILTER-", RowOp.FILTER, keep, name)
        return self._next(node, self._key, self._value)

    def filter_not(self, leave: Callable[[Any, Any], bool], name: str | None = None) -> "KStream":
        """Return the records for which ``leave(key, value)`` does not hold."""
        node = self._row_op("KSTREAM-FILTER-", RowOp.FILTER_NOT, leave, name)
        return self._next(node, self._key, self._value)

    def drop_null_values(self, name: str | None = None) -> "KStream":
        """Return the records that have a value; the others are counted as dropped."""
        node = self._row_op("KSTREAM-FILTER-", RowOp.DROP_NULL_VALUES, None, name)
        return self._next(node, self._key, self._value)

    def flat_map(
        self, change: Callable[[Any, Any], Iterable[tuple[Any, Any]]], name: str | None = None
    ) -> "KStream":
        """Return the pairs of ``change(key, value)``, none or many for each record."""
        node = self._row_op("KSTREAM-FLATMAP-", RowOp.FLAT_MAP, change, name)
        return KStream(self._draft, node, None, None, rekeyed=True)

    def flat_map_values(
        self, change: Callable[[Any], Iterable[Any]], name: str | None = None
    ) -> "KStream":
        """Return the values of ``change(value)``, none or many for each record, under its key."""
        node = self._row_op("KSTREAM-FLATMAPVALUES-", RowOp.FLAT_MAP_VALUES, change, name)
        return self._next(node, self._key, None)

    def select_key(self, choose: Callable[[Any, Any], Any], name: str | None = None) -> "KStream":
        """Return each record under the key ``choose(key, value)``."""
        node = self._row_op("KSTREAM-KEY-SELECT-", RowOp.SELECT_KEY, choose, name)
        return KStream(self._draft, node, None, self._value, rekeyed=True)

    def peek(self, look: Callable[[Any, Any], object], name: str | None = None) -> "KStream":
        """Call ``look(key, value)`` for each record and return the stream as it is."""
        node = self._row_op("KSTREAM-PEEK-", RowOp.PEEK, look, name)
        return self._next(node, self._key, self._value)

    # --- splitting and joining up -----------------------------------------------------------

    def split(self, name: str | None = None) -> "BranchedKStream":
        """Begin to split: each record goes to the first branch whose predicate holds."""
        node = self._draft.name("KSTREAM-BRANCH-", name)
        self._draft.add(Branch(name=node, parents=(self._node,), predicates=(), outputs=()))
        return BranchedKStream(self._draft, node, self._branch)

    def merge(self, other: "KStream", name: str | None = None) -> "KStream":
        """Return the records of both streams; each keeps its own order.

        A serde that both share is kept (Java loses both).
        """
        draft, node, key, value, rekeyed = other._parts()  # noqa: SLF001  # one of our own
        if draft is not self._draft:
            raise TopologyError("streams of two builders cannot be merged")
        merged = draft.name("KSTREAM-MERGE-", name)
        parents = tuple(dict.fromkeys((self._node, node)))
        draft.add(Stateless(name=merged, parents=parents, op=RowOp.PASS))
        return KStream(
            draft,
            merged,
            self._key if self._key == key else None,
            self._value if self._value == value else None,
            rekeyed=self._rekeyed or rekeyed,
        )

    # --- state ------------------------------------------------------------------------------

    def group_by(
        self, choose: Callable[[Any, Any], Any], grouped: Grouped | None = None
    ) -> KGroupedStream["KStream"]:
        """Group by ``choose(key, value)``; the records go through a repartition topic."""
        wanted = grouped or Grouped()
        node = self._row_op("KSTREAM-KEY-SELECT-", RowOp.SELECT_KEY, choose, wanted.name)
        serdes = replace(wanted, value=wanted.value or self._value)
        return KGroupedStream(Grouping(self._draft, node, serdes, rekeyed=True), KStream)

    def group_by_key(self, grouped: Grouped | None = None) -> KGroupedStream["KStream"]:
        """Group by the key as it is, through a repartition topic only where it may have changed."""
        wanted = grouped or Grouped()
        serdes = replace(wanted, key=wanted.key or self._key, value=wanted.value or self._value)
        return KGroupedStream(Grouping(self._draft, self._node, serdes, self._rekeyed), KStream)

    def to_table(
        self, materialized: Materialized | None = None, name: str | None = None
    ) -> KTable["KStream"]:
        """Return the newest value per key."""
        draft = self._draft
        node = draft.name("KSTREAM-TOTABLE-", name)
        wanted = materialized or Materialized()
        if wanted.name is None:
            wanted = replace(wanted, name=draft.store_name("KSTREAM-TOTABLE-"))
        serdes = (wanted.key or self._key, wanted.value or self._value)
        store = store_of(wanted, node, serdes)
        draft.add_store(store)
        parent = self._node
        if self._rekeyed:
            parent = draft.repartition(parent, node, store.key, store.value, "Materialized(...)")
        draft.add(TableStore(name=node, parents=(parent,), store=store))
        return table_of(draft, node, store, KStream)

    def process(
        self,
        supplier: Callable[[], Any],
        stores: Sequence[str | StoreSpec] = (),
        name: str | None = None,
        hold_ms: int = 0,
        own_time: bool = False,
    ) -> "KStream":
        """Hand the records to a processor of the user's; ``supplier`` makes one for each task.

        ``stores``: names, or specs (``key_value_store``, ``window_store``). ``hold_ms``: how far
        behind the current record the timestamps that it forwards may lie; finals wait that much
        longer. ``own_time``: it sets timestamps that have nothing to do with those it was given.
        """
        if hold_ms < 0:
            raise TopologyError(f"hold_ms is {hold_ms}; it must not be negative")
        if isinstance(stores, str):
            raise TopologyError(f"stores is a sequence of names; write stores=[{stores!r}]")
        # Java burns no number here where a name is given.
        node = (
            self._draft.name("KSTREAM-PROCESSOR-") if name is None else checked_name("node", name)
        )
        self._draft.add(
            Process(
                name=node,
                parents=(self._node,),
                supplier=supplier,
                hold_ms=hold_ms,
                own_time=own_time,
            )
        )
        self._draft.connect(node, tuple(stores))
        return KStream(self._draft, node, None, None, rekeyed=True)

    # --- the end ----------------------------------------------------------------------------

    def to(self, topic: str, produced: Produced | None = None) -> None:
        """Write the records to ``topic``."""
        wanted = produced or Produced()
        node = self._draft.name("KSTREAM-SINK-", wanted.name)
        hint = "Produced(key=..., value=...)"
        self._draft.add(
            Sink(
                name=node,
                parents=(self._node,),
                topic=checked_name("topic", topic),
                key=needed(wanted.key or self._key, node, "key", hint),
                value=needed(wanted.value or self._value, node, "value", hint),
                partitioner=wanted.partitioner,
                same_partition=wanted.same_partition,
            )
        )

    def to_store(self, supplier: StoreSupplier, name: str | None = None) -> None:
        """End the stream outside Kafka; ``supplier`` makes one ``ExternalStore`` for each task."""
        node = self._draft.name("KSTREAM-EXTERNAL-", name)
        self._draft.add(ExternalSink(name=node, parents=(self._node,), supplier=supplier))

    # --- inside -----------------------------------------------------------------------------

    def _row_op(
        self, prefix: str, op: RowOp, function: Callable[..., Any] | None, name: str | None
    ) -> str:
        node = self._draft.name(prefix, name)
        return self._draft.add(
            Stateless(name=node, parents=(self._node,), op=op, function=function)
        )

    def _parts(self) -> tuple[Draft, str, Serde | None, Serde | None, bool]:
        return self._draft, self._node, self._key, self._value, self._rekeyed

    def _next(self, node: str, key: Serde | None, value: Serde | None) -> "KStream":
        return KStream(self._draft, node, key, value, rekeyed=self._rekeyed)

    def _branch(self, node: str) -> "KStream":
        return self._next(node, self._key, self._value)


class BranchedKStream:
    """A stream being split. The branches come back as a dict, in the order in which they were
    written, under the names of their nodes: the split's name and the branch's (or its number).
    """

    def __init__(self, draft: Draft, node: str, branch: Callable[[str], KStream]) -> None:
        self._draft, self._node, self._branch = draft, node, branch
        self._branches: dict[str, KStream] = {}

    def branch(
        self, predicate: Callable[[Any, Any], bool], name: str | None = None
    ) -> "BranchedKStream":
        """Add a branch for the records for which ``predicate(key, value)`` is the first to hold."""
        split = self._split()
        suffix = str(len(split.predicates) + 1) if name is None else name
        self._output(replace(split, predicates=(*split.predicates, predicate)), suffix)
        return self

    def default_branch(self, name: str | None = None) -> dict[str, KStream]:
        """Add a branch for the rest, and return all of them."""
        self._output(self._split(), "0" if name is None else name)
        return self._branches

    def no_default_branch(self) -> dict[str, KStream]:
        """Return the branches; the rest is dropped."""
        return self._branches

    def _split(self) -> Branch:
        split = self._draft.nodes[self._node]
        assert isinstance(split, Branch), split
        if len(split.outputs) > len(split.predicates):
            raise TopologyError(f"split {self._node!r} has its default branch already")
        return split

    def _output(self, split: Branch, suffix: str) -> None:
        node = self._draft.name("", self._node + suffix)
        self._draft.add(Stateless(name=node, parents=(self._node,), op=RowOp.PASS))
        self._draft.change(replace(split, outputs=(*split.outputs, node)))
        self._branches[node] = self._branch(node)
