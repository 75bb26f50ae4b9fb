"""KGroupedStream and TimeWindowedKStream: records by key (and window), waiting for an aggregate."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Generic

from streamcore.errors import TopologyError
from streamcore.serde.base import Serde
from streamcore.serde.builtin import INT64
from streamcore.topology.draft import Draft, needed
from streamcore.topology.materialized import Grouped, Materialized
from streamcore.topology.nodes import Aggregate, AggregateKind, StoreSpec
from streamcore.topology.table import KTable, StreamMaker, StreamT_co, table_of
from streamcore.topology.windows import Windows


@dataclass(slots=True)
class Grouping:
    """Where the rows come from; shared by all aggregates of one grouping.

    ``moved``: the source of the repartition topic, once there is one that all can share (only a
    topic that the user has named; otherwise each aggregate has its own, named after its store).
    """

    draft: Draft
    node: str
    serdes: Grouped
    rekeyed: bool
    moved: str | None = None

    def parent_for(self, store: str) -> str:
        """Return the node that feeds an aggregate, behind a repartition topic where needed."""
        if not self.rekeyed:
            return self.node
        if self.moved is not None:
            self.draft.burn_repartition()
            return self.moved
        source = self.draft.repartition(
            self.node,
            self.serdes.name or store,
            self.serdes.key,
            self.serdes.value,
            "Grouped(key=..., value=...)",
        )
        if self.serdes.name is not None:
            self.moved = source
        return source


@dataclass(frozen=True, slots=True)
class _Call:
    """One aggregate as the user asked for it."""

    kind: AggregateKind
    prefix: str
    value: Serde | None  # the result's serde where Materialized names none
    initializer: Callable[[], Any] | None = None
    adder: Callable[..., Any] | None = None


class _Aggregates(Generic[StreamT_co]):
    """count, reduce and aggregate, with windows or without."""

    def __init__(
        self, grouping: Grouping, stream: StreamMaker[StreamT_co], windows: Windows | None
    ) -> None:
        self._grouping, self._stream, self._windows = grouping, stream, windows

    def count(
        self, materialized: Materialized | None = None, name: str | None = None
    ) -> KTable[StreamT_co]:
        """Return the number of records per key."""
        if materialized is not None and materialized.name is None:
            self._grouping.draft.store_name("KSTREAM-AGGREGATE-")  # burnt by Java, too
        call = _Call(AggregateKind.COUNT, "KSTREAM-AGGREGATE-", INT64)
        return self._aggregate(call, materialized, name)

    def reduce(
        self,
        reducer: Callable[[Any, Any], Any],
        materialized: Materialized | None = None,
        name: str | None = None,
    ) -> KTable[StreamT_co]:
        """Return ``reducer(old, value)`` per key; the first value stands for itself."""
        value = self._grouping.serdes.value
        call = _Call(AggregateKind.REDUCE, "KSTREAM-REDUCE-", value, adder=reducer)
        return self._aggregate(call, materialized, name)

    def aggregate(
        self,
        initializer: Callable[[], Any],
        adder: Callable[[Any, Any, Any], Any],
        materialized: Materialized | None = None,
        name: str | None = None,
    ) -> KTable[StreamT_co]:
        """Return ``adder(key, value, old)`` per key; ``initializer()`` is the first old value."""
        call = _Call(AggregateKind.AGGREGATE, "KSTREAM-AGGREGATE-", None, initializer, adder)
        return self._aggregate(call, materialized, name)

    def _aggregate(
        self, call: _Call, materialized: Materialized | None, name: str | None
    ) -> KTable[StreamT_co]:
        grouping, draft = self._grouping, self._grouping.draft
        wanted = materialized or Materialized()
        if wanted.name is None:
            wanted = replace(wanted, name=draft.store_name(call.prefix))
        node = draft.name(call.prefix, name)
        store = store_of(
            wanted,
            node,
            (wanted.key or grouping.serdes.key, wanted.value or call.value),
            self._windows,
        )
        draft.add_store(store)
        parent = grouping.parent_for(store.name)
        draft.add(
            Aggregate(
                name=node,
                parents=(parent,),
                kind=call.kind,
                store=store,
                initializer=call.initializer,
                adder=call.adder,
            )
        )
        return table_of(draft, node, store, self._stream)


class TimeWindowedKStream(_Aggregates[StreamT_co]):
    """Records grouped by key and window."""


class KGroupedStream(_Aggregates[StreamT_co]):
    """Records grouped by key."""

    def __init__(self, grouping: Grouping, stream: StreamMaker[StreamT_co]) -> None:
        super().__init__(grouping, stream, None)

    def windowed_by(self, windows: Windows) -> TimeWindowedKStream[StreamT_co]:
        """Return the same records grouped by window, too (``tumbling``, ``hopping``)."""
        return TimeWindowedKStream(self._grouping, self._stream, windows)


def store_of(
    wanted: Materialized,
    node: str,
    serdes: tuple[Serde | None, Serde | None],
    windows: Windows | None = None,
) -> StoreSpec:
    """Return the store of ``node`` as ``wanted`` describes it, checked.

    :raises TopologyError: if a serde is missing, or the retention is shorter than the windows.
    """
    assert wanted.name is not None
    hint = "Materialized(key=..., value=...)"
    key = needed(serdes[0], node, "key", hint, read=True)
    value = needed(serdes[1], node, "value", hint, read=True)
    if wanted.retention_ms is not None:
        least_ms = 0 if windows is None else windows.size_ms + windows.grace_ms
        if windows is None:
            raise TopologyError(f"store {wanted.name!r}: retention_ms is for windows only")
        if wanted.retention_ms < least_ms:
            raise TopologyError(
                f"store {wanted.name!r}: retention_ms is {wanted.retention_ms}; it must be at "
                f"least size_ms + grace_ms ({least_ms})"
            )
    return StoreSpec(
        name=wanted.name,
        key=key,
        value=value,
        windows=windows,
        retention_ms=wanted.retention_ms,
        logged=wanted.logged,
        persistent=wanted.persistent,
        cached=wanted.cached,
        changelog_settings=dict(wanted.changelog_settings),
    )
