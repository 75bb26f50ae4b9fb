"""Difference: a plan beside what a cluster has. Facts only; what is bad about them doctor says."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from streamcore.cluster import Answer, ClusterFacts, TopicFacts
from streamcore.errors import TopologyError
from streamcore.plan.lines import Target, group_line, heroku_topic, topic_line
from streamcore.plan.services import Service
from streamcore.plan.topics import Plan, PlannedTopic, make_plan

_HOUR_MS: Final = 3_600_000

What = Literal["missing", "other", "unknown", "extra"]
"""``unknown``: the broker does not tell this client. ``extra``: nobody needs it."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One point in which the cluster is not as planned; the command creates what is missing.

    ``undecided``: nobody knows whether it is missing, as opposed to settings that are not shown.
    """

    what: What
    name: str
    detail: str
    command: str | None = None
    undecided: bool = False


def fitting_plan(services: Sequence[Service], facts: ClusterFacts, partitions: int) -> Plan:
    """Return a plan that keeps the outer topics of the cluster as they are, where they fit."""
    there = {name: topic.partitions for name, topic in facts.topics.items()}
    try:
        return make_plan(services, existing=there, partitions=partitions)
    except TopologyError:  # then their counts are differences, too
        return make_plan(services, partitions=partitions)


def differences(
    services: Sequence[Service], plan: Plan, facts: ClusterFacts, target: Target
) -> tuple[Difference, ...]:
    """Return all points in which the cluster is not as planned, topics first."""
    return (
        *(found for topic in plan.topics for found in _of_topic(topic, facts, target)),
        *_of_groups(plan, facts.groups, target),
        *_extra(services, plan, facts),
    )


def _of_topic(topic: PlannedTopic, facts: ClusterFacts, target: Target) -> Iterator[Difference]:
    found = facts.topics.get(topic.wire)
    if topic.wire in facts.hidden:
        said = "the broker refuses to speak of this topic"
        yield Difference("unknown", topic.name, said, undecided=True)
    elif found is None:
        yield Difference(
            "missing", topic.name, f"{topic.partitions} partitions", topic_line(topic, target)
        )
    else:
        if found.partitions != topic.partitions:
            yield Difference(
                "other", topic.name, f"{found.partitions} partitions, planned {topic.partitions}"
            )
        yield from _of_settings(topic, found, target)


def _of_settings(topic: PlannedTopic, found: TopicFacts, target: Target) -> Iterator[Difference]:
    settings = found.settings
    if settings is None:
        if topic.kind in {"changelog", "repartition"}:
            yield Difference(
                "unknown", topic.name, "cleanup policy and retention may not be asked for"
            )
        return
    if target.form == "kafka":
        for key, value in topic.settings.items():
            there = settings.get(key)
            if there is not None and there != value and not _longer(key, there, value):
                yield Difference("other", topic.name, f"{key}={there}, planned {value}")
        return
    policy = settings.get("cleanup.policy", "")
    if policy and ("compact" in policy) is not topic.compaction:
        planned = "with" if topic.compaction else "without"
        yield Difference("other", topic.name, f"cleanup.policy={policy}, planned {planned} compact")
    wanted_ms = heroku_topic(topic, target.plan).retention_ms
    kept = settings.get("retention.ms", "-1")
    if "delete" in policy and wanted_ms is not None and -1 < int(kept) < wanted_ms:
        detail = f"kept {int(kept) / _HOUR_MS:.3g} h, planned {wanted_ms / _HOUR_MS:.3g} h"
        yield Difference("other", topic.name, detail)


def _longer(key: str, there: str, planned: str) -> bool:
    """Return whether it is kept longer than planned, which is no difference that matters."""
    return (
        key == "retention.ms" and planned != "-1" and (there == "-1" or int(there) > int(planned))
    )


def _of_groups(plan: Plan, found: Mapping[str, Answer], target: Target) -> Iterator[Difference]:
    for group in plan.groups:
        answer = found.get(group.wire)
        if answer is None or answer.allowed is None:
            said = "" if answer is None or not answer.said else f": {answer.said}"
            detail = f"nobody says whether the group is granted{said}"
            yield Difference("unknown", group.name, detail, undecided=True)
        elif not answer.allowed:
            yield Difference(
                "missing", group.name, "the group is not granted", group_line(group, target)
            )


def _extra(services: Sequence[Service], plan: Plan, facts: ClusterFacts) -> Iterator[Difference]:
    """Yield internal topics of these applications that their topologies do not have (any more)."""
    planned = {topic.wire for topic in plan.topics}
    for service in services:
        for name in sorted(facts.topics.keys() - planned):
            own = name.startswith(f"{service.names.group}-")
            if own and name.endswith(("-changelog", "-repartition")):
                yield Difference(
                    "extra",
                    service.bare(name),
                    f"{facts.topics[name].partitions} partitions; {service.name} does not use it",
                )
