"""Stateless steps: map, filter, flat-map, branch. Each is a closure over the step behind it."""

from collections.abc import Callable, Sequence
from itertools import compress
from typing import Any

from streamcore.model import Rows
from streamcore.operators.base import NULL_KEY, NULL_VALUE, Drops, Step
from streamcore.topology.nodes import RowOp


def stateless_step(
    op: RowOp, function: Callable[..., Any] | None, then: Step, drops: Drops
) -> Step:
    """Return the step of a stateless node."""
    if op is RowOp.PASS:
        return then
    if op is RowOp.DROP_NULL_KEYS:
        return _drop_null_keys(then, drops)
    if op is RowOp.DROP_NULL_VALUES:
        return _drop_null_values(then, drops)
    assert function is not None, f"{op} needs a function"
    return _MAKERS[op](function, then)


def _map(function: Callable[[Any, Any], tuple[Any, Any]], then: Step) -> Step:
    def step(rows: Rows) -> None:
        pairs = list(map(function, rows.keys, rows.values))
        keys = [key for key, _ in pairs]
        values = [value for _, value in pairs]
        then(_like(rows, keys, values))

    return step


def _map_values(function: Callable[[Any], Any], then: Step) -> Step:
    def step(rows: Rows) -> None:
        values = list(map(function, rows.values))
        then(_like(rows, rows.keys, values))

    return step


def _select_key(function: Callable[[Any, Any], Any], then: Step) -> Step:
    def step(rows: Rows) -> None:
        keys = list(map(function, rows.keys, rows.values))
        then(_like(rows, keys, rows.values))

    return step


def _peek(function: Callable[[Any, Any], Any], then: Step) -> Step:
    def step(rows: Rows) -> None:
        for key, value in zip(rows.keys, rows.values, strict=True):
            function(key, value)
        then(rows)

    return step


def _filter(function: Callable[[Any, Any], Any], then: Step) -> Step:
    def step(rows: Rows) -> None:
        _pass_kept(rows, list(map(function, rows.keys, rows.values)), then)

    return step


def _filter_not(function: Callable[[Any, Any], Any], then: Step) -> Step:
    return _filter(lambda key, value: not function(key, value), then)


def _flat_map(function: Callable[[Any, Any], Any], then: Step) -> Step:
    def step(rows: Rows) -> None:
        made = [list(pairs) for pairs in map(function, rows.keys, rows.values)]
        flat = [pair for pairs in made for pair in pairs]
        if flat:
            keys = [key for key, _ in flat]
            values = [value for _, value in flat]
            then(_repeated(rows, [len(pairs) for pairs in made], keys, values))

    return step


def _flat_map_values(function: Callable[[Any], Any], then: Step) -> Step:
    def step(rows: Rows) -> None:
        made = [list(values) for values in map(function, rows.values)]
        values = [value for own in made for value in own]
        if values:
            counts = [len(own) for own in made]
            then(_repeated(rows, counts, _repeat(rows.keys, counts), values))

    return step


def _table_filter(function: Callable[[Any, Any], Any], then: Step) -> Step:
    """A row of a table that does not pass becomes a deletion: it may have passed before."""

    def step(rows: Rows) -> None:
        values = [
            value if value is not None and function(key, value) else None
            for key, value in zip(rows.keys, rows.values, strict=True)
        ]
        then(_like(rows, rows.keys, values))

    return step


def _table_filter_not(function: Callable[[Any, Any], Any], then: Step) -> Step:
    return _table_filter(lambda key, value: not function(key, value), then)


def _table_map_values(function: Callable[[Any], Any], then: Step) -> Step:
    return _map_values(lambda value: None if value is None else function(value), then)


def _drop_null_keys(then: Step, drops: Drops) -> Step:
    def step(rows: Rows) -> None:
        if None not in rows.keys:
            then(rows)
            return
        keep = [key is not None for key in rows.keys]
        drops[NULL_KEY] += keep.count(False)
        _pass_kept(rows, keep, then)

    return step


def _drop_null_values(then: Step, drops: Drops) -> Step:
    def step(rows: Rows) -> None:
        if None not in rows.values:
            then(rows)
            return
        keep = [value is not None for value in rows.values]
        drops[NULL_VALUE] += keep.count(False)
        _pass_kept(rows, keep, then)

    return step


def branch_step(predicates: Sequence[Callable[[Any, Any], bool]], outputs: Sequence[Step]) -> Step:
    """Return a step that gives each row to the first branch whose predicate holds.

    One output more than predicates: the last one takes the rows that no predicate wanted.
    """

    def step(rows: Rows) -> None:
        rest = rows
        for predicate, then in zip(predicates, outputs, strict=False):
            if not len(rest):
                return
            wanted = [bool(kept) for kept in map(predicate, rest.keys, rest.values)]
            _pass_kept(rest, wanted, then)
            rest = take(rest, [not kept for kept in wanted])
        if len(outputs) > len(predicates) and len(rest):
            outputs[-1](rest)

    return step


def take(rows: Rows, keep: Sequence[Any]) -> Rows:
    """Return the rows whose entry in ``keep`` is true."""
    stamps_ms = list(compress(rows.stamps_ms, keep))
    in_order = rows.clocks_ms is rows.stamps_ms
    return Rows(
        list(compress(rows.keys, keep)),
        list(compress(rows.values, keep)),
        stamps_ms,
        stamps_ms if in_order else list(compress(rows.clocks_ms, keep)),
        None if rows.headers is None else list(compress(rows.headers, keep)),
        rows.source,
        None if rows.offsets is None else list(compress(rows.offsets, keep)),
    )


def pick(rows: Rows, members: Sequence[int]) -> Rows:
    """Return the rows with these numbers, in that order."""
    stamps_ms = [rows.stamps_ms[row] for row in members]
    in_order = rows.clocks_ms is rows.stamps_ms
    return Rows(
        [rows.keys[row] for row in members],
        [rows.values[row] for row in members],
        stamps_ms,
        stamps_ms if in_order else [rows.clocks_ms[row] for row in members],
        None if rows.headers is None else [rows.headers[row] for row in members],
        rows.source,
        None if rows.offsets is None else [rows.offsets[row] for row in members],
    )


def _like(rows: Rows, keys: list[Any], values: list[Any]) -> Rows:
    """Return rows with other keys and values, row for row."""
    return Rows(
        keys, values, rows.stamps_ms, rows.clocks_ms, rows.headers, rows.source, rows.offsets
    )


def _pass_kept(rows: Rows, keep: Sequence[Any], then: Step) -> None:
    if all(keep):
        then(rows)  # the common case copies nothing
    elif any(keep):
        then(take(rows, keep))


def _repeat(column: Sequence[Any], counts: Sequence[int]) -> list[Any]:
    return [item for item, count in zip(column, counts, strict=True) for _ in range(count)]


def _repeated(rows: Rows, counts: Sequence[int], keys: list[Any], values: list[Any]) -> Rows:
    stamps_ms = _repeat(rows.stamps_ms, counts)
    in_order = rows.clocks_ms is rows.stamps_ms
    return Rows(
        keys,
        values,
        stamps_ms,
        stamps_ms if in_order else _repeat(rows.clocks_ms, counts),
        None if rows.headers is None else _repeat(rows.headers, counts),
        rows.source,
        None if rows.offsets is None else _repeat(rows.offsets, counts),
    )


_MAKERS: dict[RowOp, Callable[[Callable[..., Any], Step], Step]] = {
    RowOp.MAP: _map,
    RowOp.MAP_VALUES: _map_values,
    RowOp.FILTER: _filter,
    RowOp.FILTER_NOT: _filter_not,
    RowOp.TABLE_FILTER: _table_filter,
    RowOp.TABLE_FILTER_NOT: _table_filter_not,
    RowOp.TABLE_MAP_VALUES: _table_map_values,
    RowOp.FLAT_MAP: _flat_map,
    RowOp.FLAT_MAP_VALUES: _flat_map_values,
    RowOp.SELECT_KEY: _select_key,
    RowOp.PEEK: _peek,
}
