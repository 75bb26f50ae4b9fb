"""What the sink's checks say of a real PostgreSQL, in each state that it can be in."""

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import psycopg
import pytest
from pydantic import SecretStr

from devstack.pytest_plugin import Names
from sink.checks import Facts, checks, judge
from sink.connection import MIGRATION, Database
from sink.migrate import VERSION_TABLE, migrate
from sink.remedies import MIGRATE, Remedies
from sink.settings import Address, Settings, database_url
from streamcore.findings import Finding
from streamcore.heroku import App
from streamcore.settings import load

if TYPE_CHECKING:
    from devstack.postgres import Database as Server

GOOD = Facts(version="16.1", local=False, tls=True, read_only=False, revision="0001", newest="0001")


class Home:
    """A database of its own, and who changes it from outside."""

    def __init__(self, server: "Server", name: str) -> None:
        self.server, self.name = server, name

    def order(self, statement: str, *, inside: bool = True) -> None:
        url = self.server.url_of(self.name if inside else "postgres")
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(statement)

    def migrate(self) -> None:
        address = Address(database_url(self.server.url_of(self.name)), "DATABASE_URL")
        database = Database(address, MIGRATION)
        migrate(database)
        database.close()

    def findings(self, url: str | None = None) -> dict[str, Finding]:
        secret = SecretStr(url or self.server.url_of(self.name))
        settings = Settings(database_url=secret)
        return {finding.what: finding for finding in checks(settings)}


@pytest.fixture
def home(database: "Server", names: Names) -> Iterator[Home]:
    made = Home(database, names("checks").replace("-", "_"))
    made.order(f"create database {made.name}", inside=False)
    yield made
    made.order(f"drop database {made.name} with (force)", inside=False)


def levels(facts: Facts) -> dict[str, str]:
    return {finding.what: finding.level for finding in judge(facts, Remedies())}


def test_a_database_without_tables_wants_the_migration_and_gets_none(home: Home) -> None:
    for _ in range(2):
        found = home.findings()
        assert found["database"].level == "ok"
        assert found["database"].detail.startswith("PostgreSQL ")
        assert (found["tables"].level, found["tables"].command) == ("failure", MIGRATE)
    home.migrate()
    assert home.findings()["tables"] == Finding("ok", "tables", "at revision 0001")


def test_a_revision_that_nobody_here_knows_is_newer(home: Home) -> None:
    home.migrate()
    home.order(f"update {VERSION_TABLE} set version_num = '9999'")
    found = home.findings()["tables"]
    assert (found.level, found.command) == ("warning", None)
    assert "9999" in found.detail


def test_a_database_that_can_only_be_read_is_a_failure(home: Home) -> None:
    home.migrate()
    home.order(f"alter database {home.name} set default_transaction_read_only = on")
    found = home.findings()
    assert found["database"].level == "failure"
    assert "only be read" in found["database"].detail
    assert found["database"].command is not None
    assert found["tables"].level == "ok"


def test_a_user_that_may_not_write_is_a_failure(home: Home) -> None:
    home.migrate()
    home.order(f"create role {home.name}_reader login password 'sesame'")
    home.order(f"grant select on all tables in schema public to {home.name}_reader")
    url = database_url(home.server.url_of(home.name))
    reader = url.set(drivername="postgresql", username=f"{home.name}_reader", password="sesame")
    address = reader.render_as_string(hide_password=False)
    found = home.findings(address)
    assert found["database"].level == "failure"
    assert "may not write" in found["database"].detail
    assert "windowed_counts" in found["database"].detail
    command = found["database"].command
    assert command is not None
    (statement,) = shlex.split(command)[2:]
    home.order(statement)  # by the owner of the tables
    assert home.findings(address)["database"].level == "ok"
    home.order(f"drop owned by {home.name}_reader")
    home.order(f"drop role {home.name}_reader")


def test_a_database_that_is_away_is_one_line_without_its_password(home: Home) -> None:
    found = home.findings("postgres://user:sesame@127.0.0.1:1/nowhere")
    assert set(found) == {"database"}
    assert found["database"].level == "failure"
    assert "sesame" not in found["database"].detail


def test_what_goes_over_the_net_in_the_open_is_a_warning() -> None:
    assert levels(GOOD) == {"database": "ok", "tables": "ok"}
    in_the_open = Facts("16.1", local=False, tls=False, read_only=False, revision="1", newest="1")
    assert levels(in_the_open)["database"] == "warning"
    at_home = Facts("16.1", local=True, tls=False, read_only=False, revision="1", newest="1")
    assert levels(at_home)["database"] == "ok"


def test_an_option_that_no_server_knows_is_a_wrong_setting_as_well(home: Home) -> None:
    found = home.findings(f"{home.server.url_of(home.name)}?options=-c%20colour%3Dred")
    assert found["database"].detail.startswith("the address in SINK_DATABASE_URL cannot be used")


@pytest.mark.parametrize("option", ["sslmode=bogus", "colour=red"])
def test_a_migration_ends_with_the_variable_that_is_wrong(home: Home, option: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "sink", "migrate"],
        env={"PATH": os.environ["PATH"], "PINK_URL": f"{home.server.url_of(home.name)}?{option}"},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert ended.returncode == 2, ended
    assert ended.stderr.startswith("sink: the address in PINK_URL cannot be used: invalid ")
    assert ended.stderr.count("\n") == 1


def test_a_wrong_password_sends_to_the_variable_that_holds_it(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = database_url(home.server.url_of(home.name)).set(
        drivername="postgresql", password="s3cret"
    )
    monkeypatch.setenv("PINK_URL", wrong.render_as_string(hide_password=False))
    monkeypatch.setenv("DATABASE_ATTACHMENT", "PINK")
    settings, _ = load(Settings, offline=True)
    (said,) = checks(settings, App("sushi"))
    assert said.level == "failure"
    assert said.command == "heroku pg:credentials:rotate PINK_URL --app sushi"
    assert said.detail.endswith("correct its address in PINK_URL")
    monkeypatch.setenv("KAFKA_URL", "kafka://127.0.0.1:1")
    ended = subprocess.run(
        [sys.executable, "-m", "sink", "migrate"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 2, ended
    assert ended.stderr.rstrip().endswith("correct its address in PINK_URL")
    assert "s3cret" not in ended.stderr + ended.stdout
