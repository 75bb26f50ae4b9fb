"""The way to the database: short transactions that never wait longer than they may.

Every wait is bounded three times: by ``statement_timeout`` and ``lock_timeout`` in the server, and
by a deadline here, for a server that is frozen or unreachable enforces nothing. Should we be the
one that is frozen, in a transaction whose locks the next owner waits for, the server ends it. What
the database says comes out as the engine's errors, in one line without a secret.
"""

import os
import re
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, NoReturn, TypeVar

import psycopg
from psycopg.abc import PQGen
from sqlalchemy import URL, Connection, Engine, Select, create_engine, event, func, select
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError

from sink.settings import Address
from streamcore.errors import AuthorizationError, ConfigError, RetriableError, StreamsError

CONNECT_TIMEOUT_S: Final = 4


@dataclass(frozen=True, slots=True)
class Limits:
    """How long a transaction, a statement in it and a wait for a lock may take, and how long the
    server may hear nothing of us between two statements. ``refused_s``: for how long a log-in may
    be refused before the address is taken to be wrong; passwords are changed while we run.

    A worker that is told to stop has 25 s for everything, so it must be possible to try twice.
    """

    transaction_s: float = 7.0
    statement_ms: int = 6_000
    lock_ms: int = 3_000
    idle_ms: int = 3_000
    refused_s: float = 60.0


WORKER: Final = Limits()
MIGRATION: Final = Limits(
    transaction_s=600.0, statement_ms=600_000, lock_ms=30_000, idle_ms=60_000, refused_s=5.0
)

_Result = TypeVar("_Result")

# SQLSTATEs, or classes of them, of faults that no retry mends; everything else may pass by itself.
_MISSING = ("42P01", "42703", "3F000")  # table, column, schema
_REFUSED = ("42501",)
_OURS = ("22", "23", "42", "54", "0A")

# What libpq says where TLS cannot be had as it is asked for; there is no SQLSTATE before a session.
_NO_TLS = "server does not support SSL"
_NOT_LET_IN = re.compile(
    "password authentication failed|no password supplied|pg_hba.conf|"
    '(role|database) ".*" does not exist'
)
# What libpq, psycopg, the server or a pooler say to an address with a part that nobody can use.
_UNUSABLE = re.compile(
    r"""invalid\ "?\w+"?\ value | invalid\ integer\ value | invalid\ port\ number
    | invalid\ connection\ option | invalid\ SSL\ protocol\ version\ range
    | could\ not\ match\ \d+ | could\ not\ parse\ network\ address
    | definition\ of\ service\ .*\ not\ found | service\ file\ .*\ not\ found
    | Unix-domain\ socket\ path\ .*\ is\ too\ long
    | weak\ sslmode | cannot\ be\ mixed\ with\ negative\ methods
    | invalid\ when\ \w+\ support\ is\ not\ compiled\ in
    | authentication\ method\ requirement | channel\ binding\ required
    | certificate\ file | private\ key\ file
    | unrecognized\ configuration\ parameter | invalid\ value\ for\ parameter
    | invalid\ command-line\ argument | unsupported\ startup\ parameter""",
    re.VERBOSE,
)
_NO_TLS_HERE = (
    "the address of the database asks for TLS, as it does by itself for other hosts than this one, "
    "and {host} has none; if the way to it is safe, put ?sslmode=disable behind the address"
)
_UNTRUSTED = ("certificate verify failed", "does not match host name", "root certificate file")


class LogInRefusedError(ConfigError):
    """User, password or name of the database are wrong."""


class Database:
    """One connection, made when it is needed and made anew when it was lost."""

    def __init__(self, address: Address, limits: Limits = WORKER) -> None:
        """:raises ConfigError: if the address's hosts and ports do not fit together."""
        self._variable = address.variable
        self._host = address.url.host or "this machine"
        self._limits = limits
        self._deadline_s: float | None = None
        self._refused_since_s: float | None = None
        try:
            self._engine = self._engine_for(address.url)
        except ArgumentError as error:
            raise self._unusable(str(error)) from None

    def _engine_for(self, url: URL) -> Engine:
        engine = create_engine(
            url,
            pool_size=1,
            max_overflow=0,
            pool_pre_ping=True,
            hide_parameters=True,  # the words are somebody's text
            use_native_hstore=False,  # spares a question at every connect
            connect_args={
                "connect_timeout": CONNECT_TIMEOUT_S,
                "prepare_threshold": None,  # a pooler between us and the server need not know them
                "application_name": "streamcore sink",
            },
        )

        @event.listens_for(engine, "do_connect")
        def connect(
            _dialect: object, _record: object, arguments: list[Any], named: dict[str, Any]
        ) -> psycopg.Connection[Any]:
            try:
                connection = _Bounded.connect(*arguments, **named)
            except UnicodeError:  # of the name of the host, as in db..example
                problem = f"{self._host!r} cannot be the name of a host"
                raise self._unusable(problem) from None
            connection.database = self
            return connection

        return engine

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Run one transaction: committed at the end of the block, rolled back by an exception.

        Only settings of this transaction are made, so that a pooler may sit in between.

        :raises RetriableError: if the database is away, busy, read-only or did not answer in time;
            after that it is unknown whether a commit was done.
        :raises ConfigError: if the tables are not there, or the address cannot be used, or leads to
            no database that lets us in, or not over TLS as it asks for.
        :raises AuthorizationError: if a right is refused.
        """
        self._deadline_s = time.monotonic() + self._limits.transaction_s  # noqa: TID251 - an edge: bounds a wait
        try:
            with self._engine.begin() as connection:
                connection.execute(self._bounds())
                self._refused_since_s = None
                yield connection
        except (SQLAlchemyError, psycopg.Error) as error:
            self._raise(error)
        finally:
            self._deadline_s = None

    def _bounds(self) -> Select[Any]:
        limits = self._limits
        bounds = {
            "statement_timeout": limits.statement_ms,
            "lock_timeout": limits.lock_ms,
            "idle_in_transaction_session_timeout": limits.idle_ms,
        }
        local = True
        return select(*(func.set_config(name, f"{ms}", local) for name, ms in bounds.items()))

    def close(self) -> None:
        """Close the connection; a later transaction makes a new one."""
        self._engine.dispose()

    @property
    def late(self) -> bool:
        """True when the running transaction has had its time."""
        return self._deadline_s is not None and time.monotonic() > self._deadline_s  # noqa: TID251 - an edge: bounds a wait

    def _raise(self, error: SQLAlchemyError | psycopg.Error) -> NoReturn:
        # Neither chained: SQLAlchemy's errors hold statements, and a driver's may hold the address.
        raise self._translated(error) from None

    def _translated(self, error: SQLAlchemyError | psycopg.Error) -> StreamsError:
        cause = error.orig if isinstance(error, DBAPIError) else error
        said = " ".join(str(cause).split())  # never with the password, which a test shows
        state = (cause.sqlstate if isinstance(cause, psycopg.Error) else None) or ""
        before_a_session = isinstance(cause, psycopg.ProgrammingError) and not state
        if (before_a_session or isinstance(cause, psycopg.OperationalError)) and (
            wrong := self._wrong_address(said)
        ):
            return wrong
        if state in _MISSING:
            return ConfigError(
                [f"the database has no tables for us; run `python -m sink migrate` ({said})"]
            )
        if state in _REFUSED:
            return AuthorizationError(f"the database refuses a right: {said}")
        if state.startswith(_OURS) or (
            not state and not isinstance(cause, psycopg.OperationalError)
        ):
            return StreamsError(f"the database cannot do this: {said}")
        return RetriableError(f"the database is away: {said}" if said else "the database is away")

    def _wrong_address(self, said: str) -> ConfigError | None:
        """Judge what was said at the attempt to connect; None where waiting may help."""
        if _NO_TLS in said:
            return ConfigError([_NO_TLS_HERE.format(host=self._host)])
        if any(text in said for text in _UNTRUSTED):
            problem = f"the certificate of the database at {self._host} is not trusted: {said}"
            return ConfigError([problem])
        if _NOT_LET_IN.search(said):
            now_s = time.monotonic()  # noqa: TID251 - an edge: bounds a wait
            self._refused_since_s = self._refused_since_s or now_s
            if now_s - self._refused_since_s >= self._limits.refused_s:
                problem = f"the database at {self._host} does not let us in: {said}"
                return LogInRefusedError([f"{problem}; correct its address in {self._variable}"])
        if _UNUSABLE.search(said):
            return self._unusable(said.removeprefix("connection is bad: "))
        return None

    def _unusable(self, why: str) -> ConfigError:
        # What an address leaves open libpq takes from these; none of them is told, but their names.
        open_ends = sorted(name for name in os.environ if name.startswith("PG"))
        beside = f" (or {', '.join(open_ends)})" if open_ends else ""
        return ConfigError([f"the address in {self._variable}{beside} cannot be used: {why}"])


class _Bounded(psycopg.Connection[Any]):
    """A connection that gives up, and breaks off, when its database's deadline has passed."""

    database: Database | None = None

    def wait(self, gen: PQGen[_Result], *arguments: Any, **named: Any) -> _Result:
        try:
            return super().wait(self._until_late(gen), *arguments, **named)
        except _LateError:
            self.pgconn.finish()  # it hangs: closing it politely would, too
            raise psycopg.OperationalError("no answer in time") from None

    def _until_late(self, gen: PQGen[_Result]) -> Generator[Any, Any, _Result]:
        # psycopg resumes a waiting generator several times a second even if nothing came.
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                if self.database is not None and self.database.late:
                    raise _LateError
                wanted = gen.send(ready)
        except StopIteration as done:
            result: _Result = done.value
            return result


class _LateError(Exception):
    """The deadline has passed inside a wait."""
