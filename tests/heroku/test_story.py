"""From nothing to right counts, with no right that Heroku does not give."""

import random
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from tests.heroku.conftest import stack_of
from tests.integration.harness import (
    AGGREGATOR,
    CHANGELOG,
    COUNTS,
    INGEST,
    LINES,
    REPARTITION,
    SINK,
    WORDS,
    Record,
    Stack,
    difference,
    line,
    recount,
    wait_until,
)

from devstack.heroku.broker import HerokuBroker
from devstack.heroku.plans import PLANS
from devstack.heroku.sandbox import Sandbox
from devstack.places import ROOT
from devstack.processes import Child
from devstack.pytest_plugin import Names

SERVICES = ("ingest", "aggregator", "sink")
GROUPS = (INGEST, AGGREGATOR, SINK)
ENDS_WITHIN_S = 30
SAID_WITHIN_S = 15
VARIABLES = ("CLIENT_CERT", "CLIENT_CERT_KEY", "TRUSTED_CERT", "URL")
TEXTS = ("the quick brown fox", "Don't count the THE twice", "a a a b", "it's the end: 42")


def recent_lines(partitions: int = 4, each: int = 100) -> list[Record]:
    """Return lines of the last minutes, some out of order: topics keep a day there."""
    chance = random.Random(7)
    begin_ms = int(time.time() * 1000) - 600_000
    return [
        line(
            partition,
            begin_ms + 500 * number - chance.choice((0, 0, 0, 3_000)),
            chance.choice(TEXTS),
        )
        for partition in range(partitions)
        for number in range(each)
    ]


@pytest.fixture
def app(heroku_broker: HerokuBroker, table: str, names: Names, tmp_path: Path) -> Sandbox:
    """An app with Kafka and a database, both empty."""
    name = names.prefix.removesuffix("-")
    folder = tmp_path / "account"
    return Sandbox.make(heroku_broker, folder, name, prefix=f"{name}.", database_url=table)


@pytest.fixture
def dynos(app: Sandbox, tmp_path: Path) -> Iterator[Stack]:
    """Its services, which know nothing but its variables."""
    folder = tmp_path / "dynos"
    folder.mkdir()
    made = stack_of(app, folder, STREAMCORE_COMMIT_INTERVAL_MS="200")
    yield made
    made.close()


def refused(child: Child) -> str:
    """Return what a service has said that has ended because something is missing."""
    assert child.wait(ENDS_WITHIN_S), f"{child.name} goes on:\n{child.tail(60)}"
    said = child.tail(1000)
    assert child.returncode == 1, said
    assert "Traceback" not in said
    return said


def commands_in(said: str) -> list[str]:
    """Return the commands, as somebody would copy them."""
    return re.findall(r"^\s*(heroku kafka:\S+:create .*?)\s*$", said, re.MULTILINE)


def assert_counts_come_out_right(dynos: Stack) -> None:
    lines = recent_lines()
    dynos.produce(LINES, lines[::2])
    children = [dynos.start(service, ".1") for service in SERVICES]
    dynos.produce(LINES, lines[1::2])
    dynos.wait_for_lag_0(*GROUPS, alive=children)
    kept = sorted(lines[::2], key=lambda each: each.partition)
    wanted = recount([*kept, *sorted(lines[1::2], key=lambda each: each.partition)])
    assert len(wanted) > 20
    assert not difference(wanted, dynos.counts_in_database())
    dynos.stop(*children)


def test_what_workers_print_when_nothing_is_there_is_all_that_it_takes(
    app: Sandbox, dynos: Stack
) -> None:
    dynos.migrate()
    said = [refused(child) for child in [dynos.start(service) for service in SERVICES]]
    commands = list(dict.fromkeys(command for text in said for command in commands_in(text)))
    assert not [command for command in commands if app.prefix in command], "bare names only"
    done = app.shell("\n".join(commands))
    assert done.returncode == 0, done.stderr
    assert_counts_come_out_right(dynos)
    assert_one_prefix_each(app)


def test_of_two_clusters_a_worker_names_the_one_that_it_uses(app: Sandbox, dynos: Stack) -> None:
    app.run("addons:create heroku-kafka:basic-0 --as HEROKU_KAFKA_MAUVE")
    dynos.settings |= {**app.env, "INGEST_KAFKA_ATTACHMENT": "HEROKU_KAFKA_MAUVE"}
    commands = commands_in(refused(dynos.start("ingest")))
    done = app.shell("\n".join(commands))
    assert done.returncode == 0, done.stderr
    worker = dynos.start("ingest", "2")
    wait_until(lambda: "task runs" in worker.tail(100), "a task", alive=[worker])
    worker.stop()
    assert app.run("kafka:topics KAFKA") == ["No topics found on this Kafka cluster."]


def assert_one_prefix_each(app: Sandbox) -> None:
    """Fail unless topics and groups of the app are named as its code names them, and no others."""
    admin = AdminClient(dict(app.administrators))
    ours = [name for name in admin.list_topics(timeout=20).topics if app.name in name]
    wanted = (LINES, WORDS, COUNTS, REPARTITION, CHANGELOG)
    assert sorted(ours) == sorted(f"{app.prefix}{name}" for name in wanted)
    listed = admin.list_consumer_groups().result(timeout=20).valid
    groups = [each.group_id for each in listed if app.name in each.group_id]
    assert sorted(groups) == sorted(f"{app.prefix}{name}" for name in GROUPS)


def test_a_changelog_or_a_group_that_is_missing_is_named_and_a_given_prefix_is_not_doubled(
    app: Sandbox, dynos: Stack
) -> None:
    for topic in (WORDS, COUNTS, REPARTITION, "letters"):
        app.run(f"kafka:topics:create {topic} --partitions 2")
    app.run(f"kafka:consumer-groups:create {AGGREGATOR}")
    changelog = (
        f"heroku kafka:topics:create {CHANGELOG} --partitions 2 --retention-time 49h --compaction"
    )
    assert commands_in(refused(dynos.start("aggregator", "1"))) == [changelog]

    app.run(changelog)
    app.run(f"kafka:consumer-groups:destroy {AGGREGATOR} --confirm {app.name}")
    group = f"heroku kafka:consumer-groups:create {AGGREGATOR}"
    assert commands_in(refused(dynos.start("aggregator", "2"))) == [group]

    app.run(group)
    now_ms = int(time.time() * 1000)
    unreadable = Record(0, now_ms, b"\xff", b"word")
    words = [Record(number % 2, now_ms, b"word", b"word") for number in range(10)]
    dynos.produce(WORDS, [*words, unreadable])
    worker = dynos.start(
        "aggregator", "3",
        AGGREGATOR_APPLICATION_ID=f"{app.prefix}{AGGREGATOR}",
        WORDS_TOPIC=f"{app.prefix}{WORDS}",
        STREAMCORE_DESERIALIZATION_ERROR="dead-letter",
        STREAMCORE_DEAD_LETTER_TOPIC="letters",
    )  # fmt: skip
    dynos.wait_for_lag_0(AGGREGATOR, alive=[worker])
    assert sum(dynos.counts_in_topic().values()) == 10
    assert [letter.value for letter in dynos.read("letters")] == [b"\xff"]
    dynos.stop(worker)


def test_transactions_are_refused_in_one_line_that_names_the_id_once(
    app: Sandbox, dynos: Stack
) -> None:
    for topic in (LINES, WORDS):
        app.run(f"kafka:topics:create {topic} --partitions 1")
    app.run(f"kafka:consumer-groups:create {INGEST}")
    began_s = time.monotonic()
    said = refused(dynos.start("ingest", STREAMCORE_PROCESSING_GUARANTEE="exactly_once_v2"))
    assert time.monotonic() - began_s < SAID_WITHIN_S
    (row,) = [row for row in said.splitlines() if "TRANSACTIONAL_ID_AUTHORIZATION_FAILED" in row]
    assert f" {app.prefix}{INGEST}" in row
    assert f"{app.prefix}{app.prefix}" not in row
    assert "at_least_once" in row


def test_on_a_dedicated_cluster_a_waiting_worker_goes_on_once_its_commands_were_run(
    heroku_broker: HerokuBroker, names: Names, tmp_path: Path
) -> None:
    app = Sandbox.make(
        heroku_broker, tmp_path / "account", names.prefix.removesuffix("-"),
        plan=PLANS["standard-0"], attachment="HEROKU_KAFKA_CYAN",
    )  # fmt: skip
    assert sorted(app.env) == [f"HEROKU_KAFKA_CYAN_{name}" for name in VARIABLES]
    folder = tmp_path / "dynos"
    folder.mkdir()
    dynos = stack_of(app, folder)
    # Names of this test's own, since nothing else keeps it apart from others on this cluster.
    dynos.prefix = names.prefix
    dynos.settings |= {
        "KAFKA_PREFIX": "",
        "KAFKA_URL": "",
        "AGGREGATOR_APPLICATION_ID": names(AGGREGATOR),
        "WORDS_TOPIC": names(WORDS),
        "COUNTS_TOPIC": names(COUNTS),
    }
    try:
        worker = dynos.start("aggregator", STREAMCORE_WAIT_FOR_TOPICS="true")
        wait_until(lambda: commands_waited_for(worker), "commands", alive=[worker])
        commands = commands_waited_for(worker)
        assert len(commands) == 4, commands
        assert not [command for command in commands if "consumer-groups" in command]
        done = app.shell("\n".join(commands))
        assert done.returncode == 0, done.stderr
        now_ms = int(time.time() * 1000)
        dynos.produce(WORDS, [Record(number, now_ms, b"word", b"word") for number in range(2)])
        dynos.wait_for_lag_0(AGGREGATOR, alive=[worker])
        assert sum(dynos.counts_in_topic().values()) == 2
        dynos.stop(worker)
    finally:
        dynos.close()


def commands_waited_for(child: Child) -> list[str]:
    """Return the commands in the one line of a worker that waits."""
    rows = [row for row in child.tail(1000).splitlines() if "waiting for what is missing" in row]
    assert len(rows) <= 1, rows
    return re.findall(r"(heroku kafka:\S+:create [^'\"]*)['\"]", rows[0]) if rows else []


def test_bin_setup_gives_an_empty_app_all_it_needs(
    heroku_broker: HerokuBroker, table: str, names: Names, tmp_path: Path
) -> None:
    name = names.prefix.removesuffix("-")
    app = Sandbox.empty(heroku_broker, tmp_path / "account", name, database_url=table)
    done = app.shell(f"{ROOT}/bin/setup {name} basic-0 --no-push")
    assert done.returncode == 0, done.stdout + done.stderr
    assert app.app.formation == dict.fromkeys((f"{service}_worker" for service in SERVICES), 1)
    topics = {row.split()[0] for row in app.run("kafka:topics")}
    assert topics == {LINES, WORDS, COUNTS, REPARTITION, CHANGELOG}
    assert set(app.run("kafka:consumer-groups")) == set(GROUPS)
    worker = stack_of(app, tmp_path).start("ingest")  # all that it needs is among the variables
    wait_until(lambda: "task runs" in worker.tail(100), "a task", alive=[worker])
    worker.stop()
