"""Window stores: keys that begin with other keys, expiry, what memory and disk may hold."""

import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamcore.adapters.leveldb import LevelDbEngine
from streamcore.errors import TopicError
from streamcore.model import NO_TIME_MS, Position
from streamcore.serde.base import serde_of
from streamcore.state.build import build_store
from streamcore.state.changes import Changes
from streamcore.state.engine import Engine
from streamcore.state.keys import pack_ms
from streamcore.state.memory import MemoryEngine
from streamcore.state.window import WindowStore
from streamcore.topology.nodes import StoreSpec
from streamcore.topology.windows import tumbling

BYTES = serde_of("bytes", bytes, bytes)
SIZE_MS = 10_000
SPEC = StoreSpec(name="counts", key=BYTES, value=BYTES, windows=tumbling(size_ms=SIZE_MS))


class CountingEngine(MemoryEngine):
    """Counts the single reads."""

    gets = 0

    def get(self, key: bytes) -> bytes | None:
        self.gets += 1
        return super().get(key)


def open_store(engine: Engine, cache_bytes: int = 1 << 20) -> WindowStore:
    store = build_store(SPEC, engine, cache_bytes)
    assert isinstance(store, WindowStore)
    return store


def commit(store: WindowStore, position: Position | None = None) -> Changes:
    changes = store.cut()
    store.committed(position)
    return changes


@pytest.fixture(params=["memory", "leveldb"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    made: Engine = MemoryEngine() if request.param == "memory" else LevelDbEngine(tmp_path / "e")
    yield made
    made.close()


@pytest.fixture
def another(tmp_path: Path) -> Iterator[Engine]:
    made: Engine = LevelDbEngine(tmp_path / "another")
    yield made
    made.close()


ALIKE = (b"a", b"ab", b"a\x00", b"a" + bytes(8), b"a" + bytes(16))


def all_rows(store: WindowStore) -> dict[tuple[bytes, int], int]:
    return {
        (key, start_ms): value[0]
        for key in ALIKE
        for start_ms, value, _ in store.fetch_range(key, 0, 20_000)
    }


@pytest.mark.parametrize("cache_bytes", [0, 1 << 20])
def test_keys_that_begin_with_other_keys_stay_apart(
    engine: Engine, another: Engine, cache_bytes: int
) -> None:
    store = open_store(engine, cache_bytes)
    expected: dict[tuple[bytes, int], int] = {}
    for count, (key, start_ms) in enumerate(
        [(key, start_ms) for key in ALIKE for start_ms in (0, 10_000)], start=1
    ):
        store.put(key, start_ms, bytes([count]), start_ms + count)
        expected[key, start_ms] = count
    changes = commit(store)
    store = open_store(engine, cache_bytes)
    assert list(store.fetch_range(b"a", 0, 20_000)) == [(0, b"\x01", 1), (10_000, b"\x02", 10_002)]
    assert all_rows(store) == expected

    store.put(b"a", 0, None, 50)  # one key leaves one window
    deleted = commit(store)
    del expected[b"a", 0]
    assert (deleted.keys, deleted.values) == ([b"a" + bytes(12)], [None])
    assert all_rows(open_store(engine, cache_bytes)) == expected

    restored = open_store(another, cache_bytes)
    for part in (changes, deleted):
        restored.restore(part.keys, part.values, part.stamps_ms, Position(1, "id"), NO_TIME_MS)
    assert all_rows(restored) == expected
    assert restored.expire(10_000) == 4
    assert all_rows(restored) == {cell: n for cell, n in expected.items() if cell[1] == 10_000}
    commit(restored)
    assert all_rows(open_store(another)) == {c: n for c, n in expected.items() if c[1] == 10_000}


def test_a_window_nobody_wrote_to_costs_no_read_of_the_engine() -> None:
    engine = CountingEngine()
    store = open_store(engine)
    keys = [b"%d" % number for number in range(1_000)]
    assert store.fetch_many(0, keys) == [None] * 1_000
    store.put_many(0, keys[:500], [b"1"] * 500, [1] * 500)
    assert store.fetch_many(0, keys) == [(b"1", 1)] * 500 + [None] * 500
    commit(store)
    assert store.fetch_many(0, keys) == [(b"1", 1)] * 500 + [None] * 500
    assert engine.gets == 0, "a window that was begun here is known as a whole"
    again = open_store(engine)
    assert again.fetch_many(0, keys) == [(b"1", 1)] * 500 + [None] * 500
    assert engine.gets == 1_000
    assert again.fetch_many(0, keys)[499:501] == [(b"1", 1), None]
    assert engine.gets == 1_000, "what was looked up is remembered, absence too"


@pytest.mark.parametrize("cache_bytes", [0, 100_000])
def test_the_read_cache_is_bounded_and_forgets_nothing(engine: Engine, cache_bytes: int) -> None:
    store = open_store(engine, cache_bytes)
    keys = [b"%d" % number for number in range(500)]
    for start_ms in range(0, 20 * SIZE_MS, SIZE_MS):
        store.put_many(start_ms, keys, [pack_ms(start_ms)] * 500, [start_ms] * 500)
        assert store.cached_bytes <= cache_bytes
        commit(store)
    for start_ms in range(0, 20 * SIZE_MS, SIZE_MS):
        assert store.fetch_many(start_ms, keys) == [(pack_ms(start_ms), start_ms)] * 500
        assert store.cached_bytes <= cache_bytes


def test_a_limited_cache_gives_back_at_once_forgets_nothing_and_grows_again(engine: Engine) -> None:
    store = open_store(engine)
    keys = [b"%d" % number for number in range(500)]
    starts_ms = range(0, 6 * SIZE_MS, SIZE_MS)
    for start_ms in starts_ms:
        store.put_many(start_ms, keys, [pack_ms(start_ms)] * 500, [start_ms] * 500)
    before = store.cached_bytes
    assert before > 500_000
    for part in (1 / 16, 0):
        store.limit_cache(part)
        assert store.cached_bytes <= part * (1 << 20)
        for start_ms in starts_ms:
            assert store.fetch_many(start_ms, keys) == [(pack_ms(start_ms), start_ms)] * 500
            assert store.cached_bytes <= part * (1 << 20)
        commit(store)
    store.limit_cache(1)
    for start_ms in starts_ms:
        assert store.fetch_many(start_ms, keys) == [(pack_ms(start_ms), start_ms)] * 500
    assert store.cached_bytes == before


def test_the_estimate_of_the_cache_is_near_the_truth(engine: Engine) -> None:
    store = open_store(engine, 8 << 20)
    keys = [b"word-%d" % number for number in range(20_000)]
    tracemalloc.start()
    try:
        for row in range(0, 20_000, 1_000):
            part = keys[row : row + 1_000]
            values = [b"%08d" % (row + number) for number in range(1_000)]
            store.put_many(0, part, values, list(range(row + 1_000, row + 2_000)))
        commit(store)
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert store.cached_bytes <= 8 << 20
    if isinstance(engine, LevelDbEngine):  # the other one keeps its rows in the same memory
        assert 0.5 * taken < store.cached_bytes < 2 * taken


def test_a_restore_leaves_out_windows_that_are_closed_for_good(engine: Engine) -> None:
    store = open_store(engine)
    keys = [b"k" + pack_ms(start_ms) + bytes(4) for start_ms in (0, 10_000, 20_000)]
    applied = store.restore(keys, [b"1", None, b"3"], [1, 2, 3], Position(9, "id"), 20_000)
    assert applied == 1, "start + retention <= watermark is over, also for a delete"
    assert store.starts() == [20_000]
    assert store.position == Position(9, "id")


def test_a_restore_deletes_what_is_here_also_in_windows_that_are_closed(engine: Engine) -> None:
    store = open_store(engine)
    here, elsewhere = (b"k" + pack_ms(start_ms) + bytes(4) for start_ms in (0, 10_000))
    store.restore([here], [b"1"], [1], Position(1, "id"), NO_TIME_MS)
    assert store.restore([here, elsewhere], [None] * 2, [2, 2], Position(3, "id"), 20_000) == 1
    assert list(store.scan(0)) == []


def test_a_changelog_of_something_else_is_told(engine: Engine) -> None:
    store = open_store(engine)
    with pytest.raises(TopicError, match="counts-changelog"):
        store.restore([b"short"], [b"1"], [1], Position(9, "id"), NO_TIME_MS)


def test_expired_windows_leave_tombstones_in_the_changelog_and_nothing_downstream() -> None:
    store = open_store(MemoryEngine())
    store.put_many(0, [b"a", b"b"], [b"1", b"2"], [1, 2])
    store.put(b"a", 10_000, b"3", 10_001)
    commit(store)
    store.put(b"a", 10_000, b"4", 10_002)
    assert store.expire(10_000) == 2
    assert store.expire(10_000) == 0
    assert store.fetch(b"a", 0) is None
    changes = store.cut()
    assert changes.keys == [key + pack_ms(0) + bytes(4) for key in (b"a", b"b")] + [
        b"a" + pack_ms(10_000) + bytes(4)
    ]
    assert changes.values == [None, None, b"4"]
    assert changes.expired_rows == 2
    assert changes.windows == [(10_000, [b"a"])]


def test_a_failed_commit_keeps_expired_windows_in_the_engine() -> None:
    engine = MemoryEngine()
    store = open_store(engine)
    store.put(b"a", 0, b"1", 1)
    commit(store, Position(1, "id"))
    store.expire(10_000)
    store.cut()
    # The process ends before the offsets are durable: the window is not forgotten.
    assert open_store(engine).fetch(b"a", 0) == (b"1", 1)
    store.committed(Position(2, "id"))
    assert list(engine.range(b"", None)) == []


def test_a_deleted_row_of_an_earlier_cut_leaves_the_engine_when_its_window_expires() -> None:
    engine = MemoryEngine()
    store = open_store(engine)
    store.put_many(0, [b"a", b"b"], [b"1", b"2"], [1, 2])
    commit(store)
    store.put(b"a", 0, None, 3)
    store.cut()
    store.expire(10_000)
    commit(store)
    assert list(engine.range(b"", None)) == []


@pytest.mark.parametrize("cache_bytes", [0, 1 << 20])
@pytest.mark.parametrize("where", ["pending", "engine"])
def test_a_window_that_begins_again_has_nothing_of_its_past(where: str, cache_bytes: int) -> None:
    engine = MemoryEngine()
    store = open_store(engine, cache_bytes)
    store.put_many(0, [b"old", b"same"], [b"1", b"1"], [1, 1])
    if where == "engine":
        commit(store)
    else:
        store.cut()
    store.expire(10_000)
    store.put(b"same", 0, b"2", 2)
    for _ in range(2):  # before and after the cut
        assert store.fetch_many(0, [b"old", b"same"]) == [None, (b"2", 2)]
        assert list(store.scan(0)) == [(b"same", b"2", 2)]
        store.cut()
    store.committed(None)
    assert list(open_store(engine).scan(0)) == [(b"same", b"2", 2)]


def test_a_row_deleted_since_the_last_cut_keeps_its_tombstone_when_its_window_expires() -> None:
    store = open_store(MemoryEngine())
    store.put(b"a", 0, b"1", 1)
    commit(store)
    store.put(b"a", 0, None, 2)
    store.expire(10_000)
    assert store.cut().keys == [b"a" + bytes(12)]


def test_what_was_read_before_a_restore_is_read_anew_after_it(engine: Engine) -> None:
    store = open_store(engine)
    key = b"a" + bytes(12)
    store.restore([key], [b"1"], [1], Position(1, "id"), NO_TIME_MS)
    assert store.fetch_many(0, [b"a", b"b"]) == [(b"1", 1), None]
    store.restore([key, b"b" + bytes(12)], [b"2", b"3"], [2, 3], Position(3, "id"), NO_TIME_MS)
    assert store.fetch_many(0, [b"a", b"b"]) == [(b"2", 2), (b"3", 3)]


LIVE_WINDOWS = 20
ROWS = 500
WINDOWS = 600


def test_after_200_windows_the_disk_holds_the_live_ones_and_grows_no_more(tmp_path: Path) -> None:
    engine = LevelDbEngine(tmp_path / "store")
    store = open_store(engine)
    keys = [b"word-%d" % number for number in range(ROWS)]
    sizes: list[int] = []
    for number in range(WINDOWS):
        start_ms = number * SIZE_MS
        store.put_many(start_ms, keys, [pack_ms(number) * 50] * ROWS, [start_ms] * ROWS)
        store.expire(start_ms - (LIVE_WINDOWS - 1) * SIZE_MS)
        commit(store, Position(number, "id"))
        sizes.append(engine.size_bytes())
    assert len(list(engine.range(b"", None))) == LIVE_WINDOWS * ROWS
    first, _ = next(engine.range(b"", None))
    assert first[:8] == pack_ms((WINDOWS - LIVE_WINDOWS) * SIZE_MS)
    live_bytes = LIVE_WINDOWS * ROWS * 424
    assert max(sizes[300:]) <= 1.5 * max(sizes[:300]), "the folder still grows"
    assert min(sizes[-150:]) <= 3 * live_bytes, "the room of what expired was not given back"
    engine.close()
