"""count, reduce and aggregate: per key, or per key and window.

Whether a record is late is decided by its own clock, which depends on nothing but its source
partition. Windows close by the watermark, in ``advance`` alone. With ``event_time="operator"`` both
are the highest timestamp that has reached this operator, which is Kafka Streams' rule.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Protocol

from streamcore.model import NO_TIME_MS, Rows
from streamcore.operators.base import LATE, NULL_KEY, NULL_VALUE, WINDOW_CLOSED, Drops, Step
from streamcore.operators.fold import CountFold, Fold, Load, UserFold
from streamcore.operators.stateless import pick, take
from streamcore.operators.watermark import Mark
from streamcore.state.kv import KeyValueStore
from streamcore.state.window import WindowStore
from streamcore.topology.nodes import Aggregate, AggregateKind
from streamcore.topology.windows import Window, Windowed, Windows


class _MakeFold(Protocol):
    def __call__(self, load: Load) -> Fold: ...


def fold_maker(node: Aggregate) -> _MakeFold:
    """Return what makes a fold for this node."""
    decode = node.store.value.deserialize
    if node.kind is AggregateKind.COUNT:
        return lambda load: CountFold(load, decode)
    adder = node.adder
    assert adder is not None, f"{node.name} has no function"
    if node.kind is AggregateKind.REDUCE:
        return lambda load: UserFold(load, decode, _nothing, _reducing(adder))
    initializer = node.initializer
    assert initializer is not None, f"{node.name} has no initializer"
    return lambda load: UserFold(load, decode, initializer, adder)


class TableAggregate:
    """Aggregates per key. A result carries the smallest clock of the records it stands for."""

    def __init__(
        self, node: Aggregate, store: KeyValueStore, then: Step, drops: Drops, *, each: bool
    ) -> None:
        self._node = node
        self._store = store
        self._then = then
        self._drops = drops
        self._each = each
        self._make = fold_maker(node)
        self._fold = self._make(store.get_many)
        self._clocks_ms: dict[bytes, int] = {}

    def process(self, rows: Rows) -> None:
        if None in rows.keys or None in rows.values:
            keep = [
                k is not None and v is not None for k, v in zip(rows.keys, rows.values, strict=True)
            ]
            if no_key := rows.keys.count(None):
                self._drops[NULL_KEY] += no_key
            if no_value := keep.count(False) - no_key:
                self._drops[NULL_VALUE] += no_value
            rows = take(rows, keep)
        if not len(rows):
            return
        keys = self._node.store.key.serialize_column(rows.keys)
        if self._each:
            for row in range(len(rows)):
                self._add([keys[row]], pick(rows, [row]))
                self.flush()
        else:
            self._add(keys, rows)

    def _add(self, keys: list[Any], rows: Rows) -> None:
        self._fold.add(keys, rows.keys, rows.values, rows.stamps_ms, rows.headers)
        clocks_ms = self._clocks_ms
        for key, clock_ms in zip(keys, rows.clocks_ms, strict=True):
            if clocks_ms.get(key, clock_ms) >= clock_ms:
                clocks_ms[key] = clock_ms

    def flush(self) -> None:
        if not len(self._fold):
            return
        keys, values, stamps_ms, headers = self._fold.empty()
        clocks_ms = [self._clocks_ms[key] for key in keys]
        self._fold = self._make(self._store.get_many)
        self._clocks_ms = {}
        spec = self._node.store
        self._store.put_many(keys, spec.value.serialize_column(values), stamps_ms)
        self._then(Rows(spec.key.deserialize_column(keys), values, stamps_ms, clocks_ms, headers))

    def advance(self, mark: Mark, now_ms: int) -> Mark:  # noqa: ARG002
        return mark

    def committed(self) -> None:
        return None

    @property
    def live_entries(self) -> int:
        return len(self._fold)


@dataclass(frozen=True, slots=True)
class Outputs:
    """Where a windowed aggregation's results go: each change, the final result, or both."""

    updates: Step | None
    finals: Step | None


class WindowAggregate:
    """Aggregates per key and window; drops what is late, closes windows, forgets old ones."""

    def __init__(
        self,
        node: Aggregate,
        store: WindowStore,
        outputs: Outputs,
        drops: Drops,
        *,
        by_operator_time: bool,
        each: bool,
    ) -> None:
        windows, retention_ms = node.store.windows, node.store.retention_ms
        assert windows is not None, f"{node.name} has no windows"
        assert retention_ms is not None, f"{node.name} has no retention"
        self._node = node
        self._windows: Windows = windows
        self._store = store
        self._outputs = outputs
        self._drops = drops
        self._by_operator_time = by_operator_time
        self._each = each
        self._make = fold_maker(node)
        self._folds: dict[int, Fold] = {}
        self._retention_ms = retention_ms
        self.observed_ms = NO_TIME_MS
        self.watermark_ms = NO_TIME_MS
        self._committed_ms = NO_TIME_MS

    def restore_time(self, watermark_ms: int) -> None:
        """Start from the watermark of the last commit: what it has closed stays closed."""
        self.watermark_ms = self._committed_ms = watermark_ms
        if self._by_operator_time:
            self.observed_ms = watermark_ms

    def process(self, rows: Rows) -> None:
        if None in rows.keys:
            keep = [key is not None for key in rows.keys]
            self._drops[NULL_KEY] += keep.count(False)
            rows = take(rows, keep)
        if not len(rows):
            return
        clocks_ms = rows.clocks_ms
        if self._by_operator_time:
            clocks_ms = list(accumulate(rows.stamps_ms, max, initial=self.observed_ms))[1:]
            self.observed_ms = clocks_ms[-1]
        if clocks_ms is not rows.clocks_ms:
            rows = Rows(rows.keys, rows.values, rows.stamps_ms, clocks_ms, rows.headers)
        keys = self._node.store.key.serialize_column(rows.keys)
        if self._each:
            for row in range(len(rows)):
                self._add_slot([keys[row]], pick(rows, [row]))
                self.flush()
            return
        advance_ms = self._windows.advance_ms
        if min(rows.stamps_ms) // advance_ms == max(rows.stamps_ms) // advance_ms:
            self._add_slot(keys, rows)
            return
        slots: dict[int, list[int]] = {}
        for row, stamp_ms in enumerate(rows.stamps_ms):
            slots.setdefault(stamp_ms // advance_ms, []).append(row)
        for members in slots.values():
            self._add_slot([keys[row] for row in members], pick(rows, members))

    def _add_slot(self, keys: list[Any], rows: Rows) -> None:
        """Fold rows whose stamps lie within one advance of the windows, in their order."""
        windows = self._windows
        newest_ms, newest_clock_ms = max(rows.stamps_ms), max(rows.clocks_ms)
        for start_ms in range(
            windows.starts(min(rows.stamps_ms)).start, newest_ms + 1, windows.advance_ms
        ):
            end_ms, closes_ms = start_ms + windows.size_ms, windows.closes_ms(start_ms)
            if newest_clock_ms < closes_ms and newest_ms < end_ms:
                self._add_to(start_ms, keys, rows)
                continue
            within = [stamp_ms < end_ms for stamp_ms in rows.stamps_ms]
            in_time = [clock_ms < closes_ms for clock_ms in rows.clocks_ms]
            members = [row for row, inside in enumerate(within) if inside and in_time[row]]
            if late := within.count(True) - len(members):
                self._drops[LATE] += late
            if members:
                self._add_to(start_ms, [keys[row] for row in members], pick(rows, members))

    def _add_to(self, start_ms: int, keys: list[bytes], rows: Rows) -> None:
        if self._is_closed(start_ms):
            self._drops[WINDOW_CLOSED] += len(keys)
            return
        fold = self._folds.get(start_ms)
        if fold is None:
            store = self._store

            def load(wanted: Any) -> Any:
                return store.fetch_many(start_ms, wanted)

            fold = self._folds[start_ms] = self._make(load)
        fold.add(keys, rows.keys, rows.values, rows.stamps_ms, rows.headers)

    def _is_closed(self, start_ms: int) -> bool:
        """Not late, yet the window cannot take it: decided by time, not by presence of a key."""
        if self._outputs.finals is not None:
            return self.watermark_ms >= self._windows.closes_ms(start_ms)
        return self.watermark_ms >= start_ms + self._retention_ms

    def flush(self) -> None:
        folds, self._folds = self._folds, {}
        spec = self._node.store
        for start_ms in sorted(folds):
            keys, values, stamps_ms, headers = folds[start_ms].empty()
            self._store.put_many(start_ms, keys, spec.value.serialize_column(values), stamps_ms)
            if self._outputs.updates is not None:
                windowed = self._windowed(keys, start_ms)
                self._outputs.updates(Rows(windowed, values, stamps_ms, stamps_ms, headers))

    def _windowed(self, keys: list[bytes], start_ms: int) -> list[Windowed]:
        window = Window(start_ms, start_ms + self._windows.size_ms)
        return [Windowed(key, window) for key in self._node.store.key.deserialize_column(keys)]

    def advance(self, mark: Mark, now_ms: int) -> Mark:  # noqa: ARG002
        reached_ms = self.observed_ms if self._by_operator_time else mark.ms
        before_ms, self.watermark_ms = self.watermark_ms, max(self.watermark_ms, reached_ms)
        if self._outputs.finals is not None and self.watermark_ms > before_ms:
            self._emit_finals(before_ms, self._outputs.finals)
        # What was closed by the last commit has been sent and acknowledged: only now forget it.
        self._store.expire(self._committed_ms - self._retention_ms + 1)
        if self._by_operator_time or self.watermark_ms == NO_TIME_MS:
            return mark
        return Mark(self._windows.oldest_open_ms(self.watermark_ms), mark.idle)

    def _emit_finals(self, before_ms: int, then: Step) -> None:
        spec = self._node.store
        for start_ms in self._store.starts():
            if not before_ms < self._windows.closes_ms(start_ms) <= self.watermark_ms:
                continue
            entries = list(self._store.scan(start_ms))
            if entries:
                values = spec.value.deserialize_column([value for _, value, _ in entries])
                stamps_ms = [stamp_ms for _, _, stamp_ms in entries]
                keys = self._windowed([key for key, _, _ in entries], start_ms)
                then(Rows(keys, values, stamps_ms, stamps_ms))

    def committed(self) -> None:
        self._committed_ms = self.watermark_ms

    @property
    def live_entries(self) -> int:
        return sum(len(fold) for fold in self._folds.values())


def _nothing() -> None:
    return None


def _reducing(reducer: Callable[[Any, Any], Any]) -> Callable[[Any, Any, Any], Any]:
    def adder(_key: Any, value: Any, old: Any) -> Any:
        return value if old is None else reducer(old, value)

    return adder
