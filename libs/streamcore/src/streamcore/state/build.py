"""StoreSpec + engine = store."""

from streamcore.state.engine import Engine
from streamcore.state.kv import KeyValueStore
from streamcore.state.window import WindowStore
from streamcore.topology.nodes import StoreSpec

Store = KeyValueStore | WindowStore


def build_store(spec: StoreSpec, engine: Engine, cache_bytes: int) -> Store:
    """Return the store that ``spec`` describes, over what the engine holds already.

    A store with windows, or with a retention, is a window store. ``cache_bytes`` bounds what is
    kept in memory for reading; changes that wait for a commit come on top (``dirty_bytes``).
    """
    if spec.windows is None and spec.retention_ms is None:
        return KeyValueStore(spec, engine, cache_bytes)
    return WindowStore(spec, engine, cache_bytes)
