"""Key-value stores: bounds of memory, and what is durable when."""

import pytest

from streamcore.model import NO_TIME_MS, Position
from streamcore.serde.base import serde_of
from streamcore.state.build import build_store
from streamcore.state.kv import KeyValueStore
from streamcore.state.memory import MemoryEngine
from streamcore.topology.nodes import StoreSpec

BYTES = serde_of("bytes", bytes, bytes)
SPEC = StoreSpec(name="table", key=BYTES, value=BYTES)


def open_store(engine: MemoryEngine, cache_bytes: int = 1 << 20) -> KeyValueStore:
    store = build_store(SPEC, engine, cache_bytes)
    assert isinstance(store, KeyValueStore)
    return store


def test_the_engine_sees_a_value_only_when_it_is_committed() -> None:
    engine = MemoryEngine()
    store = open_store(engine)
    store.put(b"a", b"1", 5)
    assert store.get(b"a") == (b"1", 5)
    assert engine.get(b"a") is None
    changes = store.cut()
    assert (changes.keys, changes.values, changes.stamps_ms) == ([b"a"], [b"1"], [5])
    assert engine.get(b"a") is None
    assert store.get(b"a") == (b"1", 5)
    store.committed(Position(1, "id"))
    assert engine.get(b"a") == bytes([0, 0, 0, 0, 0, 0, 0, 5]) + b"1"
    assert store.position == Position(1, "id")


def test_a_commit_that_failed_keeps_its_rows_for_the_next_one() -> None:
    engine = MemoryEngine()
    store = open_store(engine)
    store.put_many([b"a", b"b"], [b"1", b"1"], [1, 1])
    store.cut()
    store.put_many([b"b", b"c"], [None, b"2"], [2, 2])
    again = store.cut()
    assert (again.keys, again.values) == ([b"b", b"c"], [None, b"2"])
    store.committed(Position(4, "id"))
    assert [key for key, _ in engine.range(b"", None)] == [b"a", b"c"]
    assert store.dirty_bytes == 0


def test_a_store_with_nothing_to_say_writes_nothing() -> None:
    engine = MemoryEngine()
    store = open_store(engine)
    assert len(store.cut()) == 0
    store.committed(None)
    assert engine.position() is None


@pytest.mark.parametrize("cache_bytes", [0, 50_000])
def test_the_read_cache_is_bounded_and_forgets_nothing(cache_bytes: int) -> None:
    store = open_store(MemoryEngine(), cache_bytes)
    keys = [b"%d" % number for number in range(2_000)]
    for key in keys:
        store.put(key, key, 1)
    assert store.cached_bytes <= cache_bytes
    assert store.get_many(keys) == [(key, 1) for key in keys], "uncommitted, and out of the cache"
    store.cut()
    assert [store.get(key) for key in keys] == [(key, 1) for key in keys]
    store.committed(None)
    assert [store.get(key) for key in keys] == [(key, 1) for key in keys]
    assert store.get_many([b"missing"] * 3) == [None] * 3
    assert store.cached_bytes <= cache_bytes


def test_a_limited_cache_gives_back_at_once_forgets_nothing_and_grows_again() -> None:
    store = open_store(MemoryEngine(), 1 << 20)
    keys = [b"%d" % number for number in range(1_500)]
    for key in keys:
        store.put(key, key, 1)
    before = store.cached_bytes
    assert before > 100_000
    store.limit_cache(1 / 16)
    assert store.cached_bytes <= 1 << 16
    for _ in range(2):
        for key in keys:
            assert store.get(key) == (key, 1)
            assert store.cached_bytes < 70_000  # a row over its half is noticed with the next
        store.cut()
        store.committed(None)
    store.limit_cache(1)
    assert store.get_many(keys) == [(key, 1) for key in keys]
    assert store.cached_bytes >= before


def test_dirty_bytes_grow_with_new_keys_and_not_with_new_values() -> None:
    store = open_store(MemoryEngine())
    keys = [b"%04d" % number for number in range(1_000)]
    store.put_many(keys, [bytes(100)] * 1_000, [1] * 1_000)
    first = store.dirty_bytes
    assert 104_000 < first < 1_000_000
    for _ in range(10):
        store.put_many(keys, [bytes(100)] * 1_000, [1] * 1_000)
    assert store.dirty_bytes == first


def test_restore_takes_the_newest_row_of_a_key_and_its_position() -> None:
    engine = MemoryEngine()
    store = open_store(engine)
    rows = [b"a", b"b", b"a", b"b"], [b"1", b"1", b"2", None], [1, 1, 2, 2]
    assert store.restore(*rows, Position(8, "id"), NO_TIME_MS) == 4
    assert list(store.range()) == [(b"a", b"2", 2)]
    assert store.restore([], [], [], Position(9, "id"), NO_TIME_MS) == 0
    assert store.position == Position(9, "id")


def test_what_was_read_before_a_restore_is_read_anew_after_it() -> None:
    store = open_store(MemoryEngine())
    store.restore([b"a"], [b"1"], [1], Position(1, "id"), NO_TIME_MS)
    assert store.get_many([b"a", b"b"]) == [(b"1", 1), None]
    store.restore([b"a", b"b"], [b"2", b"3"], [2, 3], Position(3, "id"), NO_TIME_MS)
    assert store.get_many([b"a", b"b"]) == [(b"2", 2), (b"3", 3)]


def test_restore_of_a_store_in_use_is_a_bug() -> None:
    store = open_store(MemoryEngine())
    store.put(b"a", b"1", 1)
    with pytest.raises(AssertionError, match="in use"):
        store.restore([], [], [], Position(9, "id"), NO_TIME_MS)
