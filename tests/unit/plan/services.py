"""Services made for these tests: no package, no environment."""

from typing import Any

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
from streamcore.config import StreamsConfig
from streamcore.plan.services import Service
from streamcore.settings import ServiceSettings

HOUR_MS = 3_600_000
TEXT = Consumed(key=STR, value=STR)
WRITTEN = Produced(key=STR, value=STR)


class NoSettings(ServiceSettings):
    """Settings of nothing."""

    service = "nothing"


def service(name: str, topology: Topology, **settings: Any) -> Service:
    """Return a service that is called like its application id."""
    config = StreamsConfig(
        **{
            "application_id": name,
            "bootstrap_servers": "localhost:9092",
            **settings,
        }
    )
    application = Application(name, NoSettings, lambda _settings: topology)
    return Service(name, application, NoSettings(), config, topology)


def split(source: str = "lines", target: str = "words") -> Topology:
    """Lines to words, each in the partition of its line."""
    builder = StreamsBuilder()
    (
        builder.stream(source, TEXT)
        .flat_map_values(str.split)
        .to(target, Produced(key=STR, value=STR, same_partition=True))
    )
    return builder.build()


def count(
    source: str = "words",
    target: str = "counts",
    *,
    size_ms: int = 10_000,
    grace_ms: int = 0,
    retention_ms: int | None = None,
) -> Topology:
    """Words to counts in windows."""
    builder = StreamsBuilder()
    counts = (
        builder.stream(source, TEXT)
        .group_by(lambda _key, word: word, Grouped(key=STR, value=STR))
        .windowed_by(tumbling(size_ms=size_ms, grace_ms=grace_ms))
        .count(Materialized("counted", retention_ms=retention_ms))
    )
    counts.to_stream().to(target, Produced(key=windowed_serde(STR), value=INT64))
    return builder.build()


def total(source: str = "words", target: str = "totals") -> Topology:
    """Words to counts for ever."""
    builder = StreamsBuilder()
    counts = (
        builder.stream(source, TEXT)
        .group_by(lambda _key, word: word, Grouped(key=STR, value=STR))
        .count(Materialized("total"))
    )
    counts.to_stream().to(target, Produced(key=STR, value=INT64))
    return builder.build()


def passed_on(source: str, target: str) -> Topology:
    """Records as they are."""
    builder = StreamsBuilder()
    builder.stream(source, TEXT).to(target, WRITTEN)
    return builder.build()
