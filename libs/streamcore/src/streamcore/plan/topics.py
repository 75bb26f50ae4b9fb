"""Topics and groups that applications need together, each once. A plan, not an action."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from streamcore.plan.services import Service
from streamcore.runtime import internal_topics, outer_topics
from streamcore.topology.graph import Partitions, fitting_counts, partition_counts

DAY_MS: Final = 86_400_000

Kind = Literal["outer", "repartition", "changelog", "dead-letter"]
"""``outer``: the application only reads or writes it, somebody must create it."""


@dataclass(frozen=True, slots=True)
class PlannedTopic:
    """A topic: its bare name, its name on the broker, and what it must be like.

    ``settings`` are Kafka's own words, for a cluster where each setting may be chosen.
    ``compaction`` and ``retention_ms`` are for a plan that knows these two and deletes compacted
    topics by time as well; None leaves the time to the plan. Writers and readers are applications.
    """

    name: str
    wire: str
    partitions: int
    kind: Kind
    settings: Mapping[str, str]
    compaction: bool = False
    retention_ms: int | None = DAY_MS
    writers: tuple[str, ...] = ()
    readers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PlannedGroup:
    """A consumer group: its bare name, its name on the broker, and whose it is."""

    name: str
    wire: str
    application: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What the applications need on a cluster.

    ``partitions``: of each application by its name. ``warnings``: what will be forgotten where a
    plan deletes by time.
    """

    topics: tuple[PlannedTopic, ...]
    groups: tuple[PlannedGroup, ...]
    partitions: Mapping[str, Partitions]
    warnings: tuple[str, ...] = ()

    def topic(self, wire: str) -> PlannedTopic:
        """Return a topic by its name on the broker."""
        return next(topic for topic in self.topics if topic.wire == wire)


def make_plan(
    services: Sequence[Service],
    *,
    existing: Mapping[str, int] | None = None,
    partitions: int = outer_topics.PARTITIONS,
) -> Plan:
    """Return topics and groups of the services together, outer topics first.

    ``existing``: partitions of topics that are there, by their names on the broker; they are kept.
    ``partitions``: of the outer topics that nothing else decides.

    :raises TopologyError: if partition counts that are there do not fit the topologies.
    """
    counts = dict(existing or {})
    by_service: dict[str, Partitions] = {}
    for service in services:
        wire = {topic: service.names.topic(topic) for topic in _outer_of(service)}
        known = {bare: counts[name] for bare, name in wire.items() if name in counts}
        # What it writes is as wide as what it reads: so a worker that misses the topic has it, too.
        widest = max((known.get(bare, 0) for bare in service.topology.source_topics), default=0)
        chosen = fitting_counts(service.topology, known, widest or partitions)
        counts |= {wire[bare]: count for bare, count in chosen.items()}
        if service.dead_letters is not None:
            counts.setdefault(service.names.topic(service.dead_letters), widest or partitions)
        by_service[service.name] = partition_counts(service.topology, chosen)
    topics: dict[str, PlannedTopic] = {}
    for topic in (
        *(found for service in services for found in _outer(service, counts)),
        *(found for service in services for found in _dead_letters(service, counts)),
        *(found for s in services for found in _internal(s, by_service[s.name])),
    ):
        topics[topic.wire] = _merged(topics.get(topic.wire), topic)
    groups = (
        PlannedGroup(service.bare_names.group, service.names.group, service.name)
        for service in services
    )
    return Plan(
        tuple(topics.values()),
        tuple({group.wire: group for group in groups}.values()),
        by_service,
        tuple(warning for service in services for warning in _warnings(service)),
    )


def _outer_of(service: Service) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*service.topology.source_topics, *service.topology.sink_topics)))


def _outer(service: Service, counts: Mapping[str, int]) -> Iterator[PlannedTopic]:
    topology = service.topology
    for topic in _outer_of(service):
        wire = service.names.topic(topic)
        keep_ms = outer_topics.outer_keep_ms(topology, topic)
        yield PlannedTopic(
            service.bare(wire),
            wire,
            counts[wire],
            "outer",
            outer_topics.outer_settings(keep_ms),
            keep_ms is None,
            keep_ms,
            (service.name,) if topic in topology.sink_topics else (),
            (service.name,) if topic in topology.source_topics else (),
        )


def _dead_letters(service: Service, counts: Mapping[str, int]) -> Iterator[PlannedTopic]:
    if service.dead_letters is None:
        return
    wire = service.names.topic(service.dead_letters)
    keep_ms = outer_topics.DEAD_LETTERS_KEEP_MS
    settings = outer_topics.outer_settings(keep_ms)
    yield PlannedTopic(
        service.bare(wire),
        wire,
        counts[wire],
        "dead-letter",
        settings,
        retention_ms=keep_ms,
        writers=(service.name,),
    )


def _internal(service: Service, counts: Partitions) -> Iterator[PlannedTopic]:
    topology, names, own = service.topology, service.names, (service.name,)
    keeps_ms = {
        names.internal(store.changelog): internal_topics.changelog_keep_ms(store)
        for sub in topology.sub_topologies
        for store in sub.changelogged
    }
    for spec in internal_topics.plan(topology, names, counts):
        compacted = "compact" in spec.settings["cleanup.policy"]
        yield PlannedTopic(
            service.bare(spec.name),
            spec.name,
            spec.partitions,
            "changelog" if spec.name in keeps_ms else "repartition",
            spec.settings,
            compacted,
            keeps_ms.get(spec.name, internal_topics.REPARTITION_KEEP_MS),
            own,
            # A changelog is read where a store is restored, which is not part of the day's work.
            own if spec.name not in keeps_ms or service.config.num_standby_replicas else (),
        )


def _merged(known: PlannedTopic | None, topic: PlannedTopic) -> PlannedTopic:
    """Return one topic for both: as long as either needs it, and compacted if either says so."""
    if known is None:
        return topic
    longer = topic if (topic.retention_ms or 0) > (known.retention_ms or 0) else known
    stricter = known if known.compaction else topic if topic.compaction else longer
    return replace(
        stricter,
        writers=tuple(dict.fromkeys((*known.writers, *topic.writers))),
        readers=tuple(dict.fromkeys((*known.readers, *topic.readers))),
    )


def _warnings(service: Service) -> Iterator[str]:
    for sub in service.topology.sub_topologies:
        for store in sub.changelogged:
            if internal_topics.changelog_keep_ms(store) is None:
                yield (
                    f"store {store.name} of {service.name} has no windows: where compacted topics "
                    "are deleted by time too, keys that are not written within the retention time "
                    "are forgotten"
                )
        for table, topic in sub.table_sources.items():
            yield (
                f"table {table} of {service.name} is read from {topic}: where compacted topics are "
                "deleted by time too, keys that are not written within the retention time are "
                "forgotten"
            )
