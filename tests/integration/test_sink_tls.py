"""The way to the database over TLS: what is trusted, what is refused, and what is said then."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest
import trustme
from sqlalchemy import URL, text
from tests.integration.conftest import MakeStack
from tests.integration.harness import COUNTS
from tests.integration.tls_front import TlsFront, authority_file, tls_front

from sink.connection import Database
from sink.settings import Address, database_url
from streamcore.errors import ConfigError

if TYPE_CHECKING:
    from devstack.postgres import Database as Server

AUTHORITY = trustme.CA()


@pytest.fixture
def front(table: str) -> Iterator[TlsFront]:
    """A front of the database of this test, with a certificate for localhost."""
    url = database_url(table)
    assert url.host
    with tls_front((url.host, url.port or 5432), AUTHORITY) as running:
        yield running


@pytest.fixture
def trusted(tmp_path: Path) -> str:
    return str(authority_file(AUTHORITY, tmp_path / "authority.pem"))


def through(front: TlsFront, table: str, host: str = "127.0.0.1", **options: str) -> URL:
    """Return the address of the database behind the front."""
    return database_url(table).set(host=host, port=front.port, query=options)


def over_tls(url: URL) -> bool:
    """Ask for something and tell whether that went over TLS."""
    database = Database(Address(url, "DATABASE_URL"))
    try:
        with database.transaction() as connection:
            assert connection.scalar(text("select 1")) == 1
            driver = connection.connection.driver_connection
            assert isinstance(driver, psycopg.Connection)
            return bool(driver.pgconn.ssl_in_use)
    finally:
        database.close()


def test_require_takes_any_certificate(front: TlsFront, table: str) -> None:
    assert over_tls(through(front, table, sslmode="require"))
    assert front.sessions == 1


def test_what_is_asked_for_another_host_by_itself_is_tls(front: TlsFront, table: str) -> None:
    elsewhere = through(front, table, host="db.example").render_as_string(hide_password=False)
    url = database_url(elsewhere)
    assert url.query == {"sslmode": "require"}
    assert over_tls(url.update_query_dict({"hostaddr": "127.0.0.1"}))


def test_verify_full_wants_the_right_authority_and_the_right_host(
    front: TlsFront, table: str, trusted: str, tmp_path: Path
) -> None:
    strict = {"sslmode": "verify-full", "hostaddr": "127.0.0.1"}
    assert over_tls(through(front, table, "localhost", sslrootcert=trusted, **strict))
    foreign = str(authority_file(trustme.CA(), tmp_path / "foreign.pem"))
    for host, root in (
        ("localhost", foreign),
        ("db.example", trusted),
        ("localhost", str(tmp_path / "none.pem")),
    ):
        with pytest.raises(ConfigError, match=f"the database at {host} is not trusted"):
            over_tls(through(front, table, host, sslrootcert=root, **strict))
    assert front.sessions == 1


def test_a_server_without_tls_where_it_is_asked_for(table: str) -> None:
    with pytest.raises(ConfigError, match="has none; if the way to it is safe, put"):
        over_tls(database_url(f"{table}?sslmode=require"))
    assert over_tls(database_url(f"{table}?sslmode=disable")) is False


def migrated(address: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "sink", "migrate"],
        env={**_clean(os.environ), "DATABASE_URL": address, **variables},
        capture_output=True, text=True, check=False, timeout=30,
    )  # fmt: skip


def _clean(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if "DATABASE" not in name}


def test_the_release_phase_over_tls_by_an_attachment(front: TlsFront, table: str) -> None:
    url = through(front, table, sslmode="require").set(drivername="postgres")
    address = url.render_as_string(hide_password=False)
    ended = migrated("", DATABASE_CONNECTION_POOL_URL=address)
    assert (ended.returncode, front.sessions) == (0, 1), ended.stderr
    ended = migrated(f"{table}?sslmode=require")
    assert ended.returncode == 2
    assert ended.stderr.count("\n") == 1, ended.stderr
    assert "asks for TLS" in ended.stderr
    assert (database_url(table).password or "nothing") not in ended.stderr


def test_a_worker_ends_with_the_line_and_does_not_wait_for_ever(
    broker: object, stacks: MakeStack, table: str
) -> None:
    stack = stacks(broker, database_url=table)
    stack.create(COUNTS, partitions=1)
    stack.migrate()
    stack.database_url += "?sslmode=require"
    sink = stack.start("sink")
    assert sink.wait(30), sink.tail(20)
    assert sink.returncode == 2, sink.tail(20)
    assert "asks for TLS" in sink.tail(3)
    assert "Traceback" not in sink.tail(40)


def test_no_state_of_a_session_is_left_for_a_pooler_to_mix_up(table: str) -> None:
    """A pool hands a session to another client after each transaction."""
    database = Database(Address(database_url(table), "DATABASE_URL"))
    with database.transaction() as connection:
        before = connection.scalar(text("select current_setting('statement_timeout')"))
        assert before != "0"
    for _ in range(10):  # the driver would prepare a statement that comes often
        with database.transaction() as connection:
            connection.execute(text("select :n"), {"n": 1})
    engine = database._engine
    with engine.connect() as connection:
        asked = "select current_setting('statement_timeout'), current_setting('lock_timeout')"
        assert connection.execute(text(asked)).one() == ("0", "0")
        held = "select count(*) from pg_locks where locktype = 'advisory'"
        assert connection.scalar(text(held)) == 0
        assert connection.scalar(text("select count(*) from pg_prepared_statements")) == 0
    database.close()


def test_one_connection_in_a_process_however_many_tasks_it_has(
    database: "Server", table: str
) -> None:
    ours = Database(Address(database_url(table), "DATABASE_URL"))
    for _ in range(3):
        with ours.transaction() as connection:
            connection.execute(text("select 1"))
    with psycopg.connect(database.url) as other:
        name = table.rpartition("/")[2]
        rows = other.execute(
            "select count(*) from pg_stat_activity where datname = %s", [name]
        ).fetchone()
    assert rows == (1,)
    ours.close()
