"""KTable: the newest value per key, or per key and window; a value of None deletes."""

from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from streamcore.errors import TopologyError
from streamcore.serde.base import Serde
from streamcore.serde.windowed import windowed_serde
from streamcore.topology.draft import Draft
from streamcore.topology.nodes import RowOp, Stateless, StoreSpec, Suppress
from streamcore.topology.windows import Windows

StreamT_co = TypeVar("StreamT_co", covariant=True)


class StreamMaker(Protocol[StreamT_co]):
    """The class KStream. Given as a value, since streams know tables and not the reverse."""

    def __call__(
        self, draft: Draft, node: str, key: Serde | None, value: Serde | None
    ) -> StreamT_co: ...


class KTable(Generic[StreamT_co]):
    """A table; its operators describe further nodes and return what they lead to."""

    def __init__(
        self,
        draft: Draft,
        node: str,
        serdes: tuple[Serde | None, Serde | None],
        stream: StreamMaker[StreamT_co],
        windows: Windows | None = None,
    ) -> None:
        self._draft, self._node, self._stream, self._windows = draft, node, stream, windows
        self._key, self._value = serdes

    def to_stream(self, name: str | None = None) -> StreamT_co:
        """Return the table's updates as a stream; a deletion is a null value."""
        node = self._row_op("KTABLE-TOSTREAM-", RowOp.PASS, None, name)
        return self._stream(self._draft, node, self._key, self._value)

    def filter(
        self, keep: Callable[[Any, Any], bool], name: str | None = None
    ) -> "KTable[StreamT_co]":
        """Return the rows for which ``keep(key, value)`` holds; the others become deletions."""
        node = self._row_op("KTABLE-FILTER-", RowOp.TABLE_FILTER, keep, name)
        return self._table(node, self._value)

    def filter_not(
        self, leave: Callable[[Any, Any], bool], name: str | None = None
    ) -> "KTable[StreamT_co]":
        """Return the rows for which ``leave(key, value)`` does not hold."""
        node = self._row_op("KTABLE-FILTER-", RowOp.TABLE_FILTER_NOT, leave, name)
        return self._table(node, self._value)

    def map_values(
        self, change: Callable[[Any], Any], name: str | None = None
    ) -> "KTable[StreamT_co]":
        """Return the table with ``change(value)`` for each value; the value serde is lost."""
        node = self._row_op("KTABLE-MAPVALUES-", RowOp.TABLE_MAP_VALUES, change, name)
        return self._table(node, None)

    def suppress(self, name: str | None = None) -> "KTable[StreamT_co]":
        """Return the final result of each window, once the watermark has closed it.

        :raises TopologyError: if the table has no windows (or is final already).
        """
        if self._windows is None:
            raise TopologyError(
                f"suppress() after node {self._node!r}: only a windowed table has final results, "
                "and only once"
            )
        node = self._draft.name("KTABLE-SUPPRESS-", name)
        if name is None:
            self._draft.store_name("KTABLE-SUPPRESS-")  # Java's buffer; we need none
        self._draft.add(Suppress(name=node, parents=(self._node,)))
        return KTable(self._draft, node, (self._key, self._value), self._stream)

    def _row_op(
        self, prefix: str, op: RowOp, function: Callable[..., Any] | None, name: str | None
    ) -> str:
        node = self._draft.name(prefix, name)
        return self._draft.add(
            Stateless(name=node, parents=(self._node,), op=op, function=function)
        )

    def _table(self, node: str, value: Serde | None) -> "KTable[StreamT_co]":
        return KTable(self._draft, node, (self._key, value), self._stream, self._windows)


def table_of(
    draft: Draft, node: str, store: StoreSpec, stream: StreamMaker[StreamT_co]
) -> KTable[StreamT_co]:
    """Return the table that ``node`` keeps in ``store``."""
    key = store.key
    if store.windows is not None:
        key = windowed_serde(store.key, store.windows.size_ms)
    return KTable(draft, node, (key, store.value), stream, store.windows)
