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

_HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * _HOUR_MS
REPARTITION_KEEP_MS: Final = DAY_MS
"""How long a plan that deletes by time should keep what is on its way to be counted."""

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


def changelog_keep_ms(store: StoreSpec) -> int | None:
    """Return how long a changelog must keep its records where the broker also deletes by time.

    Twice as long as an entry can be needed, in whole hours and a day at least; None for a store
    that never forgets, which no time is long enough for.
    """
    needed_ms = needed_for_ms(store)
    return None if needed_ms is None else twice_ms(needed_ms)


def twice_ms(needed_ms: int) -> int:
    """Return twice that time, in whole hours and a day at least: so long is kept what is needed."""
    return max(DAY_MS, -(-2 * needed_ms // _HOUR_MS) * _HOUR_MS)


def retention_needed(topology: Topology) -> dict[str, str]:
    """Return in words how long each changelog must keep its records at least."""
    return {
        store.changelog: "for ever" if keep_ms is None else _hours(keep_ms)
        for sub in topology.sub_topologies
        for store in sub.changelogged
        for keep_ms in [changelog_keep_ms(store)]
    }


def needed_for_ms(store: StoreSpec) -> int | None:
    """Return for how long an entry may be needed, in the time of the records; None: for ever."""
    if store.windows is None and store.retention_ms is None:
        return None
    return _open_ms(store) + (store.retention_ms or 0)


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
    topology: Topology, names: Names, found: Mapping[str, Mapping[str, str]]
) -> Iterator[str]:
    """Yield a line for each existing changelog from which the broker also deletes by time.

    No failure: a shared cluster may know no other kind of compacted topic.
    """
    for store in (store for sub in topology.sub_topologies for store in sub.changelogged):
        name = names.internal(store.changelog)
        settings = found.get(name, {})
        if _policies(settings.get("cleanup.policy", "")) != {"compact", "delete"}:
            continue
        kept = settings.get("retention.ms", "")
        kept_ms = int(kept) if kept.isdecimal() else None  # -1: nothing is deleted by time
        if kept_ms is not None:
            yield f"changelog topic {name} has cleanup.policy=compact,delete: " + _forgets(
                store, kept_ms
            )


def _forgets(store: StoreSpec, kept_ms: int) -> str:
    needed_ms, keep_ms = needed_for_ms(store), changelog_keep_ms(store)
    kept = f"retention.ms={kept_ms} ({_hours(kept_ms)})"
    if needed_ms is None or keep_ms is None:
        return (
            f"the store {store.name} has no windows and must keep every key, and the broker "
            f"deletes what was not written again within {kept}; a restore after that lacks it"
        )
    open_ms = _open_ms(store)
    if kept_ms < open_ms:
        return (
            f"{kept} is shorter than window + grace, {open_ms} ms ({_hours(open_ms)}): counts of "
            f"windows that are still open are deleted; set it to {keep_ms} at least"
        )
    if kept_ms < needed_ms:
        return (
            f"{kept} covers window + grace, {open_ms} ms ({_hours(open_ms)}), but with the "
            f"retention of the store it is {needed_ms} ms ({_hours(needed_ms)}): after a restore "
            f"older windows are missing; set it to {keep_ms} at least"
        )
    return (
        f"{kept} covers window + grace and the retention of the store, {needed_ms} ms "
        f"({_hours(needed_ms)}); but the broker deletes by record timestamp, so a replay of older "
        "records empties it; 'compact' alone keeps them"
    )


def _open_ms(store: StoreSpec) -> int:
    return 0 if store.windows is None else store.windows.size_ms + store.windows.grace_ms


def _hours(ms: int) -> str:
    return f"{ms / _HOUR_MS:.2f}".rstrip("0").rstrip(".") + " h"


def _policies(text: str) -> set[str]:
    return {part.strip() for part in text.split(",") if part.strip()}
