"""A service that counts words, and a cluster on which nothing is wrong; tests spoil one thing."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from streamcore import (
    INT64,
    STR,
    Consumed,
    Grouped,
    Materialized,
    Produced,
    StreamsBuilder,
    Topology,
    tumbling,
    windowed_serde,
)
from streamcore.application import Application
from streamcore.cluster import Answer, BrokerFacts, ClusterFacts, TopicFacts
from streamcore.config import StreamsConfig
from streamcore.doctor.case import Case
from streamcore.plan.lines import target_for
from streamcore.plan.services import Service
from streamcore.settings import ServiceSettings

PREFIX = "mill-1234."
CHANGELOG = "counter-app-counts-changelog"
REPARTITION = "counter-app-counts-repartition"
HOUR_MS = 3_600_000
CERTIFICATE = "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n"
PEMS = {
    "kafka_trusted_cert": CERTIFICATE,
    "kafka_client_cert": CERTIFICATE,
    "kafka_client_cert_key": CERTIFICATE.replace("CERTIFICATE", "PRIVATE KEY"),
}
ALL = frozenset({"READ", "WRITE", "DESCRIBE"})


class Settings(ServiceSettings):
    service: ClassVar[str] = "counter"


def counting(*, windowed: bool = True) -> Topology:
    builder = StreamsBuilder()
    words = builder.stream("words", Consumed(key=STR, value=STR))
    grouped = words.group_by(lambda _key, word: word, Grouped(key=STR, value=STR))
    if windowed:
        windows = tumbling(size_ms=20 * HOUR_MS, grace_ms=6 * HOUR_MS)
        counts = grouped.windowed_by(windows).count(Materialized("counts"))
        counts.to_stream().to("counted", Produced(key=windowed_serde(STR), value=INT64))
    else:
        table = grouped.count(Materialized("counts"))
        table.to_stream().to("counted", Produced(key=STR, value=INT64))
    return builder.build()


def meeting() -> Topology:
    """Two topics whose keys meet in one store, so they must have equally many partitions."""
    builder = StreamsBuilder()
    both = builder.stream(["left", "right"], Consumed(key=STR, value=STR))
    both.group_by_key().count(Materialized("counts"))
    return builder.build()


def splitting() -> Topology:
    """Words go to the partition of their line, so both topics must be equally wide."""
    builder = StreamsBuilder()
    lines = builder.stream("lines", Consumed(key=STR, value=STR))
    lines.flat_map_values(str.split).to("words", Produced(key=STR, value=STR, same_partition=True))
    return builder.build()


def service(
    *, windowed: bool = True, tls: bool = True, topology: Topology | None = None, **config: Any
) -> Service:
    """Return the service; by default on a shared cluster with a prefix, over TLS."""
    defaults = {
        "application_id": "counter-app",
        "prefix": PREFIX,
        "kafka_url": "kafka+ssl://one:9096,kafka+ssl://two:9096" if tls else "kafka://one:9092",
        **(PEMS if tls else {}),
    }
    topology = topology or counting(windowed=windowed)
    application = Application("counter", Settings, lambda _settings: topology)
    made = StreamsConfig(**{**defaults, **config})
    return Service("counter", application, Settings(), made, topology)


def topic(name: str, partitions: int = 4, settings: Mapping[str, str] | None = None) -> TopicFacts:
    return TopicFacts(name, partitions, 3, settings, ALL)


def seen(*topics: TopicFacts) -> dict[str, TopicFacts]:
    return {one.name: one for one in topics}


def healthy(prefix: str = PREFIX) -> ClusterFacts:
    """Return a cluster where everything is there, and nobody may ask for settings."""
    names = ("words", "counted", CHANGELOG, REPARTITION)
    return ClusterFacts(
        brokers=(BrokerFacts("one:9096", "answers"), BrokerFacts("two:9096", "answers")),
        topics=seen(*(topic(f"{prefix}{name}") for name in names)),
        groups={f"{prefix}counter-app": Answer(True)},
        idempotence=Answer(True),
        transactions=Answer(False, "refused"),
    )


def with_topic(facts: ClusterFacts, changed: TopicFacts) -> ClusterFacts:
    return replace(facts, topics={**facts.topics, changed.name: changed})


def without_topic(facts: ClusterFacts, name: str) -> ClusterFacts:
    return replace(facts, topics={n: t for n, t in facts.topics.items() if n != name})


def case(
    facts: ClusterFacts,
    one: Service | None = None,
    *,
    release: bool = False,
    plan: str = "",
    environ: Mapping[str, str] | None = None,
) -> Case:
    """Return the case of one service."""
    one = one or service()
    target = target_for(one.config, environ or {}, plan=plan or None)
    return Case((one,), facts, target, release, plan_known=bool(plan))
