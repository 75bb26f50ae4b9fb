"""The command that mends each thing that the sink's checks find: on Heroku, and elsewhere."""

import os
import shlex

import pytest

from sink.application import application
from sink.checks import Facts, checks, judge
from sink.connection import LogInRefusedError
from sink.remedies import Remedies
from sink.settings import EXAMPLE, Settings
from streamcore.errors import (
    AuthorizationError,
    ConfigError,
    RetriableError,
    StreamsError,
)
from streamcore.findings import Finding
from streamcore.heroku import App
from streamcore.settings import load

SUSHI = App("sushi")
CLOSED = "postgres://user:sesame@127.0.0.1:1/nowhere"
BAD = Facts(
    version="16.1", local=True, tls=False, read_only=True, revision=None, newest="0001",
    refused=("source_positions", "windowed_counts"), user='o"brien',
)  # fmt: skip


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in list(os.environ):
        if name.startswith("PG") or "DATABASE" in name or name.endswith("_URL"):
            monkeypatch.delenv(name)
    return monkeypatch


def command_after(error: StreamsError, app: App | None, variable: str = "DATABASE_URL") -> str:
    return Remedies(app, variable).after(error)


@pytest.mark.parametrize(
    ("error", "on_heroku", "elsewhere"),
    [
        (RetriableError("away"), "pg:info", """psql "$PINK_URL" -c 'select 1'"""),
        (StreamsError("odd"), "pg:info", """psql "$PINK_URL" -c 'select 1'"""),
        (AuthorizationError("no right"), "pg:info", r"""psql "$PINK_URL" -c '\dp'"""),
        (ConfigError(["no TLS"]), "config:get PINK_URL", f"export PINK_URL={EXAMPLE}"),
        (LogInRefusedError(["no"]), "pg:credentials:rotate PINK_URL", f"export PINK_URL={EXAMPLE}"),
    ],
)
def test_each_error_has_a_command(error: StreamsError, on_heroku: str, elsewhere: str) -> None:
    assert command_after(error, SUSHI, "PINK_URL") == f"heroku {on_heroku} --app sushi"
    assert command_after(error, App(), "PINK_URL") == f"heroku {on_heroku}"
    assert command_after(error, None, "PINK_URL") == elsewhere


def test_a_password_that_no_add_on_gave_is_not_changed_by_one() -> None:
    said = command_after(LogInRefusedError(["no"]), SUSHI, "SINK_DATABASE_URL")
    assert said == "heroku config:get SINK_DATABASE_URL --app sushi"


def commands(facts: Facts, app: App | None) -> list[str]:
    found = [*judge(facts, Remedies(app))]
    assert {finding.level for finding in found} == {"ok", "failure"}
    return [finding.command or "" for finding in found if finding.level == "failure"]


def test_each_failure_of_a_database_that_answers_has_a_command() -> None:
    read_only, grant, migrate = commands(BAD, None)
    assert read_only == f"export DATABASE_URL={EXAMPLE}"
    assert shlex.split(grant) == [
        "psql", "-c",
        'grant select, insert, update on source_positions, windowed_counts to "o""brien"',
    ]  # fmt: skip
    assert migrate == "python -m sink migrate"
    assert commands(BAD, SUSHI) == [
        "heroku pg:info --app sushi",
        "heroku pg:info --app sushi",
        "heroku run --app sushi -- python -m sink migrate",
    ]
    assert commands(BAD, App())[-1] == "heroku run -- python -m sink migrate"


@pytest.mark.parametrize(
    ("app", "command"),
    [
        (None, f"export DATABASE_URL={EXAMPLE}"),
        (
            SUSHI,
            "heroku addons:create heroku-postgresql:essential-0 --as DATABASE --app sushi",
        ),
    ],
)
def test_without_a_database_the_command_is_a_note(app: App | None, command: str) -> None:
    with pytest.raises(ConfigError, match="DATABASE_URL is not set") as caught:
        application.checks(Settings(), app)
    assert caught.value.__notes__ == [command]


def one_finding(environment: pytest.MonkeyPatch, url: str, app: App | None = None) -> Finding:
    environment.setenv("HEROKU_POSTGRESQL_PINK_URL", url)
    settings, _ = load(Settings, offline=True)
    (found,) = checks(settings, app)
    assert found.level == "failure"
    assert "sesame" not in f"{found}"
    return found


def test_a_database_that_is_away_is_told_with_its_command(
    environment: pytest.MonkeyPatch,
) -> None:
    found = one_finding(environment, CLOSED)
    assert found.command == """psql "$HEROKU_POSTGRESQL_PINK_URL" -c 'select 1'"""
    assert one_finding(environment, CLOSED, SUSHI).command == "heroku pg:info --app sushi"


def with_option(text: str) -> str:
    return f"{CLOSED}?{text}"


@pytest.mark.parametrize(
    ("url", "says"),
    [
        (with_option("sslmode=bogus"), 'invalid sslmode value: "bogus"'),
        (CLOSED.replace(":1/", ":99999/"), 'invalid port number: "99999"'),
        (with_option("colour=red"), 'invalid connection option "colour"'),
        (with_option("keepalives_idle=x"), 'invalid integer value "x"'),
        (with_option("port=1&port=2"), "number of hosts and ports don't match"),
        (CLOSED.replace("127.0.0.1", "db..example"), "'db..example' cannot be the name of a host"),
    ],
)
def test_an_address_that_nobody_can_use_is_a_wrong_setting(
    url: str, says: str, environment: pytest.MonkeyPatch
) -> None:
    found = one_finding(environment, url, SUSHI)
    assert found.detail.startswith("the address in HEROKU_POSTGRESQL_PINK_URL cannot be used: ")
    assert says in found.detail
    assert found.command == "heroku config:get HEROKU_POSTGRESQL_PINK_URL --app sushi"


def test_what_libpq_takes_from_elsewhere_is_named_too(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("PGSSLMODE", "bogus")
    found = one_finding(environment, CLOSED)
    assert "the address in HEROKU_POSTGRESQL_PINK_URL (or PGSSLMODE) cannot be used" in found.detail
