"""Settings that follow from where a program runs: attachments, certificates, dynos."""

import logging
import os
import traceback
from collections.abc import Mapping
from typing import Any, ClassVar

import pytest

from streamcore.config import StreamsConfig
from streamcore.errors import ConfigError
from streamcore.settings import ServiceSettings, connection_variables, load

URL = "kafka+ssl://h1:9096,kafka+ssl://h2:9096"
CERT = "-----BEGIN CERTIFICATE-----\nYWJj\n-----END CERTIFICATE-----\n"
SECRET = "aHVudGVyMg"
KEY = f"-----BEGIN PRIVATE KEY-----\n{SECRET}\n-----END PRIVATE KEY-----\n"
MIB = 1024 * 1024


class Settings(ServiceSettings):
    service: ClassVar[str] = "mill"
    engine_defaults: ClassVar[Mapping[str, Any]] = {"application_id": "mill-app"}

    stones: int = 2


class QuietSettings(Settings):
    engine_defaults: ClassVar[Mapping[str, Any]] = {
        "application_id": "mill-app",
        "log_format": "json",
    }


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Return an environment without anything that these tests look at."""
    prefixes = ("STREAMCORE_", "MILL_", "KAFKA_", "DYNO", "FOREMAN_", "HONCHO_")
    for name in os.environ:
        if name.startswith(prefixes) or name.endswith("_URL"):
            monkeypatch.delenv(name)
    return monkeypatch


def attach(environment: pytest.MonkeyPatch, name: str, **values: str) -> None:
    """Set the variables of an attachment; ``values`` win."""
    texts = {"URL": URL, "TRUSTED_CERT": CERT, "CLIENT_CERT": CERT, "CLIENT_CERT_KEY": KEY}
    for suffix, text in {**texts, **values}.items():
        environment.setenv(f"{name}_{suffix}", text)


def problem() -> str:
    with pytest.raises(ConfigError) as caught:
        load(Settings)
    (told,) = caught.value.problems
    assert "\n" not in told
    return told


# --- attachments --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["KAFKA", "HEROKU_KAFKA", "HEROKU_KAFKA_AMBER", "NEW_KAFKA"])
def test_an_attachment_of_any_name_gives_everything(
    environment: pytest.MonkeyPatch, name: str
) -> None:
    attach(environment, name, PREFIX="mill-1.")
    config = load(Settings)[1]
    assert config.brokers == ("h1:9096,h2:9096", True)
    assert config.prefix == "mill-1."
    assert (config.kafka_trusted_cert, config.kafka_client_cert) == (CERT, CERT)
    assert config.kafka_client_cert_key == KEY


def test_kafka_url_wins_over_what_else_there_is(environment: pytest.MonkeyPatch) -> None:
    attach(environment, "HEROKU_KAFKA_AMBER", PREFIX="amber-1.")
    attach(environment, "NEW_KAFKA", PREFIX="new-1.")
    environment.setenv("KAFKA_URL", "kafka://h3:9092")
    config = load(Settings)[1]
    assert (config.brokers.servers, config.prefix) == ("h3:9092", "")


def test_the_attachment_that_is_named_wins_over_kafka_url(environment: pytest.MonkeyPatch) -> None:
    attach(environment, "KAFKA", PREFIX="old-1.")
    attach(environment, "NEW_KAFKA", URL="kafka+ssl://h3:9096")
    environment.setenv("STREAMCORE_KAFKA_ATTACHMENT", "NEW_KAFKA")
    config = load(Settings)[1]
    # The prefix belongs to the old cluster.
    assert (config.brokers.servers, config.prefix) == ("h3:9096", "")
    environment.setenv("MILL_KAFKA_ATTACHMENT", "KAFKA")
    assert load(Settings)[1].prefix == "old-1."


def test_a_prefixed_variable_wins_over_the_attachment(environment: pytest.MonkeyPatch) -> None:
    attach(environment, "HEROKU_KAFKA", PREFIX="mill-1.")
    environment.setenv("MILL_PREFIX", "other-1.")
    assert load(Settings)[1].prefix == "other-1."
    environment.setenv("MILL_KAFKA_URL", "kafka://h3:9092")
    assert load(Settings)[1].brokers.servers == "h3:9092"


@pytest.mark.parametrize("name", ["STREAMCORE_KAFKA", "MILL_KAFKA"])
def test_an_attachment_that_is_called_like_a_setting_gives_its_prefix_too(
    environment: pytest.MonkeyPatch, name: str
) -> None:
    attach(environment, name, PREFIX="mill-1.")
    attach(environment, "KAFKA", PREFIX="old-1.", URL="kafka+ssl://h3:9096")
    config = load(Settings)[1]
    assert (config.brokers.servers, config.prefix) == ("h1:9096,h2:9096", "mill-1.")
    assert connection_variables(Settings)["prefix"] == f"{name}_PREFIX"
    environment.setenv("STREAMCORE_KAFKA_ATTACHMENT", "KAFKA")  # its address is not taken either
    assert load(Settings)[1].prefix == "mill-1."
    environment.setenv("STREAMCORE_PREFIX", "other-1.")  # by hand: that is meant
    assert load(Settings)[1].prefix == "other-1."


def test_the_prefix_of_an_attachment_counts_with_its_address_only(
    environment: pytest.MonkeyPatch,
) -> None:
    attach(environment, "MILL_KAFKA")  # a cluster of its own has no prefix
    attach(environment, "STREAMCORE_KAFKA", PREFIX="mill-1.")
    assert load(Settings)[1].prefix == ""
    environment.delenv("STREAMCORE_KAFKA_URL")
    told = "STREAMCORE_KAFKA_PREFIX is not a setting; did you mean STREAMCORE_PREFIX?"
    assert problem() == told


def test_several_attachments_are_listed_without_their_values(
    environment: pytest.MonkeyPatch,
) -> None:
    attach(environment, "NEW_KAFKA")
    attach(environment, "HEROKU_KAFKA_AMBER")
    told = problem()
    assert "HEROKU_KAFKA_AMBER_URL, NEW_KAFKA_URL" in told
    assert "STREAMCORE_KAFKA_ATTACHMENT" in told
    assert "h1" not in told
    load(Settings, offline=True)


def test_whoever_names_brokers_need_not_choose(environment: pytest.MonkeyPatch) -> None:
    attach(environment, "NEW_KAFKA")
    attach(environment, "HEROKU_KAFKA_AMBER")
    environment.setenv("STREAMCORE_BOOTSTRAP_SERVERS", "h3:9092")
    assert load(Settings)[1].brokers == ("h3:9092", False)


def test_an_attachment_that_is_not_there_is_told(environment: pytest.MonkeyPatch) -> None:
    attach(environment, "KAFKA")
    environment.setenv("MILL_KAFKA_ATTACHMENT", "AMBER")
    assert problem() == "MILL_KAFKA_ATTACHMENT is AMBER, and AMBER_URL is not set; there is KAFKA"


@pytest.mark.parametrize("name", ["SINK_KAFKA_URL", "INGEST_KAFKA_URL"])
def test_the_brokers_of_another_service_are_not_ours(
    environment: pytest.MonkeyPatch, name: str
) -> None:
    environment.setenv(name, "kafka://h3:9092")
    assert problem().startswith("KAFKA_URL is not set")


# --- what is wrong, by the variable's name ------------------------------------------------------

WRONG = {
    "": "KAFKA_URL is not set",
    "kafka://h1:1,,kafka://h2:1": "broker 2 of 3 is empty",
    "kafka://h1": "must be host:port",
    "kafka://h1:1,http://h2:1": "broker 2 must begin with kafka:// or kafka+ssl://",
    "kafka://h1:1,kafka+ssl://h2:1": "are mixed",
    "kafka://user:hunter2@h1:1": "holds a user",
}


@pytest.mark.parametrize("variable", ["KAFKA_URL", "MILL_KAFKA_URL", "HEROKU_KAFKA_URL"])
@pytest.mark.parametrize("url", WRONG)
def test_an_address_that_cannot_be_used_is_told_by_its_variable(
    environment: pytest.MonkeyPatch, variable: str, url: str
) -> None:
    environment.setenv(variable, url)
    told = problem()
    assert told.startswith("KAFKA_URL is not set" if not url else f"{variable}: ")
    assert WRONG[url] in told
    assert "hunter2" not in told


@pytest.mark.parametrize("url", [f" {URL}", f"{URL},", URL.replace(",", " , "), f"{URL} , "])
def test_spaces_and_a_last_comma_do_no_harm(environment: pytest.MonkeyPatch, url: str) -> None:
    attach(environment, "HEROKU_KAFKA", URL=url)
    assert load(Settings)[1].brokers == ("h1:9096,h2:9096", True)


@pytest.mark.parametrize("suffix", ["TRUSTED_CERT", "CLIENT_CERT", "CLIENT_CERT_KEY"])
@pytest.mark.parametrize("attachment", ["KAFKA", "HEROKU_KAFKA"])
def test_a_missing_certificate_is_told_by_its_variable(
    environment: pytest.MonkeyPatch, attachment: str, suffix: str
) -> None:
    attach(environment, attachment, **{suffix: ""})
    assert problem() == f"kafka+ssl:// needs {attachment}_{suffix}"


@pytest.mark.parametrize(
    "key", [KEY[:-12], SECRET, KEY.replace("PRIVATE KEY", "CERTIFICATE"), f"/home/{SECRET}.pem"]
)
def test_a_faulty_key_is_told_and_never_shown(
    environment: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, key: str
) -> None:
    caplog.set_level(logging.DEBUG)
    attach(environment, "HEROKU_KAFKA", CLIENT_CERT_KEY=key)
    try:
        load(Settings)
    except ConfigError as error:
        shown = "".join(traceback.format_exception(error)) + repr(error) + caplog.text
    else:
        pytest.fail("the key was taken")
    assert "HEROKU_KAFKA_CLIENT_CERT_KEY must be" in shown
    assert SECRET not in shown


def test_a_key_stays_out_of_every_text_of_its_settings(environment: pytest.MonkeyPatch) -> None:
    attach(environment, "KAFKA")
    environment.setenv("MILL_STONES", "many")  # pydantic's own error is told, too
    told = problem()
    environment.delenv("MILL_STONES")
    own, config = load(Settings)
    assert config.kafka_client_cert_key == KEY
    for text in (told, repr(own), repr(config), str(config)):
        assert SECRET not in text


# --- dynos --------------------------------------------------------------------------------------


def test_a_dyno_gives_defaults(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("KAFKA_URL", "kafka://h:1")
    environment.setenv("DYNO", "worker-23z34x56y-w78k9")
    environment.setenv("DYNO_RAM", "1024")
    config = load(Settings)[1]
    assert (config.instance, config.log_format) == ("worker-23z34x56y-w78k9", "logfmt")
    assert config.metrics_log_interval_ms == 20_000
    assert config.memory_limit_bytes == 1024 * MIB * 9 // 10
    environment.setenv("STREAMCORE_NUM_STREAM_THREADS", "2")
    shared = load(Settings)[1].memory_limit_bytes
    assert shared is not None
    assert 2 * shared < config.memory_limit_bytes


def test_a_variable_wins_over_the_service_and_the_service_over_the_dyno(
    environment: pytest.MonkeyPatch,
) -> None:
    environment.setenv("KAFKA_URL", "kafka://h:1")
    assert load(Settings)[1].log_format == "auto"
    environment.setenv("DYNO", "worker.1")
    assert load(Settings)[1].log_format == "logfmt"
    assert load(QuietSettings)[1].log_format == "json"
    environment.setenv("STREAMCORE_LOG_FORMAT", "console")
    assert load(QuietSettings)[1].log_format == "console"


def test_each_default_of_a_dyno_can_be_set(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("KAFKA_URL", "kafka://h:1")
    environment.setenv("DYNO", "worker.1")
    wanted: dict[str, Any] = {
        "instance": "me",
        "log_format": "json",
        "metrics_log_interval_ms": 5_000,
        "memory_limit_bytes": 1_000_000,
        "cache_max_bytes": 0,
    }
    for field, value in wanted.items():
        environment.setenv(f"STREAMCORE_{field.upper()}", str(value))
    config = load(Settings)[1]
    assert {field: getattr(config, field) for field in wanted} == wanted


def test_away_from_dynos_only_the_name_of_the_process_is_taken(
    environment: pytest.MonkeyPatch,
) -> None:
    environment.setenv("KAFKA_URL", "kafka://h:1")
    environment.setenv("HONCHO_PROCESS_NAME", "mill.2")
    assert load(Settings)[1] == StreamsConfig(
        application_id="mill-app", kafka_url="kafka://h:1", instance="mill.2"
    )
