"""What librdkafka is told, from our settings."""

import traceback
from collections.abc import Callable
from typing import Any

import pytest
import trustme
from confluent_kafka import Producer

from streamcore.adapters.kafka_errors import made
from streamcore.adapters.kafka_settings import (
    admin_settings,
    consumer_settings,
    producer_settings,
    reader_settings,
)
from streamcore.config import StreamsConfig
from streamcore.errors import ConfigError
from streamcore.plan.traffic import FETCHES_PER_S

CERT = "-----BEGIN CERTIFICATE-----\nYWJjZGVm\nZ2hp\n-----END CERTIFICATE-----\n"
KEY = CERT.replace("CERTIFICATE", "PRIVATE KEY")
# What a text becomes on its way through files, command lines and other programs.
WAYS: dict[str, Callable[[str], str]] = {
    "as it is": lambda text: text,
    "literal": lambda text: text.replace("\n", "\\n"),
    "literal CRLF": lambda text: text.replace("\n", "\\r\\n"),
    "CRLF": lambda text: text.replace("\n", "\r\n"),
    "no last line end": lambda text: text.rstrip("\n"),
    "indented": lambda text: f"\n    {text}".replace("\n", "\n    "),
    "spaces": lambda text: text.replace("\n", " "),
}


def config(**settings: Any) -> StreamsConfig:
    return StreamsConfig(**{"application_id": "app", "kafka_url": "kafka://h:1", **settings})


def test_plain_brokers_are_reached_without_tls() -> None:
    settings = admin_settings(config(kafka_url="kafka://h1:1, kafka://h2:2"))
    assert settings["bootstrap.servers"] == "h1:1,h2:2"
    assert not [name for name in settings if name.startswith(("ssl.", "security."))]


@pytest.mark.parametrize("way", WAYS)
def test_tls_checks_the_authority_and_not_the_host_name(way: str) -> None:
    tls = config(
        kafka_url="kafka+ssl://h1:9096,kafka+ssl://h2:9096",
        kafka_trusted_cert=WAYS[way](CERT),
        kafka_client_cert=WAYS[way](CERT),
        kafka_client_cert_key=WAYS[way](KEY),
    )
    for settings in (
        admin_settings(tls),
        consumer_settings(tls, "g"),
        reader_settings(tls, "g"),
        producer_settings(tls, None),
    ):
        assert settings["bootstrap.servers"] == "h1:9096,h2:9096"
        assert settings["security.protocol"] == "ssl"
        assert settings["ssl.ca.pem"] == settings["ssl.certificate.pem"] == CERT
        assert settings["ssl.key.pem"] == KEY
        assert settings["ssl.endpoint.identification.algorithm"] == "none"
        assert "enable.ssl.certificate.verification" not in settings


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("between", ["", "\n", " "])
def test_both_certificates_of_a_rotation_are_handed_on(way: str, between: str) -> None:
    text = WAYS[way](f"{CERT}{between}{CERT}")
    pem = admin_settings(
        config(
            kafka_url="kafka+ssl://h:1",
            kafka_trusted_cert=text,
            kafka_client_cert=CERT,
            kafka_client_cert_key=KEY,
        )
    )["ssl.ca.pem"]
    assert [line for line in str(pem).splitlines() if line] == (CERT + CERT).splitlines()


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_readers_never_commit_by_themselves_and_see_committed_records_only(guarantee: str) -> None:
    settled = config(processing_guarantee=guarantee)
    for settings in (consumer_settings(settled, "g"), reader_settings(settled, "g")):
        assert settings["group.id"] == "g"
        assert settings["enable.auto.commit"] is False
        assert settings["enable.auto.offset.store"] is False
        assert settings["isolation.level"] == "read_committed"
        assert settings["auto.offset.reset"] == "error"
        assert settings["enable.partition.eof"] is True


def test_a_frozen_worker_does_not_write_longer_than_its_session_lasts() -> None:
    settings = producer_settings(config(session_timeout_ms=7_000), None)
    assert settings["message.timeout.ms"] == 7_000
    assert "transactional.id" not in settings


def test_a_transaction_bounds_its_records() -> None:
    settings = producer_settings(config(transaction_timeout_ms=8_000), "slot-0")
    assert settings["transactional.id"] == "slot-0"
    assert settings["transaction.timeout.ms"] == settings["message.timeout.ms"] == 8_000


def test_producers_are_idempotent_and_partition_as_kafkas_own_clients() -> None:
    settings = producer_settings(config(), None)
    assert settings["enable.idempotence"] is True
    assert settings["partitioner"] == "murmur2_random"
    assert settings["delivery.report.only.error"] is True


def test_several_heartbeats_fit_into_the_shortest_session() -> None:
    settings = consumer_settings(config(session_timeout_ms=1_000), "g")
    heartbeat_ms = settings["heartbeat.interval.ms"]
    assert isinstance(heartbeat_ms, int)
    assert 3 * heartbeat_ms <= 1_000


def test_a_consumer_that_obeys_the_coordinator_is_not_let_into_the_group() -> None:
    assert consumer_settings(config(), "g")["partition.assignment.strategy"] == "roundrobin"


def test_own_settings_reach_the_clients_they_are_meant_for() -> None:
    own = {
        "socket.keepalive.enable": "false",
        "linger.ms": "7",
        "producer.linger.ms": "5",
        "consumer.fetch.wait.max.ms": "9",
    }
    settled = config(kafka_settings=own)
    assert producer_settings(settled, None)["linger.ms"] == "5"
    assert admin_settings(settled)["linger.ms"] == "7"
    assert consumer_settings(settled, "g")["fetch.wait.max.ms"] == "9"
    assert reader_settings(settled, "g")["fetch.wait.max.ms"] == 10
    assert reader_settings(settled, "g")["socket.keepalive.enable"] == "false"


def test_a_reader_that_stands_by_asks_no_oftener_than_a_consumer() -> None:
    """A restore shows its end at once; a standby is at its end nearly always."""
    waits = [
        settings["fetch.wait.max.ms"]
        for settings in (
            reader_settings(config(), "g"),
            reader_settings(config(num_standby_replicas=1), "g"),
            consumer_settings(config(), "g"),
        )
    ]
    assert waits == [10, 100, 100]
    assert 1_000 // int(waits[1]) == FETCHES_PER_S, "what the plan reckons with"


@pytest.fixture(scope="module")
def pems() -> dict[str, str]:
    """Return an authority of today, one of tomorrow, and what the first has issued."""
    authority, other = trustme.CA(), trustme.CA()
    issued = authority.issue_cert("worker.example")
    return {
        "kafka_trusted_cert": (authority.cert_pem.bytes() + other.cert_pem.bytes()).decode(),
        "kafka_client_cert": issued.cert_chain_pems[0].bytes().decode(),
        "kafka_client_cert_key": issued.private_key_pem.bytes().decode(),
    }


@pytest.mark.parametrize("way", WAYS)
def test_openssl_reads_the_texts_however_they_come(way: str, pems: dict[str, str]) -> None:
    texts = {name: WAYS[way](pem) for name, pem in pems.items()}
    settled = config(kafka_url="kafka+ssl://127.0.0.1:1", **texts)
    Producer(dict(producer_settings(settled, None)))  # a text it cannot read fails here


@pytest.mark.parametrize(
    "name", ["kafka_trusted_cert", "kafka_client_cert", "kafka_client_cert_key"]
)
def test_a_text_that_openssl_cannot_read_is_told_by_its_setting(
    name: str, pems: dict[str, str]
) -> None:
    begin, lost, *body = pems[name].splitlines()
    wrong = "\n".join([begin, *body])
    settled = config(kafka_url="kafka+ssl://127.0.0.1:1", **{**pems, name: wrong})
    with pytest.raises(ConfigError) as caught:
        made(lambda: Producer(dict(producer_settings(settled, None))))
    (problem,) = caught.value.problems
    assert f"({name})" in problem
    shown = "".join(traceback.format_exception(caught.value))
    assert not any(line in shown for line in [lost, *body[:-1]])
