"""The sink against a real PostgreSQL."""

import contextlib
import itertools
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from alembic.autogenerate import compare_metadata
from sqlalchemy import URL

from sink import table
from sink.connection import Database, Limits
from sink.migrate import context_of, migrate
from sink.settings import Address, database_url
from sink.store import ROWS_MAX, PostgresStore
from streamcore import Window, Windowed
from streamcore.errors import (
    ConfigError,
    MemberFencedError,
    ProcessingError,
    RetriableError,
    StreamsError,
    TaskCorruptedError,
)
from streamcore.model import Position, TopicPartition
from streamcore.testing.contracts.external_store import ExternalStoreContract
from streamcore.topology.external import ExternalBatch, ExternalStore

if TYPE_CHECKING:
    from devstack.postgres import Database as Server

COUNTS = TopicPartition("windowed-counts", 0)
QUICK = Limits(transaction_s=1.5, statement_ms=1_000, lock_ms=300)
_NUMBERS = itertools.count(1)


def at(url: URL) -> Address:
    return Address(url, "DATABASE_URL")


class Home:
    """An empty database of its own for one test, and who looks into it from outside."""

    def __init__(self, server: "Server", name: str) -> None:
        self.name = name
        self.url = server.url_of(name)
        self.admin_url = server.url_of("postgres")
        self._opened: list[Database] = []

    def database(self, limits: Limits = QUICK) -> Database:
        """Return a connection of the sink's own kind; closed after the test."""
        opened = Database(at(database_url(self.url)), limits)
        self._opened.append(opened)
        return opened

    def store(self, limits: Limits = QUICK, rows_max: int = ROWS_MAX) -> PostgresStore:
        return PostgresStore(self.database(limits), "sink-app", rows_max)

    def query(self, statement: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.url) as connection:
            return connection.execute(statement).fetchall()

    def order(self, statement: str) -> None:
        with psycopg.connect(self.admin_url, autocommit=True) as connection:
            connection.execute(statement)

    def break_connections(self) -> None:
        self.order(
            "select pg_terminate_backend(pid) from pg_stat_activity "
            f"where datname = '{self.name}' and pid <> pg_backend_pid()"
        )

    @contextmanager
    def away(self) -> Iterator[None]:
        self.order(f"alter database {self.name} allow_connections false")
        self.break_connections()
        yield
        self.order(f"alter database {self.name} allow_connections true")

    def counts(self) -> dict[tuple[str, int], int]:
        rows = self.query(
            "select word, (extract(epoch from window_start) * 1000)::bigint, count "
            "from windowed_counts"
        )
        return {(word, start): count for word, start, count in rows}

    def close(self) -> None:
        for opened in self._opened:
            opened.close()


@pytest.fixture
def empty(database: "Server") -> Iterator[Home]:
    home = Home(database, f"sink_{next(_NUMBERS)}")
    home.order(f"create database {home.name}")
    yield home
    home.close()
    home.order(f"drop database {home.name} with (force)")


@pytest.fixture
def home(empty: Home) -> Home:
    migrate(empty.database())
    return empty


def windowed(word: str, start_ms: int = 0) -> Windowed:
    return Windowed(word, Window(start_ms, start_ms + 10_000))


def batch(
    first: int, rows: Sequence[tuple[str, int]], topic_id: str = "id-1", partition: int = 0
) -> ExternalBatch:
    return ExternalBatch(
        TopicPartition(COUNTS.topic, partition),
        topic_id,
        list(range(first, first + len(rows))),
        [windowed(word) for word, _ in rows],
        [count for _, count in rows],
        [0] * len(rows),
    )


def started(home: Home, topic_id: str = "id-1", **options: Any) -> PostgresStore:
    store = home.store(**options)
    store.positions({COUNTS: topic_id})
    return store


class TestContract(ExternalStoreContract):
    @pytest.fixture(autouse=True)
    def _database(self, home: Home) -> None:
        self.home = home

    def open(self) -> ExternalStore:
        return self.home.store()

    def contents(self) -> Mapping[Any, Any]:
        return {windowed(word, start): count for (word, start), count in self.home.counts().items()}

    def away(self) -> AbstractContextManager[None]:
        return self.home.away()

    def key(self, word: str) -> Any:
        return windowed(word)


# --- the way in -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("part", "says"),
    [
        ({"password": "s3cret"}, "password authentication failed"),
        ({"username": "nobody"}, "nobody"),
        ({"database": "nowhere"}, 'database "nowhere" does not exist'),
    ],
)
def test_a_wrong_address_is_waited_out_for_a_while_and_no_longer(
    home: Home, part: dict[str, Any], says: str
) -> None:
    wrong = at(database_url(home.url).set(**part))
    database = Database(wrong, replace(QUICK, refused_s=0.3))
    with pytest.raises(RetriableError, match=says), database.transaction():
        pass
    with pytest.raises(ConfigError, match=f"does not let us in: .*{says}") as caught:
        until_it_is_given_up(database)
    assert "s3cret" not in "".join(traceback.format_exception(caught.value))
    database.close()


def until_it_is_given_up(database: Database) -> None:
    for _ in range(1_000):
        with contextlib.suppress(RetriableError), database.transaction():
            raise AssertionError("it lets us in")


def test_a_database_that_is_away_is_not_a_wrong_address(home: Home) -> None:
    database = home.database(replace(QUICK, refused_s=0.0))
    away = pytest.raises(RetriableError, match="not currently accepting")
    with home.away(), away, database.transaction():
        pass
    with database.transaction():
        pass


# --- rows -----------------------------------------------------------------------------------


def test_a_row_has_its_window_in_utc_and_the_record_it_came_from(home: Home) -> None:
    store = started(home)
    at = 1_700_000_000_000
    store.write(ExternalBatch(COUNTS, "id-1", [7], [windowed("cat", at)], [3], [at]))
    store.commit({COUNTS: Position(8, "id-1")})
    rows = home.query(
        "select word, (window_start at time zone 'UTC')::text,"
        " (window_end at time zone 'UTC')::text, count,"
        " source_topic_id, source_partition, source_offset,"
        " updated_at between now() - interval '1 minute' and now() from windowed_counts"
    )
    assert rows == [("cat", "2023-11-14 22:13:20", "2023-11-14 22:13:30", 3, "id-1", 0, 7, True)]


@pytest.mark.parametrize("start_ms", [0, 1, 999, 1_700_000_000_123, 253_402_300_789_999])
def test_window_bounds_are_exact_to_the_millisecond(home: Home, start_ms: int) -> None:
    store = started(home)
    store.write(ExternalBatch(COUNTS, "id-1", [0], [windowed("cat", start_ms)], [1], [0]))
    store.commit({COUNTS: Position(1, "id-1")})
    assert home.counts() == {("cat", start_ms): 1}


def test_words_that_text_cannot_hold_are_escaped_and_the_rest_is_written(home: Home) -> None:
    ordinary = [f"word{number}" for number in range(10)]
    words = [*ordinary, "ab\0cd", "abcd", "ab", "\ud83d", "\ud83e", "back\\slash", "é" * 5_000]
    store = started(home)
    store.write(batch(0, [(word, number) for number, word in enumerate(words, start=1)]))
    store.commit({COUNTS: Position(len(words), "id-1")})
    found = {word: count for (word, _), count in home.counts().items()}
    assert sorted(found.values()) == list(range(1, len(words) + 1))
    assert {word: found[word] for word in [*ordinary, "abcd", "ab"]} == {
        **{word: number for number, word in enumerate(ordinary, start=1)},
        "abcd": 12,
        "ab": 13,
    }
    assert found["ab\\u0000cd"] == 11
    assert found["\\ud83d"] == 14
    assert started(home).positions({COUNTS: "id-1"}) == {COUNTS: Position(len(words), "id-1")}


def test_the_same_word_and_window_twice_in_one_batch(home: Home) -> None:
    rows = [("cat", 1), ("cat", 2), ("dog", 1), ("cat", 3)]
    store = started(home)
    for _delivery in range(2):
        store.write(batch(0, rows))
        store.commit({COUNTS: Position(4, "id-1")})
    assert home.counts() == {("cat", 0): 3, ("dog", 0): 1}


def test_older_rows_never_overwrite_whatever_the_store_remembers(home: Home) -> None:
    store = started(home)
    store.write(batch(10, [("cat", 5)]))
    store.commit({COUNTS: Position(11, "id-1")})
    home.query("update source_positions set next_offset = 0 returning 1")
    again = started(home)
    again.write(batch(9, [("cat", 4)]))
    again.commit({COUNTS: Position(10, "id-1")})
    assert home.counts() == {("cat", 0): 5}


def test_many_rows_are_written_before_the_commit_with_their_position(home: Home) -> None:
    store = started(home, rows_max=5)
    store.write(batch(0, [(f"w{number}", 1) for number in range(5)]))
    assert home.counts() == {}
    store.write(batch(5, [("w0", 2)]))
    assert len(home.counts()) == 5
    assert home.query("select next_offset from source_positions") == [(5,)]
    store.commit({COUNTS: Position(6, "id-1")})
    assert home.counts()["w0", 0] == 2


def test_a_large_batch_goes_on_where_the_database_went_away(home: Home) -> None:
    store = started(home, rows_max=2)
    many = batch(0, [(f"w{number}", number) for number in range(7)])
    many.offsets = [0, 1, 1, 1, 4, 5, 6]  # rows of one record stay together
    with home.away(), pytest.raises(RetriableError):
        store.write(many)
    store.write(many)
    assert home.query("select next_offset from source_positions") == [(6,)]
    store.commit({COUNTS: Position(7, "id-1")})
    assert home.counts() == {(f"w{number}", 0): number for number in range(7)}


def test_more_rows_than_a_statement_has_parameters(home: Home) -> None:
    store = started(home, limits=Limits(), rows_max=100_000)
    store.write(batch(0, [(f"w{number}", number) for number in range(70_000)]))
    store.commit({COUNTS: Position(70_000, "id-1")})
    assert home.query("select count(*), sum(count) from windowed_counts") == [
        (70_000, sum(range(70_000)))
    ]


@pytest.mark.parametrize(
    ("key", "count", "reason"),
    [
        (None, 1, "its key is not a word with a window"),
        (windowed("cat"), None, "it has no count"),
        (windowed("cat", 2**62), 1, "after the year 9999"),
    ],
)
def test_a_row_that_no_table_can_hold_is_named_and_nothing_is_taken(
    home: Home, key: Any, count: Any, reason: str
) -> None:
    store = started(home)
    bad = ExternalBatch(COUNTS, "id-1", [4, 5], [windowed("dog"), key], [1, count], [0, 0])
    with pytest.raises(ProcessingError, match=reason) as caught:
        store.write(bad)
    assert (caught.value.partition, caught.value.offset) == (COUNTS, 5)
    store.write(batch(6, [("emu", 1)]))
    store.commit({COUNTS: Position(7, "id-1")})
    assert home.counts() == {("emu", 0): 1}


# --- faults ---------------------------------------------------------------------------------


def test_a_connection_lost_in_the_middle_loses_nothing(home: Home) -> None:
    store = started(home)
    with psycopg.connect(home.url) as other:  # holds the row that the store waits for
        other.execute("select * from source_positions for update")
        store.write(batch(0, [("cat", 1)]))
        waiting = threading.Thread(target=_break_when_waiting, args=(home,))
        waiting.start()
        with pytest.raises(RetriableError):
            store.commit({COUNTS: Position(1, "id-1")})
        waiting.join()
    assert home.counts() == {}
    store.commit({COUNTS: Position(1, "id-1")})
    assert home.counts() == {("cat", 0): 1}


def _break_when_waiting(home: Home) -> None:
    statement = (
        "select pg_terminate_backend(pid) from pg_stat_activity "
        f"where datname = '{home.name}' and wait_event_type = 'Lock'"
    )
    with psycopg.connect(home.admin_url, autocommit=True) as connection:
        for _try in range(10_000):
            if connection.execute(statement).fetchall():
                return


def wait_until_stopped(pid: int) -> None:
    """A signal is sent at once, and may be taken only when a processor is free."""
    deadline = time.monotonic() + 30
    while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
        assert time.monotonic() < deadline, "it goes on"
        time.sleep(0.01)


def test_a_frozen_database_holds_a_commit_up_for_no_longer_than_it_may(home: Home) -> None:
    store = started(home)
    store.write(batch(0, [("cat", 1)]))
    ((backend,),) = home.query(
        f"select pid from pg_stat_activity where datname = '{home.name}' and state = 'idle'"
        " and application_name = 'streamcore sink' order by backend_start desc limit 1"
    )
    os.kill(backend, signal.SIGSTOP)
    wait_until_stopped(backend)
    try:
        with pytest.raises(RetriableError, match="no answer in time"):
            store.commit({COUNTS: Position(1, "id-1")})
        store.commit({COUNTS: Position(1, "id-1")})  # another connection
    finally:
        os.kill(backend, signal.SIGCONT)
    assert home.counts() == {("cat", 0): 1}


def test_a_commit_without_an_answer_may_have_been_done(home: Home) -> None:
    store = started(home)
    store.write(batch(0, [("cat", 1)]))
    with home.away(), pytest.raises(RetriableError):
        store.commit({COUNTS: Position(1, "id-1")})
    # What the lost connection may have left behind:
    home.query("update source_positions set next_offset = 1 returning 1")
    store.commit({COUNTS: Position(1, "id-1")})
    assert home.counts() == {("cat", 0): 1}


def test_a_lock_holds_a_commit_up_for_no_longer_than_it_may(home: Home) -> None:
    store = started(home)
    store.write(batch(0, [("cat", 1)]))
    with psycopg.connect(home.url) as other:
        other.execute("lock table windowed_counts in access exclusive mode")
        with pytest.raises(RetriableError, match="lock timeout"):
            store.commit({COUNTS: Position(1, "id-1")})
    store.commit({COUNTS: Position(1, "id-1")})
    assert home.counts() == {("cat", 0): 1}


def test_a_database_that_is_read_only_for_a_while(home: Home) -> None:
    store = started(home)
    store.write(batch(0, [("cat", 1)]))
    home.order(f"alter database {home.name} set default_transaction_read_only = on")
    home.break_connections()
    with pytest.raises(RetriableError, match="read-only"):
        store.commit({COUNTS: Position(1, "id-1")})
    home.order(f"alter database {home.name} set default_transaction_read_only = off")
    home.break_connections()
    store.commit({COUNTS: Position(1, "id-1")})
    assert home.counts() == {("cat", 0): 1}


def test_a_former_owner_that_lags_behind_is_fenced(home: Home) -> None:
    zombie = started(home)
    zombie.write(batch(0, [("cat", 99)]))
    started(home)
    with pytest.raises(MemberFencedError, match="another owner"):
        zombie.commit({COUNTS: Position(1, "id-1")})
    assert home.counts() == {}


def test_a_database_that_went_back_in_time_is_noticed(home: Home) -> None:
    store = started(home)
    store.write(batch(0, [("cat", 1), ("dog", 1)]))
    store.commit({COUNTS: Position(2, "id-1")})
    home.query("update source_positions set next_offset = 1 returning 1")
    home.query("delete from windowed_counts where word = 'dog' returning 1")
    store.write(batch(2, [("cat", 2)]))
    with pytest.raises(TaskCorruptedError):
        store.commit({COUNTS: Position(3, "id-1")})
    again = home.store()
    assert again.positions({COUNTS: "id-1"}) == {COUNTS: Position(1, "id-1")}
    again.write(batch(1, [("dog", 1), ("cat", 2)]))
    again.commit({COUNTS: Position(3, "id-1")})
    assert home.counts() == {("cat", 0): 2, ("dog", 0): 1}


def test_two_writers_of_the_same_rows_do_not_deadlock(home: Home) -> None:
    stores = [home.store(Limits()) for _ in range(2)]
    for partition, store in enumerate(stores):
        store.positions({TopicPartition(COUNTS.topic, partition): "id-1"})
    words = [f"w{number}" for number in range(500)]
    orders = (words, words[::-1])
    failures: list[Exception] = []

    def write(partition: int) -> None:
        at = TopicPartition(COUNTS.topic, partition)
        try:
            for turn in range(10):
                rows = [(word, turn) for word in orders[partition]]
                stores[partition].write(batch(turn * 500, rows, partition=partition))
                stores[partition].commit({at: Position((turn + 1) * 500, "id-1")})
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=write, args=(partition,)) for partition in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert set(home.counts().values()) == {9}


def test_the_password_is_in_no_message(home: Home) -> None:
    url = database_url(home.url)
    assert url.password
    for wrong in (url.set(password="s3cret-word"), url.set(password="s3cret-word", port=1)):
        database = Database(at(wrong), QUICK)
        with pytest.raises(RetriableError) as caught, database.transaction():
            pass
        database.close()
        chain: BaseException | None = caught.value
        while chain is not None:
            assert "s3cret-word" not in f"{chain!r} {chain} {wrong} {at(wrong)!r}"
            chain = chain.__cause__ or (None if chain.__suppress_context__ else chain.__context__)


REFUSALS: tuple[tuple[dict[str, Any], dict[str, str], str], ...] = (
    ({}, {}, 'password authentication failed for user "'),
    ({"username": "nobody"}, {}, 'user "nobody"'),
    ({"database": "nowhere"}, {}, "connection"),
    ({"port": 1}, {}, "port 1 failed"),
    ({"host": "nowhere.invalid"}, {}, "nowhere.invalid"),
    ({}, {"sslmode": "require"}, "has none"),
    ({}, {"sslmode": "verify-full", "sslrootcert": "/nowhere"}, "has none"),
    ({}, {"connect_timeout": "x"}, "x"),
    ({}, {"sslmode": "nonsense"}, 'DATABASE_URL cannot be used: invalid sslmode value: "nonsense"'),
    ({}, {"nonsense": "x"}, 'DATABASE_URL cannot be used: invalid connection option "nonsense"'),
    ({}, {"keepalives": "x"}, 'invalid integer value "x"'),
    ({"port": 99_999}, {}, 'DATABASE_URL cannot be used: invalid port number: "99999"'),
    ({"host": "a..b"}, {}, "DATABASE_URL cannot be used: 'a..b' cannot be the name of a host"),
)


@pytest.mark.parametrize(("part", "options", "says"), REFUSALS)
def test_no_driver_repeats_the_password_whatever_is_wrong(
    home: Home, part: dict[str, Any], options: dict[str, str], says: str
) -> None:
    """Else it would have to be looked for in what the driver says, and a short one is in any text:
    with the password p, what is left out would tell which it is.
    """
    for password in ("p", "it's", "a b=c", "x\\y", "100%", "p@s/s:w", 'q"uote', "grün", "=\\'; "):
        secret = f"{password}{secrets.token_hex(8)}{password}" if password != "p" else password
        url = database_url(home.url).set(password=secret, query=options, **part)
        database = Database(at(url))
        with pytest.raises(StreamsError) as caught, database.transaction():
            pass
        database.close()
        said = "".join(traceback.format_exception(caught.value))
        assert says in said
        assert "***" not in said
        assert password == "p" or secret[len(password) : -len(password)] not in said


# --- tables ---------------------------------------------------------------------------------


def test_without_tables_it_says_what_to_do(empty: Home) -> None:
    with pytest.raises(ConfigError, match="python -m sink migrate"):
        started(empty)


def test_migrations_make_the_tables_that_the_code_uses(home: Home) -> None:
    with home.database().transaction() as connection:
        assert compare_metadata(context_of(connection), table.METADATA) == []
    indexes = home.query(
        "select indexdef from pg_indexes where indexname = 'windowed_counts_newest'"
    )
    assert indexes[0][0].endswith("(window_start DESC, count DESC)")


def test_two_migrations_at_once_and_one_more(empty: Home, tmp_path: Path) -> None:
    environment = {"PATH": os.environ["PATH"], "DATABASE_URL": empty.url}
    command = [sys.executable, "-m", "sink", "migrate"]
    running = [
        subprocess.Popen(
            command, env=environment, cwd=tmp_path, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )
        for _ in range(3)
    ]  # fmt: skip
    said = [process.communicate(timeout=60)[0] for process in running]
    assert said == ["sink: the tables are at revision 0001\n"] * 3
    assert [process.returncode for process in running] == [0, 0, 0]
    assert migrate(empty.database()) == "0001"
    assert home_tables(empty) == ["sink_alembic_version", "source_positions", "windowed_counts"]
    assert list(tmp_path.iterdir()) == []


def home_tables(home: Home) -> list[str]:
    rows = home.query("select tablename from pg_tables where schemaname = 'public' order by 1")
    return [name for (name,) in rows]


def test_a_migration_waits_for_a_database_that_is_away_and_then_says_so(empty: Home) -> None:
    with empty.away(), pytest.raises(RetriableError, match="not currently accepting connections"):
        migrate(empty.database(), patience_s=0.5)
    assert migrate(empty.database()) == "0001"
