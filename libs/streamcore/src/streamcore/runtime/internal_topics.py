"""Internal topics: which must exist with which settings. A plan and a check, not an action.

As in Kafka Streams, with one exception: changelogs of windowed stores are compacted and nothing
else. A broker deletes by record timestamp, so a replay of old records would empty them while their
windows are live; ours are trimmed by the tombstones that the engine writes behind its watermark,
and small segments with a low dirty ratio see to it that the broker really drops what they cover.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from streamcore.runtime.ports import TopicSpec
from streamcore.topology.graph import Partitions, Topology
from streamcore.topology.naming import Names
from streamcore.topology.nodes import StoreSpec

_COMMON: Final = {
    "message.timestamp.type": "CreateTime",
    # Brokers since 4.0 refuse timestamps more than an hour ahead; what to accept is our decision.
    "message.timestamp.after.max.ms": "9223372036854775807",
}
REPARTITION: Final = {
    **_COMMON,
    "cleanup.policy": "delete",
    "retention.ms": "-1",  # deleted behind committed offsets, never by time
    "segment.bytes": "52428800",
}
KEY_VALUE_CHANGELOG: Final = {
    **_COMMON,
    "cleanup.policy": "compact",
    "delete.retention.ms": "86400000",  # for so long a store may be left before it is of no use
}
WINDOWED_CHANGELOG: Final = {
    **KEY_VALUE_CHANGELOG,
    "segment.bytes": "16777216",
    "min.cleanable.dirty.ratio": "0.1",
}


def plan(topology: Topology, names: Names, counts: Partitions) -> tuple[TopicSpec, ...]:
    """Return all repartition and changelog topics of a topology, by their names on the broker."""
    stores = [store for sub in topology.sub_topologies for store in sub.changelogged]
    return (
        *(
            TopicSpec(names.internal(topic), partitions, REPARTITION)
            for topic, partitions in counts.repartitions.items()
        ),
        *(
            TopicSpec(
                names.internal(store.changelog),
                counts.changelogs[store.changelog],
                changelog_settings(store),
            )
            for store in stores
        ),
    )


def changelog_settings(store: StoreSpec) -> dict[str, str]:
    """Return the settings of a store's changelog; the store's own win."""
    windowed = store.windows is not None or store.retention_ms is not None
    return {
        **(WINDOWED_CHANGELOG if windowed else KEY_VALUE_CHANGELOG),
        **store.changelog_settings,
    }


def count_problems(
    wanted: Iterable[TopicSpec], found: Mapping[str, int | None], because: str
) -> Iterator[str]:
    """Yield a line for each existing topic with another partition count than wanted.

    A key would be counted in one partition and kept in another: there is no way to go on.
    ``because`` names what the counts follow from, with its own counts.
    """
    for spec in wanted:
        there = found.get(spec.name)
        if there is not None and there != spec.partitions:
            yield (
                f"topic {spec.name} has {there} partitions and must have {spec.partitions}, "
                f"for {because}; delete it (its state with it) or restore the old counts"
            )


def setting_problems(
    wanted: Iterable[TopicSpec], found: Mapping[str, Mapping[str, str]]
) -> Iterator[str]:
    """Yield a line for each existing topic whose settings would lose or refuse records."""
    for spec in wanted:
        settings = found.get(spec.name)
        if settings is None:
            continue
        policy = _policies(settings.get("cleanup.policy", ""))
        is_repartition = spec.settings["cleanup.policy"] == "delete"
        if is_repartition and policy and policy != {"delete"}:
            yield (
                f"repartition topic {spec.name} has cleanup.policy={','.join(sorted(policy))} and "
                "must have 'delete': a compacted topic refuses and drops records"
            )
        if not is_repartition and policy and "compact" not in policy:
            yield (
                f"changelog topic {spec.name} has cleanup.policy={','.join(sorted(policy))} and "
                "must have 'compact': the broker would delete state that is still needed"
            )
        stamped = settings.get("message.timestamp.type", "CreateTime")
        if stamped != "CreateTime":
            yield (
                f"topic {spec.name} has message.timestamp.type={stamped} and must have "
                "CreateTime: event time would be lost"
            )


def setting_warnings(
    wanted: Iterable[TopicSpec], found: Mapping[str, Mapping[str, str]]
) -> Iterator[str]:
    """Yield a line for each existing changelog that a replay of old records could empty."""
    for spec in wanted:
        policy = _policies(found.get(spec.name, {}).get("cleanup.policy", ""))
        if spec.settings["cleanup.policy"] == "compact" and policy == {"compact", "delete"}:
            yield (
                f"changelog topic {spec.name} has cleanup.policy=compact,delete: the broker "
                "deletes by record timestamp, so a replay of old records empties it; 'compact' "
                "alone keeps them"
            )


def _policies(text: str) -> set[str]:
    return {part.strip() for part in text.split(",") if part.strip()}
