"""Certificates from variables: the chain is checked, the host name is not, no key lies around."""

import re
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from tests.integration.harness import LINES, WORDS, Stack, line

from devstack.heroku.broker import SERVER_NAME
from devstack.heroku.certificates import Authority
from devstack.heroku.sandbox import Sandbox
from devstack.ports import free_port
from streamcore.adapters.kafka_cluster import KafkaCluster
from streamcore.config import StreamsConfig

REFUSED_WITHIN_S = 30
ANSWER_MS = 20_000
INGEST = "ingest-app"


@pytest.fixture
def foreign() -> Authority:
    """An authority that has nothing to do with the broker."""
    return Authority()


def partitions_by(env: dict[str, str], topic: str) -> int | None:
    """Return how many partitions the engine's own client sees, with these variables."""
    config = StreamsConfig(
        application_id="app",
        kafka_url=env["KAFKA_URL"],
        kafka_trusted_cert=env["KAFKA_TRUSTED_CERT"],
        kafka_client_cert=env["KAFKA_CLIENT_CERT"],
        kafka_client_cert_key=env["KAFKA_CLIENT_CERT_KEY"],
    )
    cluster = KafkaCluster(config, "app")
    try:
        return cluster.admin().partitions([topic], ANSWER_MS)[topic]
    finally:
        cluster.close()


@pytest.mark.parametrize("shape", ["plain", "ours first", "ours last", "one line", "no last line"])
def test_the_app_gets_in_though_the_brokers_certificate_has_another_name(
    heroku: Sandbox, foreign: Authority, shape: str
) -> None:
    heroku.run("kafka:topics:create words --partitions 3")
    env, ours = heroku.env, heroku.env["KAFKA_TRUSTED_CERT"]
    assert SERVER_NAME not in env["KAFKA_URL"]
    if shape == "ours first":
        env["KAFKA_TRUSTED_CERT"] = ours + foreign.certificate
    elif shape == "ours last":
        env["KAFKA_TRUSTED_CERT"] = foreign.certificate + ours
    elif shape == "one line":
        env = {name: value.replace("\n", "\\n") for name, value in env.items()}
    elif shape == "no last line":
        env["KAFKA_TRUSTED_CERT"] = foreign.certificate.strip() + ours.strip()
    assert partitions_by(env, f"{heroku.prefix}words") == 3


def test_one_broker_of_several_is_enough(heroku: Sandbox) -> None:
    heroku.run("kafka:topics:create words --partitions 3")
    away = f"kafka+ssl://127.0.0.1:{free_port()}"
    env = heroku.env
    env["KAFKA_URL"] = f"{away}, {env['KAFKA_URL']} ,{away},"
    assert partitions_by(env, f"{heroku.prefix}words") == 3


def test_who_shows_no_certificate_gets_no_answer(heroku: Sandbox) -> None:
    said: list[KafkaError] = []
    settings = {k: v for k, v in heroku.clients.items() if k not in _OWN}
    told: dict[str, Any] = {**settings, "error_cb": said.append}
    admin = AdminClient(told)
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=3)
    admin.poll(0.1)
    assert any("alert" in error.str() for error in said), said
    assert AdminClient({**heroku.clients}).list_topics(timeout=ANSWER_MS / 1000).brokers


_OWN = ("ssl.certificate.pem", "ssl.key.pem")


def test_a_foreign_certificate_on_either_side_ends_the_worker_with_the_reason(
    heroku: Sandbox, stack: Stack, foreign: Authority
) -> None:
    heroku.run("kafka:topics:create textlines --partitions 1")
    heroku.run("kafka:topics:create words --partitions 1")
    heroku.run(f"kafka:consumer-groups:create {INGEST}")
    stranger = foreign.issue("client.invalid", "stranger")
    workers = [
        # It does not believe the broker ...
        stack.start("ingest", "1", KAFKA_TRUSTED_CERT=foreign.certificate),
        # ... and the broker does not believe it.
        stack.start(
            "ingest", "2",
            KAFKA_CLIENT_CERT=stranger.certificate, KAFKA_CLIENT_CERT_KEY=stranger.key,
        ),
    ]  # fmt: skip
    for worker in workers:
        assert worker.wait(REFUSED_WITHIN_S), f"it goes on:\n{worker.tail(40)}"
        assert worker.returncode == 1, worker.tail(40)
        last = worker.tail().splitlines()[-1]
        assert re.match(r"ingest: .*certificate", last), worker.tail(40)
        assert "Traceback" not in worker.tail(1000)
    assert_not_found(stranger.key, stack.folder)
    assert_not_found(heroku.env["KAFKA_CLIENT_CERT_KEY"], stack.folder)


@pytest.mark.parametrize("one_line", [False, True])
def test_the_key_is_on_no_disk_and_in_no_log(heroku: Sandbox, stack: Stack, one_line: bool) -> None:
    heroku.run("kafka:topics:create textlines --partitions 1")
    heroku.run("kafka:topics:create words --partitions 1")
    heroku.run(f"kafka:consumer-groups:create {INGEST}")
    key = heroku.env["KAFKA_CLIENT_CERT_KEY"]
    # Topics keep a day there, by the records' own time.
    stack.produce(LINES, [line(0, int(time.time() * 1000), "some words")])
    given = key.replace("\n", "\\n") if one_line else key
    worker = stack.start("ingest", KAFKA_CLIENT_CERT_KEY=given)
    stack.wait_for_lag_0(INGEST, alive=[worker])
    assert stack.ends(WORDS) == {(WORDS, 0): 2}
    stack.stop(worker)
    broken = stack.start("ingest", "broken", KAFKA_CLIENT_CERT_KEY=given.replace("PRIVATE", "XY"))
    assert broken.wait(REFUSED_WITHIN_S)
    assert broken.returncode == 2
    assert "KAFKA_CLIENT_CERT_KEY" in broken.tail()
    assert_not_found(key, stack.folder)


def test_the_search_for_keys_finds_one(heroku: Sandbox, tmp_path: Path) -> None:
    key = heroku.env["KAFKA_CLIENT_CERT_KEY"]
    for number, written in enumerate((key, key.replace("\n", "\\n"))):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "log").write_text(f"level=info key='{written}'", encoding="ascii")
        with pytest.raises(AssertionError, match="log"):
            assert_not_found(key, folder)


def assert_not_found(key: str, folder: Path) -> None:
    """Fail if any line of the key stands in a file of the folder."""
    needles = [row.encode() for row in key.splitlines() if row and "-----" not in row]
    assert len(needles) > 1, "this is no key"
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert files, "nothing was searched"
    found = [path for path in files if any(needle in path.read_bytes() for needle in needles)]
    assert not found, f"the key lies in {found}"
