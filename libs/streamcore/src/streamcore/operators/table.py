"""Tables: the newest value of each key, by offset order. A null value deletes."""

from streamcore.model import Headers, Rows
from streamcore.operators.base import NULL_KEY, Drops, Step
from streamcore.operators.stateless import pick, take
from streamcore.operators.watermark import Mark
from streamcore.state.kv import KeyValueStore
from streamcore.topology.nodes import TableStore


class Table:
    """Materialises a stream as a table and passes on, per key and commit, its newest value."""

    def __init__(
        self, node: TableStore, store: KeyValueStore, then: Step, drops: Drops, *, each: bool
    ) -> None:
        self._spec = node.store
        self._store = store
        self._then = then
        self._drops = drops
        self._each = each
        self._rows: dict[bytes, tuple[object, object, int, int, Headers]] = {}

    def process(self, rows: Rows) -> None:
        if None in rows.keys:
            keep = [key is not None for key in rows.keys]
            self._drops[NULL_KEY] += keep.count(False)
            rows = take(rows, keep)
        if self._each:
            for row in range(len(rows)):
                self._add(pick(rows, [row]))
                self.flush()
        elif len(rows):
            self._add(rows)

    def _add(self, rows: Rows) -> None:
        keys = self._spec.key.serialize_column(rows.keys)
        headers = rows.headers or [()] * len(rows)
        known = self._rows
        for key, *own, clock_ms in zip(
            keys, rows.keys, rows.values, rows.stamps_ms, headers, rows.clocks_ms, strict=True
        ):
            assert key is not None, "null keys were dropped above"
            before = known.pop(key, None)  # popped, so that the order is that of the last change
            key_object, value, stamp_ms, own_headers = own
            oldest_ms = clock_ms if before is None else min(before[3], clock_ms)
            known[key] = (key_object, value, stamp_ms, oldest_ms, own_headers)

    def flush(self) -> None:
        if not self._rows:
            return
        changed, self._rows = self._rows, {}
        keys, values, stamps_ms, clocks_ms, headers = map(list, zip(*changed.values(), strict=True))
        encoded = self._spec.value.serialize_column(values)
        self._store.put_many(list(changed), encoded, stamps_ms)
        self._then(Rows(keys, values, stamps_ms, clocks_ms, headers if any(headers) else None))

    def advance(self, mark: Mark, now_ms: int) -> Mark:  # noqa: ARG002
        return mark

    def committed(self) -> None:
        return None

    @property
    def live_entries(self) -> int:
        return len(self._rows)
