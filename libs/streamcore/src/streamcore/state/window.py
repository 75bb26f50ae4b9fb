"""Window store: values of keys in windows, over an engine, forgotten a whole window at a time.

The three places of a value (overlay, pending, engine) are those of ``state.kv``. Two things make it
fast: a set of the windows that exist, so that a window nobody wrote to costs one look-up, and the
knowledge which windows were begun here and never left memory, so that a key missing there is
missing everywhere.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from operator import add

from streamcore.errors import TopicError
from streamcore.model import Position
from streamcore.state.cache import UNKNOWN, RowSize
from streamcore.state.changes import Changes
from streamcore.state.engine import Engine
from streamcore.state.keys import (
    CHANGELOG_TAIL,
    Change,
    Entry,
    changelog_keys,
    decode_entry,
    encode_changes,
    encode_values,
    pack_ms,
    unpack_ms,
    window_key,
)
from streamcore.topology.nodes import StoreSpec

COMPACT_AFTER_ROWS = 50_000
"""Deleted rows after which the engine gives their room back; fewer are not worth the work."""

_Rows = dict[bytes, Change]
_Local = tuple[bytes, bytes | None]


class WindowStore:
    """Bytes by (start of the window, key). Called by one thread. No start is negative."""

    def __init__(self, spec: StoreSpec, engine: Engine, cache_bytes: int) -> None:
        self.spec = spec
        self.retention_ms = _retention_ms(spec)
        self.cache_hits = 0
        self.cache_misses = 0
        self._engine = engine
        self._size = RowSize()
        self._cache_bytes = self._cache_bytes_max = cache_bytes
        self._cached_rows = 0
        self._views: dict[int, dict[bytes, Entry | None]] = {}  # the one used last is last
        self._complete: set[int] = set()  # windows of which the view knows every key
        self._overlay: dict[int, _Rows] = {}
        self._pending: dict[int, _Rows] = {}
        self._expired: dict[int, list[bytes]] = {}  # forgotten since the last cut
        self._gone: dict[int, list[bytes]] = {}  # forgotten, cut, not yet deleted in the engine
        self._deleted_rows = 0
        self._deleted_to_ms = 0
        self._starts = set(_stored_starts(engine))
        self._order: list[int] | None = None  # the same, sorted when somebody asked

    # --- reads -------------------------------------------------------------------------------

    def fetch(self, key: bytes, start_ms: int) -> Entry | None:
        """Return value and stamp of ``key`` in the window that starts at ``start_ms``, or None."""
        return self.fetch_many(start_ms, (key,))[0]

    def fetch_many(self, start_ms: int, keys: Sequence[bytes]) -> list[Entry | None]:
        """Return what ``fetch`` says of each key in one window, in order."""
        view = self._views.get(start_ms)
        if view is None:
            if start_ms not in self._starts:
                return [None] * len(keys)
            view = self._views[start_ms] = {}
        elif start_ms in self._complete:
            self.cache_hits += len(keys)
            return list(map(view.get, keys))
        look = view.get
        found = [look(key, UNKNOWN) for key in keys]
        unknown = [row for row, entry in enumerate(found) if entry is UNKNOWN]
        self.cache_hits += len(keys) - len(unknown)
        if unknown:
            self.cache_misses += len(unknown)
            before = len(view)
            for row in unknown:
                key = keys[row]
                found[row] = view[key] = self._load(start_ms, key)
            self._grown(len(view) - before)
        return found

    def _load(self, start_ms: int, key: bytes) -> Entry | None:
        """Find a key that the view of its window does not know."""
        change = self._overlay.get(start_ms, {}).get(key)
        if change is None and start_ms not in self._expired:
            change = self._pending.get(start_ms, {}).get(key)
        if change is not None:
            value, stamp_ms = change
            return None if value is None else (value, stamp_ms)
        if start_ms in self._expired or start_ms in self._gone:
            return None  # what the engine still holds belongs to a window that was forgotten
        raw = self._engine.get(window_key(start_ms, key))
        return None if raw is None else decode_entry(raw)

    def fetch_range(self, key: bytes, from_ms: int, to_ms: int) -> Iterator[tuple[int, bytes, int]]:
        """Yield (start_ms, value, stamp_ms) of one key, oldest window first.

        ``from_ms`` and ``to_ms`` bound the start of the window, both included.
        """
        found = [
            (start_ms, self.fetch(key, start_ms))
            for start_ms in self.starts()
            if from_ms <= start_ms <= to_ms
        ]
        return iter([(start_ms, *entry) for start_ms, entry in found if entry is not None])

    def scan(self, start_ms: int) -> Iterator[tuple[bytes, bytes, int]]:
        """Yield (key, value, stamp_ms) of one window in the order of the keys."""
        rows = self._window(start_ms)
        return iter([(key, *rows[key]) for key in sorted(rows)])

    def _window(self, start_ms: int) -> dict[bytes, Entry]:
        """Return all live rows of one window, in no order."""
        if start_ms not in self._starts:
            return {}
        if start_ms in self._complete:
            view = self._views[start_ms]
            return {key: entry for key, entry in view.items() if entry is not None}
        rows: dict[bytes, Entry] = {}
        forgotten = start_ms in self._expired
        if not forgotten and start_ms not in self._gone:
            stored = self._engine.range(pack_ms(start_ms), pack_ms(start_ms + 1))
            rows = {key[8:]: decode_entry(raw) for key, raw in stored}
        for layer in (() if forgotten else (self._pending,), (self._overlay,)):
            for changes in layer:
                for key, (value, stamp_ms) in changes.get(start_ms, {}).items():
                    if value is None:
                        rows.pop(key, None)
                    else:
                        rows[key] = (value, stamp_ms)
        return rows

    def starts(self) -> list[int]:
        """Return the starts of all windows that may hold something, oldest first."""
        if self._order is None:
            self._order = sorted(self._starts)
        return list(self._order)

    # --- writes ------------------------------------------------------------------------------

    def put(self, key: bytes, start_ms: int, value: bytes | None, stamp_ms: int) -> None:
        """Set the value of ``key`` in one window; None deletes it."""
        self.put_many(start_ms, (key,), (value,), (stamp_ms,))

    def put_many(
        self,
        start_ms: int,
        keys: Sequence[bytes],
        values: Sequence[bytes | None],
        stamps_ms: Sequence[int],
    ) -> None:
        """Put each row into one window, in order: of several for one key the last one counts."""
        if start_ms not in self._starts:
            self._starts.add(start_ms)
            self._order = None
            self._complete.add(start_ms)
        view = self._views.pop(start_ms, None)
        if view is None:
            view = {}
        self._views[start_ms] = view
        overlay = self._overlay.get(start_ms)
        if overlay is None:
            overlay = self._overlay[start_ms] = {}
        changes = list(zip(values, stamps_ms, strict=True))
        overlay.update(zip(keys, changes, strict=True))
        before = len(view)
        if None in values:
            seen = [None if value is None else (value, stamp) for value, stamp in changes]
            view.update(zip(keys, seen, strict=True))
        else:
            view.update(zip(keys, changes, strict=True))  # type: ignore[arg-type] # no None in it
        self._size.note(keys, values)
        self._grown(len(view) - before)

    def _grown(self, rows: int) -> None:
        """Count rows that came into the views; over the limit the windows used least go."""
        self._cached_rows += rows
        row_bytes = self._size.row_bytes
        if self._cached_rows * row_bytes <= self._cache_bytes:
            return
        target_rows = self._cache_bytes // 2 // row_bytes
        while self._cached_rows > target_rows:
            self._drop_view(next(iter(self._views)))

    def limit_cache(self, part: float) -> None:
        """Keep no more for reading than this part of what the store was made with."""
        self._cache_bytes = int(self._cache_bytes_max * part)
        self._grown(0)

    def _drop_view(self, start_ms: int) -> None:
        self._cached_rows -= len(self._views.pop(start_ms, ()))
        self._complete.discard(start_ms)

    def expire(self, before_start_ms: int) -> int:
        """Forget all windows that start before ``before_start_ms``; return how many rows that were.

        They are gone for readers at once; the next cut names each row as a tombstone, and the
        engine deletes them with the commit that follows it.
        """
        rows = 0
        for start_ms in self.starts():
            if start_ms >= before_start_ms:
                break
            live = list(self._window(start_ms))
            # A row deleted since the last cut still needs its tombstone in the changelog.
            deleted = [
                k for k, (value, _) in self._overlay.get(start_ms, {}).items() if value is None
            ]
            self._expired.setdefault(start_ms, []).extend(live + deleted)
            self._overlay.pop(start_ms, None)
            self._drop_view(start_ms)
            self._starts.discard(start_ms)
            self._order = None
            rows += len(live)
        return rows

    # --- commit ------------------------------------------------------------------------------

    def cut(self) -> Changes:
        """Return what changed since the last cut; it stays readable and waits for ``committed``."""
        changes = Changes()
        for start_ms, keys in self._expired.items():
            changes.keys += changelog_keys(start_ms, keys)
            changes.stamps_ms += repeat(start_ms, len(keys))
            gone = self._gone.setdefault(start_ms, [])
            gone += keys
            gone += self._pending.pop(start_ms, ())  # deletes of before among them
        changes.expired_rows = len(changes.keys)
        changes.values += repeat(None, changes.expired_rows)
        for start_ms in sorted(self._overlay):
            rows = self._overlay[start_ms]
            values, stamps_ms = zip(*rows.values(), strict=True) if rows else ((), ())
            changes.keys += changelog_keys(start_ms, rows)
            changes.values += values
            changes.stamps_ms += stamps_ms
            changes.windows.append((start_ms, list(rows)))
            pending = self._pending.setdefault(start_ms, rows)
            if pending is not rows:
                pending.update(rows)
        self._overlay, self._expired = {}, {}
        return changes

    def committed(self, position: Position | None) -> None:
        """Write all that was cut, and the position behind it in the changelog, in one batch.

        ``position`` None: nothing of it went to a changelog, or its end is not known; the old
        position stays, and a crash replays more than it must.
        """
        if not self._pending and not self._gone and position is None:
            return
        self._engine.write(self._local_changes(), position)
        if self._gone:
            self._deleted_rows += sum(map(len, self._gone.values()))
            self._deleted_to_ms = max(self._deleted_to_ms, *self._gone)
        self._pending, self._gone = {}, {}
        if self._deleted_rows >= COMPACT_AFTER_ROWS:
            self._engine.compact(b"", pack_ms(self._deleted_to_ms + 1))
            self._deleted_rows = 0

    def _local_changes(self) -> Iterator[_Local]:
        """Yield what the engine must do: deletes first, a window may have begun again since."""
        for start_ms, keys in self._gone.items():
            prefix = pack_ms(start_ms)
            yield from zip((prefix + key for key in keys), repeat(None))
        for start_ms, rows in self._pending.items():
            local = map(add, repeat(pack_ms(start_ms)), rows)
            yield from zip(local, encode_changes(rows.values()), strict=True)

    def restore(
        self,
        keys: Sequence[bytes],
        values: Sequence[bytes | None],
        stamps_ms: Sequence[int],
        position: Position,
        watermark_ms: int,
    ) -> int:
        """Apply changelog rows straight to the engine, with the position behind them.

        Rows of windows that the watermark has closed for good are skipped, but not deletions of
        what is here already. Returns the number of rows applied.
        """
        assert not self._overlay, "restore of a store that is in use"
        assert not self._pending, "restore of a store that is in use"
        assert not self._gone, "restore of a store that is in use"
        if keys and min(map(len, keys)) < CHANGELOG_TAIL:
            raise TopicError(
                f"changelog {self.spec.changelog} in front of offset {position.offset} holds keys "
                f"that are no windowed keys: something else wrote into it; remove them or the topic"
            )
        self._forget_views()
        starts = [key[-12:-4] for key in keys]
        windows = set(starts)
        local = map(add, starts, [key[:-12] for key in keys])
        rows: Iterable[_Local] = zip(local, encode_values(values, stamps_ms), strict=True)
        applied = len(keys)
        closed_ms = watermark_ms - self.retention_ms
        if closed_ms >= 0 and windows and min(windows) <= pack_ms(closed_ms):
            rows = self._without_closed(rows, pack_ms(closed_ms))
            applied = len(rows)
            windows = {key[:8] for key, _ in rows}
        self._engine.write(dict(rows).items(), position)
        self._order = None
        self._starts.update(map(unpack_ms, windows))
        return applied

    def _without_closed(self, rows: Iterable[_Local], closed: bytes) -> list[_Local]:
        """Drop rows of windows that start at ``closed`` or before, but keep deletions of what is
        here.
        """
        here = self._starts
        return [
            (key, value)
            for key, value in rows
            if key[:8] > closed or (value is None and unpack_ms(key) in here)
        ]

    def _forget_views(self) -> None:
        if self._views:
            self._views, self._complete, self._cached_rows = {}, set(), 0

    @property
    def position(self) -> Position | None:
        """How far the engine has applied the changelog."""
        return self._engine.position()

    @property
    def dirty_bytes(self) -> int:
        """About how much memory is held until the next commit."""
        rows = sum(map(len, self._overlay.values())) + sum(map(len, self._pending.values()))
        rows += sum(map(len, self._expired.values())) + sum(map(len, self._gone.values()))
        return rows * self._size.row_bytes

    @property
    def cached_bytes(self) -> int:
        """About how much memory is held for reading; the limit bounds it."""
        return self._cached_rows * self._size.row_bytes

    def close(self) -> None:
        """Drop all that was not committed. The engine stays open: it belongs to who opened it."""
        self._overlay, self._pending, self._expired, self._gone = {}, {}, {}, {}
        self._forget_views()
        self._starts, self._order = set(), None


def _retention_ms(spec: StoreSpec) -> int:
    if spec.retention_ms is not None:
        return spec.retention_ms
    assert spec.windows is not None, f"store {spec.name} has neither windows nor a retention"
    return spec.windows.size_ms + spec.windows.grace_ms


def _stored_starts(engine: Engine) -> Iterator[int]:
    """Yield the starts of the windows in the engine: one seek a window."""
    from_key = b""
    while True:
        first = next(iter(engine.range(from_key, None)), None)
        if first is None:
            return
        start_ms = unpack_ms(first[0])
        yield start_ms
        from_key = pack_ms(start_ms + 1)
