"""What Heroku's two add-ons set is all that the three workers need."""

import os

import pytest

import aggregator.settings
import ingest.settings
import sink.settings
from streamcore.settings import ServiceSettings, load

PEM = "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n"
KEY = "-----BEGIN PRIVATE KEY-----\nMAA=\n-----END PRIVATE KEY-----\n"
ADDONS = {
    "KAFKA_URL": "kafka+ssl://a.example:9096,kafka+ssl://b.example:9096",
    "KAFKA_TRUSTED_CERT": PEM,
    "KAFKA_CLIENT_CERT": PEM,
    "KAFKA_CLIENT_CERT_KEY": KEY,
    "KAFKA_PREFIX": "mobile-1234.",
    "DATABASE_URL": "postgres://user:word@db.example:5432/counts",
}
# What a dyno has besides, which must neither be needed nor be in the way.
DYNO = {"DYNO": "aggregator_worker.1", "PORT": "5000", "WEB_CONCURRENCY": "2", "DYNO_RAM": "512"}
SERVICES: list[type[ServiceSettings]] = [
    ingest.settings.Settings,
    aggregator.settings.Settings,
    sink.settings.Settings,
]


@pytest.fixture(params=[{}, DYNO], ids=["anywhere", "dyno"])
def only_the_addons(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        monkeypatch.delenv(name)
    for name, value in {**ADDONS, **request.param}.items():
        monkeypatch.setenv(name, value)


@pytest.mark.usefixtures("only_the_addons")
@pytest.mark.parametrize("settings", SERVICES, ids=lambda each: each.service)
def test_the_addons_variables_suffice(settings: type[ServiceSettings]) -> None:
    own, config = load(settings)
    assert config.prefix == "mobile-1234."
    assert config.kafka_trusted_cert == PEM
    assert config.application_id == f"{settings.service}-app"
    if isinstance(own, sink.settings.Settings):
        assert own.address.url.host == "db.example"


@pytest.mark.usefixtures("only_the_addons")
def test_without_one_of_them_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KAFKA_CLIENT_CERT_KEY")
    with pytest.raises(Exception, match="KAFKA_CLIENT_CERT_KEY"):
        load(aggregator.settings.Settings)
