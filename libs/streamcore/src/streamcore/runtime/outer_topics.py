"""Outer topics: what the topics of others should be like. The engine makes none; it tells of them.

Whoever stands still for a day, or starts anew, must still find the records of the windows that are
open. A table's source is its changelog as well, so it must be compacted.
"""

from collections.abc import Mapping
from typing import Final

from streamcore.topology.graph import Topology

_HOUR_MS: Final = 3_600_000
_DAY_MS: Final = 24 * _HOUR_MS
_WEEK_MS: Final = 7 * _DAY_MS
DEAD_LETTERS_KEEP_MS: Final = _WEEK_MS
"""Somebody has to look at them, and may be on leave."""


def source_keep_ms(topology: Topology) -> int:
    """Return how long sources should keep records: a day, or longer if the windows are."""
    windows = [
        store.windows
        for sub in topology.sub_topologies
        for store in sub.stores
        if store.windows is not None
    ]
    needed_ms = max((one.size_ms + one.grace_ms for one in windows), default=0)
    return max(_DAY_MS, -(-2 * needed_ms // _HOUR_MS) * _HOUR_MS)


def outer_keep_ms(topology: Topology, topic: str) -> int | None:
    """Return how long this topic should keep records; None: it is compacted instead."""
    if any(topic in sub.table_sources.values() for sub in topology.sub_topologies):
        return None
    if topic in topology.source_topics:
        return source_keep_ms(topology)
    return _DAY_MS if topic in topology.sink_topics else DEAD_LETTERS_KEEP_MS


def outer_settings(keep_ms: int | None) -> Mapping[str, str]:
    """Return Kafka's settings for it, where each may be chosen."""
    if keep_ms is None:
        return {"cleanup.policy": "compact"}
    return {"cleanup.policy": "delete", "retention.ms": str(max(_WEEK_MS, keep_ms))}
