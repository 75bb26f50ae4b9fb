"""KAFKA_PREFIX on every name that reaches a broker, exactly once, whoever has put it on already."""

import pytest

from streamcore import STR, Consumed, Grouped, Materialized, Produced, StreamsBuilder, Topology
from streamcore.app import worker_settings
from streamcore.config import StreamsConfig
from streamcore.runtime.ports import Producer, World
from streamcore.runtime.worker import create_worker
from streamcore.serde.builtin import INT64
from streamcore.testing.broker import InMemoryBroker
from streamcore.testing.clock import ManualClock
from streamcore.topology.naming import Names

PREFIX = "mill-1."
NOW_MS = 1_700_000_000_000


def topology(prefix: str) -> Topology:
    builder = StreamsBuilder()
    (
        builder.stream(f"{prefix}words", Consumed(key=STR, value=STR))
        .group_by(lambda _key, word: word, Grouped(key=STR, value=STR))
        .count(Materialized("counts"))
        .to_stream()
        .to(f"{prefix}out", Produced(key=STR, value=INT64))
    )
    return builder.build()


@pytest.mark.parametrize(("prefix", "there_already"), [("", ""), (PREFIX, ""), (PREFIX, PREFIX)])
def test_everything_on_the_wire_carries_it_once(prefix: str, there_already: str) -> None:
    config = StreamsConfig(
        application_id=f"{there_already}app",
        prefix=prefix,
        kafka_url="kafka://h:1",
        processing_guarantee="exactly_once_v2",
        deserialization_error="dead-letter",
        dead_letter_topic=f"{there_already}dead",
    )
    names = Names(config.prefix, config.application_id)
    clock = ManualClock(NOW_MS)
    broker = InMemoryBroker(clock)
    for topic in ("words", "out", "dead"):
        broker.create(f"{prefix}{topic}", 1)
    for value in (b"rye", b"\xff"):
        broker.write(f"{prefix}words", None, value, NOW_MS)

    transactional: set[str] = set()
    world = broker.world(names.group)
    settings = worker_settings(config, names)
    worker = create_worker(
        topology(there_already), names, settings, _noting_ids(world, transactional)
    )
    worker.start(NOW_MS)
    for _ in range(100):
        worker.turn(clock.now_ms())
        clock.advance(200)
    worker.close()

    internal = ["app-counts-changelog", "app-counts-repartition"]
    wanted = sorted(f"{prefix}{topic}" for topic in ["words", "out", "dead", *internal])
    assert sorted(broker.topics) == wanted
    assert [topic for topic in wanted if not broker.read(topic)] == []
    assert list(broker.groups) == [f"{prefix}app"]
    assert len(transactional) == 1
    assert all(name.startswith(f"{prefix}app.") for name in transactional)
    assert all(name.count(PREFIX) <= 1 for name in transactional)


def _noting_ids(world: World, noted: set[str]) -> World:
    def producer(transactional_id: str | None) -> Producer:
        assert transactional_id is not None
        noted.add(transactional_id)
        return world.producer(transactional_id)

    return World(
        process=world.process,
        consumer=world.consumer,
        producer=producer,
        reader=world.reader,
        admin=world.admin,
        state_dir=world.state_dir,
        clock=world.clock,
    )
