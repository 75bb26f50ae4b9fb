"""StreamsConfig and KAFKA_URL: what is refused, and that everything wrong is told at once."""

from typing import Any

import pytest

from streamcore.config import FORBIDDEN_KAFKA_SETTINGS, Brokers, StreamsConfig, parse_kafka_url
from streamcore.errors import ConfigError

CERT = "-----BEGIN CERTIFICATE-----\nYWJj\n-----END CERTIFICATE-----\n"
KEY = "-----BEGIN RSA PRIVATE KEY-----\nc2VjcmV0\n-----END RSA PRIVATE KEY-----\n"
TLS = {"kafka_trusted_cert": CERT, "kafka_client_cert": CERT, "kafka_client_cert_key": KEY}
URL = {"bootstrap_servers": "", "kafka_url": "kafka+ssl://h:9096"}


def config(**settings: Any) -> StreamsConfig:
    return StreamsConfig(**{"application_id": "app", "bootstrap_servers": "h:1", **settings})


def problems(**settings: Any) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        config(**settings)
    return caught.value.problems


@pytest.mark.parametrize(
    ("url", "brokers"),
    [
        ("kafka://h:9092", Brokers("h:9092", tls=False)),
        (
            "kafka+ssl://h1:9096,kafka+ssl://h2:9096,kafka+ssl://h3:9096",
            Brokers("h1:9096,h2:9096,h3:9096", tls=True),
        ),
        (" kafka+ssl://h1:1 , kafka+ssl://h2:2 ,", Brokers("h1:1,h2:2", tls=True)),
        ("kafka://[::1]:9092/", Brokers("[::1]:9092", tls=False)),
    ],
)
def test_a_kafka_url_is_understood(url: str, brokers: Brokers) -> None:
    assert parse_kafka_url(url) == brokers


@pytest.mark.parametrize(
    ("url", "word"),
    [
        ("", "empty"),
        ("kafka://h1:1,,kafka://h2:1", "broker 2 of 3 is empty"),
        (",kafka://h1:1", "broker 1 of 2 is empty"),
        ("kafka://h1", "host:port"),
        ("kafka://h1:0", "host:port"),
        ("kafka://h1:70000", "host:port"),
        ("kafka://h1:port", "host:port"),
        ("kafka://:9092", "host:port"),
        ("h1:9092", "must begin with"),
        ("http://h1:9092", "must begin with"),
        ("ssl://h1:9092", "must begin with"),
        ("kafka://h1:1,kafka+ssl://h2:1", "mixed"),
        ("kafka://user:secret@h1:1", "holds a user"),
        ("kafka://h1:1?password=secret", "broker 1 must be host:port"),
        ("kafka://h1:1 kafka://h2:1", "broker 1 must be host:port"),
        ("kafka://h1:1;secret", "broker 1 must be host:port"),
        ("kafka+ssl://h1", "broker 1 (h1) must be host:port"),
        ("kafka+tls://h1:1", "must begin with"),
    ],
)
def test_a_kafka_url_that_cannot_be_used_is_told_in_one_line(url: str, word: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_kafka_url(url)
    (problem,) = caught.value.problems
    assert problem.startswith("KAFKA_URL: ")
    assert word in problem
    assert "secret" not in problem


def test_a_faulty_kafka_url_is_told_by_the_name_of_its_setting() -> None:
    (problem,) = problems(bootstrap_servers="", kafka_url="kafka://h")
    assert problem == "kafka_url: broker 1 (h) must be host:port"


def test_every_problem_is_told_at_once() -> None:
    told = problems(
        application_id="not legal",
        processing_guarantee="exactly_twice",
        commit_interval_ms=0,
        num_stream_threads=0,
        production_error="dead-letter",
        kafka_settings={"enable.auto.commit": "true"},
    )
    words = ("application_id", "exactly_twice", "commit_interval_ms", "num_stream_threads")
    for word in (*words, "dead_letter_topic", "enable.auto.commit"):
        assert sum(word in line for line in told) == 1, (word, told)
    assert len(told) == 6


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"application_id": ""}, "application_id is empty"),
        ({"bootstrap_servers": ""}, "exactly one"),
        ({"kafka_url": "kafka://h:1"}, "exactly one"),
        ({"session_timeout_ms": 999}, "at least 1000"),
        ({"transaction_timeout_ms": 900_001}, "at most 900000"),
        ({"max_poll_interval_ms": 5_000}, "must not be below session_timeout_ms"),
        ({"num_standby_replicas": -1}, "at least 0"),
        ({"num_stream_threads": 0}, "at least 1"),
        ({"warmup_max_ms": -1}, "at least 0"),
        ({"missing_records": "ignore"}, "one of stop, continue"),
        ({"worker_failure": "ignore"}, "one of stop, replace"),
        ({"replication_factor": 0}, "replication_factor"),
        ({"metrics_port": 65_536}, "metrics_port"),
        ({"event_time": "wall"}, "source, operator"),
        ({"state_dir": ""}, "state_dir"),
        ({"application_id": "a" * 151}, "150"),
        ({"kafka_settings": {"consumer.isolation.level": "x"}}, "isolation.level"),
    ],
)
def test_a_setting_out_of_its_range_is_refused(settings: dict[str, Any], word: str) -> None:
    (problem,) = problems(**settings)
    assert word in problem


def test_a_commit_must_come_before_its_transaction_expires() -> None:
    late = {"commit_interval_ms": 10_000, "transaction_timeout_ms": 10_000}
    assert config(**late).commit_interval_ms == 10_000
    (problem,) = problems(**late, processing_guarantee="exactly_once_v2")
    assert "transaction_timeout_ms" in problem


@pytest.mark.parametrize("name", sorted(FORBIDDEN_KAFKA_SETTINGS))
@pytest.mark.parametrize("scope", ["", "consumer.", "restore.", "producer.", "admin."])
def test_settings_that_would_break_a_promise_are_refused(name: str, scope: str) -> None:
    (problem,) = problems(kafka_settings={f"{scope}{name}": "1"})
    assert f"{scope}{name}: " in problem


def test_tls_needs_all_three_texts_and_texts_they_must_be() -> None:
    assert config(**URL, **TLS).brokers == Brokers("h:9096", tls=True)
    for name in TLS:
        (problem,) = problems(**URL, **{**TLS, name: ""})
        assert name.upper() in problem
        (problem,) = problems(**URL, **{**TLS, name: "/etc/secret.pem"})
        assert name in problem
        assert "secret" not in problem


@pytest.mark.parametrize(
    "text",
    [
        CERT,
        CERT + CERT,
        CERT.replace("\n", "\\n"),
        CERT.replace("\n", "\r\n"),
        CERT.rstrip() + CERT,
    ],
)
def test_certificates_come_in_one_or_two_with_any_line_ends(text: str) -> None:
    assert config(**URL, **TLS | {"kafka_trusted_cert": text}).brokers.tls


@pytest.mark.parametrize("length", range(len("-----BEGIN "), len(KEY.rstrip())))
def test_a_key_that_is_cut_off_is_told_without_showing_it(length: int) -> None:
    (problem,) = problems(**URL, **TLS | {"kafka_client_cert_key": KEY[:length]})
    assert problem.startswith("kafka_client_cert_key must be PEM text, and it is cut off")


@pytest.mark.parametrize("rest", ["-----BEGIN ", CERT.splitlines()[0], CERT[:-3]])
def test_a_second_certificate_that_is_cut_off_is_told(rest: str) -> None:
    (problem,) = problems(**URL, **TLS | {"kafka_trusted_cert": CERT + rest})
    assert "kafka_trusted_cert" in problem
    assert "cut off" in problem


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("kafka_client_cert_key", CERT, "must be a private key"),
        ("kafka_client_cert", KEY, "must be certificates"),
        ("kafka_trusted_cert", CERT + KEY, "must be certificates"),
    ],
)
def test_a_key_in_the_place_of_a_certificate_is_told(name: str, text: str, words: str) -> None:
    (problem,) = problems(**URL, **TLS | {name: text})
    assert problem.startswith(f"{name} {words}")
    assert "c2VjcmV0" not in problem


def test_keys_and_client_settings_stay_out_of_the_repr() -> None:
    shown = repr(config(**URL, **TLS, kafka_settings={"sasl.password": "hunter2"}))
    assert "BEGIN" not in shown
    assert "hunter2" not in shown


@pytest.mark.parametrize("policy", ["continue", "dead-letter"])
def test_a_transaction_cannot_go_on_without_a_record(policy: str) -> None:
    settings = {"production_error": policy, "dead_letter_topic": "dead"}
    assert config(**settings).production_error == policy
    (problem,) = problems(**settings, processing_guarantee="exactly_once_v2")
    assert "production_error" in problem
    assert "exactly_once_v2" in problem


def test_the_last_commit_must_end_before_a_platform_kills() -> None:
    assert config(shutdown_timeout_ms=26_000).shutdown_timeout_ms == 26_000
    (problem,) = problems(shutdown_timeout_ms=26_001)
    assert "shutdown_timeout_ms" in problem
