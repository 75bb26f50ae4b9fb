"""What Heroku's plans grant and limit, as far as the stand-in enforces it.

The figures are written down here apart from those of the engine: what checks must not share the
faults of what is checked.
"""

from dataclasses import dataclass

from devstack.errors import StackError

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


@dataclass(frozen=True, slots=True)
class Plan:
    """A plan of the Kafka add-on; a shared one has prefixes, groups by name, and quotas.

    Partitions count once for each of three replicas, though there is one here.
    """

    name: str
    shared: bool
    max_replicas: int
    default_partitions: int
    max_retention_ms: int
    min_retention_ms: int
    produce_bytes_per_s: int | None = None
    consume_bytes_per_s: int | None = None
    max_topics: int | None = None


def _basic(size: int, max_replicas: int, kilobytes_in: int) -> Plan:
    return Plan(
        f"basic-{size}",
        shared=True,
        max_replicas=max_replicas,
        default_partitions=8,
        min_retention_ms=DAY_MS,
        max_retention_ms=7 * DAY_MS,
        produce_bytes_per_s=kilobytes_in * 1024,
        consume_bytes_per_s=4 * kilobytes_in * 1024,
        max_topics=40,
    )


def _dedicated(name: str, max_replicas: int, max_weeks: int) -> Plan:
    return Plan(
        name,
        shared=False,
        max_replicas=max_replicas,
        default_partitions=32,
        min_retention_ms=6 * HOUR_MS,
        max_retention_ms=max_weeks * 7 * DAY_MS,
    )


PLANS = {
    plan.name: plan
    for plan in (
        _basic(0, max_replicas=240, kilobytes_in=64),
        _basic(1, max_replicas=480, kilobytes_in=512),
        _basic(2, max_replicas=960, kilobytes_in=4096),
        _dedicated("standard-0", max_replicas=12_000, max_weeks=2),
        _dedicated("extended-0", max_replicas=32_000, max_weeks=6),
    )
}


def plan_named(name: str) -> Plan:
    """Return the plan; raise StackError for one that there is not."""
    if name not in PLANS:
        raise StackError(f"there is no plan {name!r}; there are {', '.join(PLANS)}")
    return PLANS[name]
