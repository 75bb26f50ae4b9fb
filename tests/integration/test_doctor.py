"""The doctor on a plain broker with a database: it changes nothing, and does not wait for long."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from devstack.kafka import Broker
from devstack.pytest_plugin import TEST_SETTINGS, Names
from sink.connection import MIGRATION, Database
from sink.migrate import migrate
from sink.settings import Address, database_url
from streamcore.app import look_at_cluster
from streamcore.config import StreamsConfig

if TYPE_CHECKING:
    from devstack.postgres import Database as Server


def doctor(*words: str, env: Mapping[str, str]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "streamcore", "doctor", *words],
        env={"PATH": os.environ["PATH"], **env}, capture_output=True, text=True, timeout=60,
        check=False,
    )  # fmt: skip


def levels(done: "subprocess.CompletedProcess[str]") -> dict[str, str]:
    return {one["what"]: one["level"] for one in json.loads(done.stdout)["findings"]}


def make(admin: Any, *names: str, partitions: int = 2) -> None:
    for future in admin.create_topics([NewTopic(name, partitions, 1) for name in names]).values():
        future.result(timeout=20)


def shown(broker: Broker) -> dict[str, dict[int, int]]:
    """Return all topics with their partitions, the broker's own left out."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    return {
        name: {number: len(one.replicas) for number, one in topic.partitions.items()}
        for name, topic in admin.list_topics(timeout=20).topics.items()
        if not name.startswith("__")
    }


def test_a_release_on_a_plain_broker_passes_before_the_first_start_and_changes_nothing(
    broker: Broker, database: "Server", names: Names
) -> None:
    name = names("doctor").replace("-", "_")
    with psycopg.connect(database.url_of("postgres"), autocommit=True) as connection:
        connection.execute(f"create database {name}")
    url = database.url_of(name)
    env = {
        "KAFKA_URL": broker.url,
        "DATABASE_URL": url,
        **{f"{one}_APPLICATION_ID": names(one.lower()) for one in ("INGEST", "AGGREGATOR", "SINK")},
        "INGEST_LINES_TOPIC": names("lines"),
        "WORDS_TOPIC": names("words"),
        "COUNTS_TOPIC": names("counts"),
    }
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    before = doctor("--json", "--release", env=env)
    assert before.returncode == 1, before.stdout + before.stderr
    failed = {what for what, level in levels(before).items() if level == "failure"}
    outer = [names(one) for one in ("lines", "words", "counts")]
    assert failed == {"tables", *(f"topic {one}" for one in outer)}
    make(admin, *outer)
    opened = Database(Address(database_url(url), "DATABASE_URL"), MIGRATION)
    migrate(opened)
    opened.close()

    there = shown(broker)
    after = doctor("--release", env=env)
    assert after.returncode == 0, after.stdout + after.stderr
    assert after.stderr == ""
    lines = after.stdout.splitlines()
    assert all(line.startswith("ok ") for line in lines[:-1]), after.stdout
    assert lines[-1] == f"doctor: {len(lines) - 1} ok"
    assert shown(broker) == there


def test_a_broker_that_is_frozen_or_away_is_told_in_time(tmp_path: Path) -> None:
    # One of its own: the shared one must never be stopped.
    with Broker(tmp_path, settings=dict(TEST_SETTINGS)) as own:
        two = StreamsConfig(application_id="app", kafka_url=f"{own.url},kafka://127.0.0.1:1")
        facts = look_at_cluster(two, ["no-such"], ["app"], timeout_s=15)
        assert [one.reach for one in facts.brokers] == ["answers", "nobody"]
        assert facts.idempotence.allowed
        assert facts.transactions.allowed
        assert facts.groups["app"].allowed
        own.pause()
        began_s = time.monotonic()
        frozen = look_at_cluster(
            StreamsConfig(application_id="app", kafka_url=own.url), [], [], timeout_s=3
        )
        assert time.monotonic() - began_s < 5
        assert [one.reach for one in frozen.brokers] == ["silent"]
        assert not frozen.reachable
        own.resume()
