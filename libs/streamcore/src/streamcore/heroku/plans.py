"""The plans of the Kafka add-on: what each allows, and whether a list of topics fits into it.

The figures are the platform's published ones of 2024 and 2026. Those in ``unverified`` are not:
they follow from the plan's neighbours or from what its command line sends, on the careful side.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from streamcore.errors import ConfigError
from streamcore.heroku.commands import Topic

_KB: Final = 1024
_GB: Final = 1024**3
_HOUR_MS: Final = 3_600_000
_DAY_MS: Final = 24 * _HOUR_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The limits of one plan; None: no such limit is published.

    A ``shared`` cluster has a prefix, groups that must be granted by name, and quotas; on it a
    compacted topic forgets by time as well. The partition limit is taken to count replicas.
    """

    name: str
    shared: bool
    produce_bytes_per_s: int | None = None
    consume_bytes_per_s: int | None = None
    capacity_bytes: int | None = None
    replicas_max: int
    topics_max: int | None = None
    topic_partitions_max: int
    replication: int = 3
    retention_default_ms: int = _DAY_MS
    retention_min_ms: int
    retention_max_ms: int
    unverified: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Budget:
    """What topics need of a plan, and a line for each limit that they exceed."""

    plan: Plan
    partitions: int
    replicas: int
    problems: tuple[str, ...]

    @property
    def fits(self) -> bool:
        """Whether the plan has room for them."""
        return not self.problems


def budget(topics: Iterable[Topic], plan: Plan, replication: int | None = None) -> Budget:
    """Return how much of the plan the topics take.

    >>> budget([Topic("lines", 4), Topic("words", 4)], PLANS["basic-0"]).replicas
    24
    """
    wanted = list(topics)
    partitions = sum(topic.partitions for topic in wanted)
    replicas = partitions * (plan.replication if replication is None else replication)
    problems = []
    if plan.topics_max is not None and len(wanted) > plan.topics_max:
        problems.append(f"{len(wanted)} topics; {plan.name} has room for {plan.topics_max}")
    if replicas > plan.replicas_max:
        problems.append(
            f"{partitions} partitions are {replicas} replicas; {plan.name} has room for "
            f"{plan.replicas_max}"
        )
    problems += [
        f"{topic.name} has {topic.partitions} partitions; {plan.name} allows "
        f"{plan.topic_partitions_max} per topic"
        for topic in wanted
        if topic.partitions > plan.topic_partitions_max
    ]
    problems += [
        f"{topic.name} is to be kept for {topic.retention_ms // _HOUR_MS} h; {plan.name} keeps "
        f"{plan.retention_max_ms // _HOUR_MS} h at most"
        for topic in wanted
        if topic.retention_ms is not None and topic.retention_ms > plan.retention_max_ms
    ]
    return Budget(plan, partitions, replicas, tuple(problems))


def smallest_plan(*, shared: bool) -> Plan:
    """Return what a plan is taken for that nobody has named."""
    return next(plan for plan in PLANS.values() if plan.shared is shared)


def topic_on(
    plan: Plan, name: str, partitions: int, *, compaction: bool, keep_ms: int | None
) -> Topic:
    """Return a topic as the plan wants it to be told; ``keep_ms`` None: for ever.

    A shared cluster deletes compacted topics by time as well, after a day if nobody says
    otherwise, so they need a time there, and what is for ever gets the longest there is. So does
    what is to be kept for a little longer than that: times are twice what is needed. Elsewhere
    compacted topics are kept until they are overwritten.
    """
    if not plan.shared:
        return Topic(name, partitions, compaction, None if compaction else keep_ms)
    longest_ms = plan.retention_max_ms
    if keep_ms is None or longest_ms < keep_ms <= 2 * longest_ms:
        keep_ms = longest_ms
    return Topic(name, partitions, compaction, keep_ms)


def plan_named(name: str) -> Plan:
    """Return the plan of that name, with or without the add-on's name in front of it.

    >>> plan_named("heroku-kafka:basic-0").replicas_max
    240

    :raises ConfigError: if there is none; the message lists those that there are.
    """
    short = name.removeprefix("heroku-kafka:")
    # Private and shielded clusters have the limits of the others.
    plan = PLANS.get(short.removeprefix("private-").removeprefix("shield-"))
    if plan is None or (plan.shared and plan.name != short):
        raise ConfigError([f"{name} is no plan; there is {', '.join(PLANS)}"])
    return plan


def _basic(number: int, produce_kb: int, consume_kb: int, capacity_gb: int, most: int) -> Plan:
    return Plan(
        name=f"basic-{number}",
        shared=True,
        produce_bytes_per_s=produce_kb * _KB,
        consume_bytes_per_s=consume_kb * _KB,
        capacity_bytes=capacity_gb * _GB,
        replicas_max=most,
        topics_max=40,
        topic_partitions_max=most // 3,
        retention_min_ms=_DAY_MS,
        retention_max_ms=7 * _DAY_MS,
        unverified=frozenset(
            {
                "replicas_max",  # published is a number of partitions
                "topics_max",
                "topic_partitions_max",
                "replication",
                "retention_min_ms",
                "retention_max_ms",
            }
        ),
    )


def _dedicated(family: str, number: int, brokers: int, weeks: int) -> Plan:
    return Plan(
        name=f"{family}-{number}",
        shared=False,
        replicas_max=4_000 * brokers,
        topic_partitions_max=256,
        retention_min_ms=6 * _HOUR_MS,
        retention_max_ms=weeks * 7 * _DAY_MS,
        unverified=frozenset({"replicas_max"}),  # published is a number of partitions
    )


PLANS: Final[Mapping[str, Plan]] = {
    plan.name: plan
    for plan in (
        _basic(0, produce_kb=64, consume_kb=256, capacity_gb=4, most=240),
        _basic(1, produce_kb=512, consume_kb=2_048, capacity_gb=32, most=480),
        _basic(2, produce_kb=4_096, consume_kb=16_384, capacity_gb=64, most=960),
        *(_dedicated("standard", number, brokers=3, weeks=2) for number in range(3)),
        *(_dedicated("extended", number, brokers=8, weeks=6) for number in range(3)),
    )
}
"""By name, the smallest first."""
