"""Typed views of stores, for users' processors: values in and out, bytes below.

A window store of the state layer knows only start times; a view of a plain one is a mapping with
``get``, ``put``, ``delete`` and ``items``, a view of a windowed one adds the start of the window.
"""

from collections.abc import Callable, Iterator
from typing import Any

from streamcore.state.build import Store
from streamcore.state.kv import KeyValueStore
from streamcore.state.window import WindowStore
from streamcore.topology.nodes import StoreSpec


class KeyValueView:
    """A key-value store as a processor sees it. Writes carry the current record's timestamp."""

    def __init__(self, spec: StoreSpec, store: KeyValueStore, stamp_ms: Callable[[], int]) -> None:
        self._spec = spec
        self._store = store
        self._stamp_ms = stamp_ms

    def get(self, key: Any) -> Any:
        """Return the value, or None."""
        entry = self._store.get(self._spec.key.serialize(key))
        return None if entry is None else self._spec.value.deserialize(entry[0])

    def put(self, key: Any, value: Any) -> None:
        """Set the value; None deletes."""
        data = None if value is None else self._spec.value.serialize(value)
        self._store.put(self._spec.key.serialize(key), data, self._stamp_ms())

    def delete(self, key: Any) -> None:
        self.put(key, None)

    def items(self) -> Iterator[tuple[Any, Any]]:
        """Yield all (key, value) in the byte order of the keys; do not write meanwhile."""
        for key, value, _ in self._store.range(None, None):
            yield self._spec.key.deserialize(key), self._spec.value.deserialize(value)


class WindowView:
    """A window store as a processor sees it: values by key and start of the window, in ms."""

    def __init__(self, spec: StoreSpec, store: WindowStore, stamp_ms: Callable[[], int]) -> None:
        self._spec = spec
        self._store = store
        self._stamp_ms = stamp_ms

    def get(self, key: Any, start_ms: int) -> Any:
        """Return the value, or None."""
        entry = self._store.fetch(self._spec.key.serialize(key), start_ms)
        return None if entry is None else self._spec.value.deserialize(entry[0])

    def put(self, key: Any, start_ms: int, value: Any) -> None:
        """Set the value; None deletes."""
        data = None if value is None else self._spec.value.serialize(value)
        self._store.put(self._spec.key.serialize(key), start_ms, data, self._stamp_ms())

    def fetch(self, key: Any, from_ms: int, to_ms: int) -> Iterator[tuple[int, Any]]:
        """Yield (start_ms, value) of the key's windows that start in [from_ms, to_ms]."""
        for start_ms, value, _ in self._store.fetch_range(
            self._spec.key.serialize(key), from_ms, to_ms
        ):
            yield start_ms, self._spec.value.deserialize(value)


def view(spec: StoreSpec, store: Store, stamp_ms: Callable[[], int]) -> KeyValueView | WindowView:
    """Return the view that fits the store."""
    if isinstance(store, WindowStore):
        return WindowView(spec, store, stamp_ms)
    return KeyValueView(spec, store, stamp_ms)
