"""The database's address: what it becomes, and what nobody gets to see."""

import os
import traceback

import pytest

from sink.settings import Settings, database_url, is_local
from streamcore.errors import ConfigError
from streamcore.settings import load

PASSWORD = "p@s/w%"
HEROKU = "postgres://u:p%40s%2Fw%25@db.example:5432/d?sslmode=require"


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if "DATABASE" in name or name in ("COUNTS_TOPIC", "WINDOW_SIZE_MS", "PGSSLMODE"):
            monkeypatch.delenv(name)


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
        _ = settings.address


@pytest.mark.parametrize(
    ("address", "local"),
    [
        ("localhost", True),
        ("127.0.0.1:5432", True),
        ("[::1]", True),
        ("", True),
        ("db.example", False),
        ("postgres", False),
        ("10.0.0.7", False),
        ("localhost.example", False),
    ],
)
def test_another_host_is_only_talked_to_over_tls(
    monkeypatch: pytest.MonkeyPatch, address: str, local: bool
) -> None:
    url = database_url(f"postgres://u:p@{address}/d")
    assert is_local(url) is local
    assert url.query == ({} if local else {"sslmode": "require"})
    for asked in ("disable", "verify-full"):
        assert database_url(f"postgres://u:p@{address}/d?sslmode={asked}").query == {
            "sslmode": asked
        }
    monkeypatch.setenv("PGSSLMODE", "verify-full")
    assert database_url(f"postgres://u:p@{address}/d").query.get("sslmode") in (
        "verify-full", None,
    )  # fmt: skip


def test_a_host_that_is_named_as_an_option_counts_too() -> None:
    for near in ("host=/run/postgresql", "host=localhost:5433", "hostaddr=::1", "host=127.0.0.1"):
        assert is_local(database_url(f"postgres:///d?{near}")), near
    for far in ("host=db.example", "host=localhost&host=db:5432", "hostaddr=10.0.0.7"):
        assert database_url(f"postgres:///d?{far}").query["sslmode"] == "require"


ATTACHED = {
    "HEROKU_POSTGRESQL_PINK_URL": "postgres://u:p@pink.example/d",
    "DATABASE_CONNECTION_POOL_URL": "postgres://u:p@pool.example:6432/d",
}


@pytest.mark.parametrize(
    ("variables", "host"),
    [
        ({**ATTACHED, "DATABASE_URL": HEROKU}, "db.example"),
        (ATTACHED, "pink.example"),
        ({**ATTACHED, "DATABASE_URL": HEROKU, "DATABASE_ATTACHMENT": "DATABASE_CONNECTION_POOL"},
         "pool.example"),
        ({**ATTACHED, "DATABASE_URL": HEROKU, "SINK_DATABASE_ATTACHMENT": "HEROKU_POSTGRESQL_PINK"},
         "pink.example"),
        ({**ATTACHED, "SINK_DATABASE_URL": HEROKU}, "db.example"),
        ({**ATTACHED, "SINK_DATABASE_URL": HEROKU, "DATABASE_ATTACHMENT": "HEROKU_POSTGRESQL_PINK"},
         "db.example"),
        ({**ATTACHED, "SINK_DATABASE_URL": HEROKU, "DATABASE_URL": "postgres://u:p@plain/d",
          "SINK_DATABASE_ATTACHMENT": "HEROKU_POSTGRESQL_PINK"}, "db.example"),
        ({**ATTACHED, "INGEST_DATABASE_URL": HEROKU}, "pink.example"),
    ],
)  # fmt: skip
def test_which_address_is_taken(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], host: str
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    settings, _ = load(Settings, offline=True)
    assert settings.address.url.host == host
    named = variables.get(settings.address.variable, "").rpartition("@")[2]
    assert named.startswith(host), "who must correct the address is sent elsewhere"


@pytest.mark.parametrize(
    ("variables", "problem"),
    [
        ({"DATABASE_ATTACHMENT": "PINK", "DATABASE_URL": HEROKU}, "^DATABASE_ATTACHMENT is PINK, "),
        (
            {"SINK_DATABASE_ATTACHMENT": "PINK"},
            "SINK_DATABASE_ATTACHMENT is PINK, and PINK_URL is not",
        ),
        # As with brokers: one that is named must be there, even if it is not needed.
        (
            {"DATABASE_ATTACHMENT": "PINK", "SINK_DATABASE_URL": HEROKU},
            "DATABASE_ATTACHMENT is PINK",
        ),
        ({"A_URL": "postgres://s3cret@a/d", "B_URL": "postgresql://b/d"}, "A, B"),
        ({"PINK_URL": "postgres://u:s3cret@db:port/d"}, "PINK_URL: it cannot be read"),
        ({"DATABASE_ATTACHMENT": "postgres://u:s3cret@db/d"}, "must be the name of an attachment"),
    ],
)
def test_an_address_that_cannot_be_found_is_told_by_names_alone(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], problem: str
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    settings, _ = load(Settings, offline=True)
    with pytest.raises(ConfigError, match=problem) as caught:
        _ = settings.address
    assert "s3cret" not in "".join(traceback.format_exception(caught.value))


def test_the_password_is_in_no_text_of_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", HEROKU)
    settings, config = load(Settings, offline=True)
    shown = f"{settings!r} {settings} {settings.address!r} {settings.address.url} {config!r}"
    assert settings.address.url.password == PASSWORD
    assert PASSWORD not in shown
    assert "p%40s" not in shown


def test_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    settings, config = load(Settings, offline=True)
    assert (settings.counts_topic, settings.window_size_ms) == ("windowed-counts", 10_000)
    assert config.application_id == "sink-app"
