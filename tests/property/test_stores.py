"""Stores against a dict, whatever happens in between: cuts, commits, crashes, restores, expiry."""

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from streamcore.adapters.leveldb import LevelDbEngine
from streamcore.model import NO_TIME_MS, Position
from streamcore.serde.base import Serde, serde_of
from streamcore.state.build import build_store
from streamcore.state.changes import Changes
from streamcore.state.engine import Engine
from streamcore.state.kv import KeyValueStore
from streamcore.state.memory import MemoryEngine
from streamcore.state.window import WindowStore
from streamcore.topology.nodes import StoreSpec
from streamcore.topology.windows import tumbling

BYTES: Serde = serde_of("bytes", bytes, bytes)
KV = StoreSpec(name="kv", key=BYTES, value=BYTES)
WINDOWED = StoreSpec(
    name="windowed", key=BYTES, value=BYTES, windows=tumbling(size_ms=10), retention_ms=1_000
)
TOPIC_ID = "id"

keys = st.sampled_from([b"", b"a", b"ab", b"a\x00", b"a" + bytes(8), b"a" + bytes(16), b"\xff"])
values = st.one_of(st.none(), st.binary(max_size=9))
stamps = st.integers(0, 99)
starts = st.integers(0, 3).map(lambda number: number * 10)
cache_sizes = st.sampled_from([0, 500, 1_500, 1 << 20])
batch_sizes = st.integers(1, 5)

LogRow = tuple[bytes, bytes | None, int]
Cell = tuple[bytes, int]


def columns(rows: list[LogRow]) -> tuple[list[bytes], list[bytes | None], list[int]]:
    return [row[0] for row in rows], [row[1] for row in rows], [row[2] for row in rows]


class StoreHistory(RuleBasedStateMachine):
    """What both kinds share: a changelog that outlives everything, and an engine that may not."""

    opened: list[Engine]
    open_engine: Callable[[Path], Engine]

    def __init__(self) -> None:
        super().__init__()
        self.log: list[LogRow] = []  # the changelog as the broker holds it
        self.proven = 0  # rows of it that no abort takes back
        self.folder = Path(tempfile.mkdtemp())
        self.generation = 0
        self.engine = self.open_engine(self.folder / "0")
        self.cache_bytes = 0
        self.begin()

    @initialize(cache_bytes=cache_sizes)
    def choose_cache(self, cache_bytes: int) -> None:
        self.cache_bytes = cache_bytes
        self.begin()

    def begin(self) -> None:
        """Build a store over the engine; set the model to what it must hold now."""
        raise NotImplementedError

    def apply(self, size: int, watermark_ms: int = NO_TIME_MS) -> None:
        """Restore from the engine's position to the end of the changelog."""
        position = self.store.position
        at = 0 if position is None else position.offset
        while at < len(self.log):
            rows = self.log[at : at + size]
            at += len(rows)
            self.store.restore(*columns(rows), Position(at, TOPIC_ID), watermark_ms)
        self.proven = at
        assert at == 0 or self.store.position == Position(at, TOPIC_ID)

    store: KeyValueStore | WindowStore

    def teardown(self) -> None:
        self.engine.close()
        shutil.rmtree(self.folder)

    @rule()
    def cut(self) -> None:
        changes = self.store.cut()
        self.check_cut(changes)
        self.log += zip(changes.keys, changes.values, changes.stamps_ms, strict=True)
        assert len(self.store.cut()) == 0

    def check_cut(self, changes: Changes) -> None:
        live = changes.keys[changes.expired_rows :]
        assert len(set(live)) == len(live)
        assert changes.values[: changes.expired_rows] == [None] * changes.expired_rows

    @rule(known=st.booleans())
    def cut_and_commit(self, known: bool) -> None:
        """A whole commit; sometimes the end of the changelog is not known."""
        self.cut()
        before = self.store.position
        position = Position(len(self.log), TOPIC_ID) if known else None
        self.store.committed(position)
        self.proven = len(self.log)
        assert self.store.position == (position or before)
        assert self.store.dirty_bytes == 0

    @rule(cache_bytes=cache_sizes, size=batch_sizes)
    def crash(self, cache_bytes: int, size: int) -> None:
        """Memory is lost, the disk stays, and what was sent counts (at least once)."""
        self.cache_bytes = cache_bytes
        self.begin()
        self.apply(size)

    @rule(cache_bytes=cache_sizes, size=batch_sizes)
    def crash_and_abort(self, cache_bytes: int, size: int) -> None:
        """Memory is lost, and what was sent behind the last commit was never there."""
        del self.log[self.proven :]
        self.cache_bytes = cache_bytes
        self.begin()
        self.apply(size)

    @rule(size=batch_sizes)
    def lose_the_disk(self, size: int) -> None:
        self.engine.close()
        self.generation += 1
        self.engine = self.open_engine(self.folder / str(self.generation))
        self.begin()
        self.apply(size)


class KeyValueHistory(StoreHistory):
    def begin(self) -> None:
        store = build_store(KV, self.engine, self.cache_bytes)
        assert isinstance(store, KeyValueStore)
        self.store: KeyValueStore = store
        self.model: dict[bytes, Cell] = {}
        for key, value, stamp_ms in self.log:
            self.note(key, value, stamp_ms)

    def note(self, key: bytes, value: bytes | None, stamp_ms: int) -> None:
        if value is None:
            self.model.pop(key, None)
        else:
            self.model[key] = (value, stamp_ms)

    @rule(rows=st.lists(st.tuples(keys, values, stamps), min_size=1, max_size=6))
    def put(self, rows: list[LogRow]) -> None:
        for row in rows:
            self.note(*row)
        if len(rows) == 1:
            self.store.put(*rows[0])
        else:
            self.store.put_many(*columns(rows))

    @rule(wanted=st.lists(keys, max_size=6))
    def get(self, wanted: list[bytes]) -> None:
        assert self.store.get_many(wanted) == [self.model.get(key) for key in wanted]

    @rule(start=st.none() | keys, stop=st.none() | keys)
    def read_range(self, start: bytes | None, stop: bytes | None) -> None:
        expected = [
            (key, *cell)
            for key, cell in sorted(self.model.items())
            if (start is None or start <= key) and (stop is None or key < stop)
        ]
        assert list(self.store.range(start, stop)) == expected

    @rule(row=st.tuples(keys, values, stamps))
    def put_while_reading(self, row: LogRow) -> None:
        before = [(key, *cell) for key, cell in sorted(self.model.items())]
        reading = self.store.range()
        self.put([row])
        assert list(reading) == before

    @invariant()
    def everything_reads_as_the_model(self) -> None:
        assert {key: (value, at) for key, value, at in self.store.range()} == self.model


class WindowHistory(StoreHistory):
    def begin(self) -> None:
        store = build_store(WINDOWED, self.engine, self.cache_bytes)
        assert isinstance(store, WindowStore)
        self.store: WindowStore = store
        self.model: dict[tuple[int, bytes], Cell] = {}
        for key, value, stamp_ms in self.log:
            assert key[-4:] == bytes(4)
            self.note(int.from_bytes(key[-12:-4], "big"), key[:-12], value, stamp_ms)

    def note(self, start_ms: int, key: bytes, value: bytes | None, stamp_ms: int) -> None:
        if value is None:
            self.model.pop((start_ms, key), None)
        else:
            self.model[start_ms, key] = (value, stamp_ms)

    def check_cut(self, changes: Changes) -> None:
        super().check_cut(changes)
        named = [
            key + start_ms.to_bytes(8, "big") + bytes(4)
            for start_ms, plain in changes.windows
            for key in plain
        ]
        assert changes.keys[changes.expired_rows :] == named

    @rule(start_ms=starts, rows=st.lists(st.tuples(keys, values, stamps), min_size=1, max_size=6))
    def put(self, start_ms: int, rows: list[LogRow]) -> None:
        for row in rows:
            self.note(start_ms, *row)
        if len(rows) == 1:
            key, value, stamp_ms = rows[0]
            self.store.put(key, start_ms, value, stamp_ms)
        else:
            self.store.put_many(start_ms, *columns(rows))

    @rule(start_ms=starts, wanted=st.lists(keys, max_size=6))
    def fetch(self, start_ms: int, wanted: list[bytes]) -> None:
        expected = [self.model.get((start_ms, key)) for key in wanted]
        assert self.store.fetch_many(start_ms, wanted) == expected

    @rule(key=keys, from_ms=starts, to_ms=starts)
    def fetch_range(self, key: bytes, from_ms: int, to_ms: int) -> None:
        expected = [
            (start_ms, *cell)
            for (start_ms, other), cell in sorted(self.model.items())
            if other == key and from_ms <= start_ms <= to_ms
        ]
        assert list(self.store.fetch_range(key, from_ms, to_ms)) == expected

    @rule(before_ms=st.integers(1, 41))
    def expire(self, before_ms: int) -> None:
        gone = [cell for cell in self.model if cell[0] < before_ms]
        assert self.store.expire(before_ms) == len(gone)
        for cell in gone:
            del self.model[cell]
        assert all(start_ms >= before_ms for start_ms in self.store.starts())

    @precondition(lambda self: self.log)
    @rule(closed=st.integers(0, 3).map(lambda number: number * 10), size=batch_sizes)
    def restore_without_what_is_closed(self, closed: int, size: int) -> None:
        """As after a restart on an empty disk; windows that start up to ``closed`` are over."""
        self.lose_memory_and_disk()
        self.apply(
            size, watermark_ms=closed + WINDOWED.retention_ms if WINDOWED.retention_ms else 0
        )
        self.model = {cell: found for cell, found in self.model.items() if cell[0] > closed}
        # What the engine skipped must not come back from the changelog with a later crash.
        self.log = [row for row in self.log if int.from_bytes(row[0][-12:-4], "big") > closed]
        if self.store.position is not None:
            self.store.committed(Position(len(self.log), TOPIC_ID))
        self.proven = len(self.log)

    def lose_memory_and_disk(self) -> None:
        self.engine.close()
        self.generation += 1
        self.engine = self.open_engine(self.folder / str(self.generation))
        self.begin()

    @invariant()
    def everything_reads_as_the_model(self) -> None:
        found = {
            (start_ms, key): (value, stamp_ms)
            for start_ms in self.store.starts()
            for key, value, stamp_ms in self.store.scan(start_ms)
        }
        assert found == self.model
        assert self.store.starts() == sorted(set(self.store.starts()))

    @invariant()
    def every_key_is_found_alone(self) -> None:
        for start_ms in range(0, 50, 10):
            for key in (b"a", b"ab"):
                assert self.store.fetch(key, start_ms) == self.model.get((start_ms, key))

    @invariant()
    def a_window_is_scanned_in_the_order_of_its_keys(self) -> None:
        for start_ms in self.store.starts():
            scanned = [key for key, _, _ in self.store.scan(start_ms)]
            assert scanned == sorted(scanned)


def open_memory(_: Path) -> Engine:
    return MemoryEngine()


ENGINES: dict[str, Callable[[Path], Engine]] = {"memory": open_memory, "leveldb": LevelDbEngine}


@pytest.mark.parametrize("kind", ENGINES)
@pytest.mark.parametrize("history", [KeyValueHistory, WindowHistory])
def test_a_store_is_a_dict_whatever_happens(history: type[StoreHistory], kind: str) -> None:
    class History(history):  # type: ignore[valid-type, misc]
        open_engine = staticmethod(ENGINES[kind])

    examples = 400 if kind == "memory" else 40
    run_state_machine_as_test(
        History,
        settings=settings(
            max_examples=examples,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
