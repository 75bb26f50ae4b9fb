"""Outer topics: what the topics of others should be like. The engine makes none; it tells of them.

Whoever stands still for a day, or starts anew, must still find the records of the windows that are
open. A table's source is its changelog as well, so it must be compacted.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from streamcore.errors import MissingTopic
from streamcore.runtime.internal_topics import DAY_MS, twice_ms
from streamcore.topology.graph import Topology, fitting_counts

_WEEK_MS: Final = 7 * DAY_MS
PARTITIONS: Final = 4
"""Of a missing topic, where no other topic tells."""

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
    return twice_ms(needed_ms)


def outer_keep_ms(topology: Topology, topic: str) -> int | None:
    """Return how long this topic should keep records; None: it is compacted instead."""
    if any(topic in sub.table_sources.values() for sub in topology.sub_topologies):
        return None
    if topic in topology.source_topics:
        return source_keep_ms(topology)
    return DAY_MS if topic in topology.sink_topics else DEAD_LETTERS_KEEP_MS


def outer_settings(keep_ms: int | None) -> Mapping[str, str]:
    """Return Kafka's settings for it, where each may be chosen."""
    if keep_ms is None:
        return {"cleanup.policy": "compact"}
    return {"cleanup.policy": "delete", "retention.ms": str(max(_WEEK_MS, keep_ms))}


def fitting(
    topology: Topology, topics: Iterable[str], counts: Mapping[str, int]
) -> Mapping[str, int]:
    """Return partitions for all these topics; ``counts`` are there and stay as they are.

    What is missing is as wide as the widest source that is there.

    :raises TopologyError: if ``counts`` do not fit each other already.
    """
    widest = max((counts.get(topic, 0) for topic in topology.source_topics), default=0)
    default = widest or PARTITIONS
    return {**dict.fromkeys(topics, default), **fitting_counts(topology, counts, default)}


def missing_topic(topology: Topology, topic: str, name: str, partitions: int) -> MissingTopic:
    """Return a missing topic of others as it should be made, under this bare name."""
    keep_ms = outer_keep_ms(topology, topic)
    return MissingTopic(name, partitions, outer_settings(keep_ms), keep_ms)
