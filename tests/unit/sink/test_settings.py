"""The database's address: what it becomes, and what nobody gets to see."""

import traceback

import pytest

from sink.settings import Settings, database_url
from streamcore.errors import ConfigError
from streamcore.settings import load

PASSWORD = "p@s/w%"
HEROKU = "postgres://u:p%40s%2Fw%25@db.example:5432/d?sslmode=require"


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DATABASE_URL", "SINK_DATABASE_URL", "COUNTS_TOPIC", "WINDOW_SIZE_MS"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+psycopg"])
def test_every_name_of_postgres_leads_to_psycopg(scheme: str) -> None:
    url = database_url(HEROKU.replace("postgres", scheme, 1))
    assert url.get_dialect().driver == "psycopg"
    assert url.translate_connect_args() == {
        "host": "db.example",
        "port": 5432,
        "database": "d",
        "username": "u",
        "password": PASSWORD,
    }
    assert url.query == {"sslmode": "require"}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("mysql://u:s3cret@db/d", "mysql:// is not a PostgreSQL database"),
        ("postgresql+psycopg2://u:s3cret@db/d", "is not a PostgreSQL database"),
        ("u:s3cret@db/d", "it is not an address"),
        ("s3cret: x://db", "it is not an address"),
        ("postgres://u:s3cret@db:port/d", "it cannot be read"),
        ("postgres://u:x@s3cret@db/d", "it cannot be read"),
        ("postgres://u:s3cret@db", "it names no database"),
    ],
)
def test_other_addresses_are_refused_without_repeating_them(
    monkeypatch: pytest.MonkeyPatch, text: str, problem: str
) -> None:
    monkeypatch.setenv("DATABASE_URL", text)
    with pytest.raises(ConfigError) as caught:
        load(Settings, offline=True)
    assert [p.startswith("DATABASE_URL: ") for p in caught.value.problems] == [True]
    assert problem in caught.value.problems[0]
    assert "s3cret" not in "".join(traceback.format_exception(caught.value))


def test_no_address_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    settings, _ = load(Settings, offline=True)
    with pytest.raises(ConfigError, match="DATABASE_URL is not set; name the database, as in"):
        _ = settings.url


def test_the_password_is_in_no_text_of_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", HEROKU)
    settings, config = load(Settings, offline=True)
    shown = f"{settings!r} {settings} {settings.url!r} {settings.url} {config!r}"
    assert settings.url.password == PASSWORD
    assert PASSWORD not in shown
    assert "p%40s" not in shown


def test_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    settings, config = load(Settings, offline=True)
    assert (settings.counts_topic, settings.window_size_ms) == ("windowed-counts", 10_000)
    assert config.application_id == "sink-app"
