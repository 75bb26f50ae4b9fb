"""Key-value store: the newest value of each key, over an engine.

A value passes three places. ``put`` lays it into the *overlay*; ``cut`` names it for the changelog
and moves it to *pending*; ``committed`` writes it to the engine, together with the changelog
position that proves it. Reads see all of it at once. A store that is thrown away loses overlay and
pending and nothing else, so the engine is never ahead of what Kafka has committed.
"""

from collections.abc import Iterator, Sequence
from itertools import repeat

from streamcore.model import Position
from streamcore.state.cache import UNKNOWN, RowSize, TwoGenerations
from streamcore.state.changes import Changes
from streamcore.state.engine import Engine
from streamcore.state.keys import Change, Entry, decode_entry, encode_changes, encode_values
from streamcore.topology.nodes import StoreSpec

Row = tuple[bytes, bytes, int]
"""key, value, stamp_ms"""


class KeyValueStore:
    """Bytes by key. Called by one thread; rows come as columns where it counts."""

    def __init__(self, spec: StoreSpec, engine: Engine, cache_bytes: int) -> None:
        self.spec = spec
        self.cache_hits = 0
        self.cache_misses = 0
        self._engine = engine
        self._size = RowSize()
        self._cache = TwoGenerations(cache_bytes, self._size)
        self._overlay: dict[bytes, Change] = {}
        self._pending: dict[bytes, Change] = {}

    # --- reads -------------------------------------------------------------------------------

    def get(self, key: bytes) -> Entry | None:
        """Return the newest value of ``key`` and its stamp, or None."""
        return self.get_many((key,))[0]

    def get_many(self, keys: Sequence[bytes]) -> list[Entry | None]:
        """Return what ``get`` says of each key, in order."""
        look = self._cache.young.get
        found = [look(key, UNKNOWN) for key in keys]
        unknown = [row for row, entry in enumerate(found) if entry is UNKNOWN]
        self.cache_hits += len(keys) - len(unknown)
        if unknown:
            young = self._cache.young
            for row in unknown:
                key = keys[row]
                found[row] = young[key] = self._load(key)
            self._cache.trim()
        return found

    def _load(self, key: bytes) -> Entry | None:
        """Find a key that the young generation does not know."""
        entry = self._cache.old.get(key, UNKNOWN)
        if entry is not UNKNOWN:
            self.cache_hits += 1
            return entry
        change = self._overlay.get(key) or self._pending.get(key)
        if change is not None:
            value, stamp_ms = change
            return None if value is None else (value, stamp_ms)
        self.cache_misses += 1
        raw = self._engine.get(key)
        return None if raw is None else decode_entry(raw)

    def range(self, start: bytes | None = None, stop: bytes | None = None) -> Iterator[Row]:
        """Yield (key, value, stamp) with ``start <= key < stop``; None: no limit on that side.

        Sees the state at the call, so the caller may put while it reads.
        """
        first = start or b""
        changed = {
            key: change
            for layer in (self._pending, self._overlay)
            for key, change in layer.items()
            if first <= key and (stop is None or key < stop)
        }
        return _merge(sorted(changed), changed, self._engine.range(first, stop))

    # --- writes ------------------------------------------------------------------------------

    def put(self, key: bytes, value: bytes | None, stamp_ms: int) -> None:
        """Set the value of ``key``; None deletes it."""
        self.put_many((key,), (value,), (stamp_ms,))

    def put_many(
        self, keys: Sequence[bytes], values: Sequence[bytes | None], stamps_ms: Sequence[int]
    ) -> None:
        """Put each row, in order: of several for one key the last one counts."""
        changes = list(zip(values, stamps_ms, strict=True))
        self._overlay.update(zip(keys, changes, strict=True))
        self._cache.young.update(zip(keys, _seen(changes, values), strict=True))
        self._size.note(keys, values)
        self._cache.trim()

    def limit_cache(self, part: float) -> None:
        """Keep no more for reading than this part of what the store was made with."""
        self._cache.limit(part)

    # --- commit ------------------------------------------------------------------------------

    def cut(self) -> Changes:
        """Return what changed since the last cut; it stays readable and waits for ``committed``."""
        overlay, self._overlay = self._overlay, {}
        values, stamps_ms = zip(*overlay.values(), strict=True) if overlay else ((), ())
        if self._pending:
            self._pending.update(overlay)
        else:
            self._pending = overlay
        return Changes(list(overlay), list(values), list(stamps_ms))

    def committed(self, position: Position | None) -> None:
        """Write all that was cut, and the position behind it in the changelog, in one batch.

        ``position`` None: nothing of it went to a changelog, or its end is not known; the old
        position stays, and a crash replays more than it must.
        """
        pending = self._pending
        if not pending and position is None:
            return
        self._engine.write(zip(pending, encode_changes(pending.values()), strict=True), position)
        self._pending = {}

    def restore(
        self,
        keys: Sequence[bytes],
        values: Sequence[bytes | None],
        stamps_ms: Sequence[int],
        position: Position,
        watermark_ms: int,  # noqa: ARG002 - the same call for all kinds of stores
    ) -> int:
        """Apply changelog rows straight to the engine, with the position behind them."""
        assert not self._overlay, "restore of a store that is in use"
        assert not self._pending, "restore of a store that is in use"
        self._cache.clear()
        newest = dict(zip(keys, encode_values(values, stamps_ms), strict=True))
        self._engine.write(newest.items(), position)
        return len(keys)

    @property
    def position(self) -> Position | None:
        """How far the engine has applied the changelog."""
        return self._engine.position()

    @property
    def dirty_bytes(self) -> int:
        """About how much memory is held until the next commit."""
        return (len(self._overlay) + len(self._pending)) * self._size.row_bytes

    @property
    def cached_bytes(self) -> int:
        """About how much memory is held for reading; the limit bounds it."""
        return (len(self._cache.young) + len(self._cache.old)) * self._size.row_bytes

    def close(self) -> None:
        """Drop all that was not committed. The engine stays open: it belongs to who opened it."""
        self._overlay, self._pending = {}, {}
        self._cache.clear()


def _seen(changes: list[Change], values: Sequence[bytes | None]) -> Sequence[Entry | None]:
    """Return the changes as a reader sees them: a delete is None."""
    if None in values:
        return [None if value is None else (value, stamp_ms) for value, stamp_ms in changes]
    return changes  # type: ignore[return-value]  # no None in it, and no copy on the hot path


def _merge(
    order: list[bytes], changed: dict[bytes, Change], stored: Iterator[tuple[bytes, bytes]]
) -> Iterator[Row]:
    """Yield stored rows and changed ones in key order; changes win, deletes are left out."""
    at = 0
    for key, raw in stored:
        while at < len(order) and order[at] < key:
            yield from _live(order[at], changed)
            at += 1
        if at < len(order) and order[at] == key:
            yield from _live(key, changed)
            at += 1
        else:
            yield key, *decode_entry(raw)
    for key in order[at:]:
        yield from _live(key, changed)


def _live(key: bytes, changed: dict[bytes, Change]) -> Iterator[Row]:
    value, stamp_ms = changed[key]
    return iter(()) if value is None else repeat((key, value, stamp_ms), 1)
