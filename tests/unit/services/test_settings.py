"""Settings from variables: what wins, what is refused, and how a fault is told."""

import dataclasses
import os
from collections.abc import Mapping
from typing import Any, ClassVar

import pytest
from pydantic import Field, SecretStr

from streamcore.config import StreamsConfig
from streamcore.errors import ConfigError
from streamcore.settings import ServiceSettings, load, variables

URL = "kafka://127.0.0.1:9092"


class Settings(ServiceSettings):
    service: ClassVar[str] = "mill"
    plain_names: ClassVar[Mapping[str, str]] = {"grain": "GRAIN"}
    engine_defaults: ClassVar[Mapping[str, Any]] = {"application_id": "mill-app"}

    grain: str = "rye"
    stones: int = Field(default=2, gt=0)
    password: SecretStr = SecretStr("")


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Return an environment with KAFKA_URL and nothing else of ours."""
    for name in os.environ:
        if name.startswith(("STREAMCORE_", "MILL_", "KAFKA_", "GRAIN")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("KAFKA_URL", URL)
    return monkeypatch


def problems() -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        load(Settings)
    return caught.value.problems


def test_nothing_set_gives_the_defaults() -> None:
    own, config = load(Settings)
    assert own == Settings()
    assert (own.grain, own.stones) == ("rye", 2)
    assert config == StreamsConfig(application_id="mill-app", kafka_url=URL)


def test_each_setting_of_the_engine_has_its_variable() -> None:
    by_field = {variable.field: variable.names for variable in variables(Settings)}
    for field in dataclasses.fields(StreamsConfig):
        if field.init and field.name != "application_id":
            name = field.name.upper()
            assert by_field[field.name][:2] == (f"MILL_{name}", f"STREAMCORE_{name}")


def test_a_variable_of_the_service_wins(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("STREAMCORE_COMMIT_INTERVAL_MS", "700")
    assert load(Settings)[1].commit_interval_ms == 700
    environment.setenv("MILL_COMMIT_INTERVAL_MS", "300")
    assert load(Settings)[1].commit_interval_ms == 300


def test_a_prefixed_name_wins_over_the_plain_one(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("GRAIN", "oats")
    assert load(Settings)[0].grain == "oats"
    environment.setenv("MILL_GRAIN", "barley")
    assert load(Settings)[0].grain == "barley"


def test_an_empty_variable_is_not_set(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("MILL_STONES", "")
    environment.setenv("GRAIN", "")
    environment.setenv("STREAMCORE_COMMIT_INTERVAL_MS", "")
    assert load(Settings)[0] == Settings()


def test_plain_names_of_the_broker_and_the_prefix(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("KAFKA_PREFIX", "columbia-1.")
    config = load(Settings)[1]
    assert (config.kafka_url, config.prefix) == (URL, "columbia-1.")


def test_without_a_broker_the_message_names_the_variable(environment: pytest.MonkeyPatch) -> None:
    environment.delenv("KAFKA_URL")
    assert problems() == (f"KAFKA_URL is not set; name the brokers, as in {URL}",)
    assert load(Settings, offline=True)[0] == Settings()


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("STREAMCORE_COMIT_INTERVAL_MS", "STREAMCORE_COMMIT_INTERVAL_MS"),
        ("MILL_COMMIT_INTERVALL_MS", "MILL_COMMIT_INTERVAL_MS"),
        ("MILL_STONE", "MILL_STONES"),
        ("STREAMCORE_STONES", "MILL_STONES"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest_right_one(
    environment: pytest.MonkeyPatch, wrong: str, right: str
) -> None:
    environment.setenv(wrong, "1")
    assert problems() == (f"{wrong} is not a setting; did you mean {right}?",)


def test_a_name_like_no_other_points_to_the_list(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("MILL_Q", "1")
    assert problems() == ("MILL_Q is not a setting; .env.example lists all there are",)


def test_an_unknown_name_is_refused_though_it_is_empty(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("MILL_STONE", "")
    assert len(problems()) == 1


def test_names_of_other_services_are_none_of_our_business(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("BAKERY_ANYTHING", "1")
    assert load(Settings)[0] == Settings()


def test_one_application_id_for_all_services_is_refused(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("STREAMCORE_APPLICATION_ID", "all")
    assert problems() == (
        "STREAMCORE_APPLICATION_ID would be the same for all services; set MILL_APPLICATION_ID",
    )
    environment.delenv("STREAMCORE_APPLICATION_ID")
    environment.setenv("MILL_APPLICATION_ID", "other")
    assert load(Settings)[1].application_id == "other"


def test_all_problems_come_at_once_by_the_names_of_their_variables(
    environment: pytest.MonkeyPatch,
) -> None:
    environment.delenv("KAFKA_URL")
    environment.setenv("MILL_STONE", "1")
    environment.setenv("MILL_STONES", "0")
    environment.setenv("MILL_SESSION_TIMEOUT_MS", "many")
    environment.setenv("STREAMCORE_COMMIT_INTERVAL_MS", "-5")
    environment.setenv("STREAMCORE_PROCESSING_GUARANTEE", "maybe")
    told = problems()
    for part in [
        "MILL_STONE is not",
        "MILL_STONES is '0'",
        "MILL_SESSION_TIMEOUT_MS is 'many'",
        "STREAMCORE_COMMIT_INTERVAL_MS is -5",
        "STREAMCORE_PROCESSING_GUARANTEE is 'maybe'",
        "KAFKA_URL is not set",
    ]:
        assert sum(part in problem for problem in told) == 1, (part, told)
    assert all("\n" not in problem for problem in told)


def test_a_mapping_is_written_as_json(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("STREAMCORE_KAFKA_SETTINGS", '{"linger.ms": 20, "debug": "broker"}')
    assert dict(load(Settings)[1].kafka_settings) == {"linger.ms": "20", "debug": "broker"}
    environment.setenv("STREAMCORE_KAFKA_SETTINGS", "linger.ms=20")
    assert problems() == ("STREAMCORE_KAFKA_SETTINGS: it must be a JSON object",)


def test_a_secret_is_never_repeated(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("MILL_KAFKA_SETTINGS", '{"sasl.password": hunter2}')
    environment.setenv("MILL_STONES", "none")
    told = problems()
    assert len(told) == 2
    assert not any("hunter2" in problem for problem in told)
    environment.delenv("MILL_KAFKA_SETTINGS")
    environment.setenv("MILL_STONES", "3")
    environment.setenv("MILL_PASSWORD", "hunter2")
    own, _ = load(Settings)
    assert own.password.get_secret_value() == "hunter2"
    assert "hunter2" not in repr(own)
