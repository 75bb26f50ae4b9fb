"""What the sink can check without changing anything: its database, and the tables in it."""

from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Final

import psycopg
from alembic.script import ScriptDirectory
from sqlalchemy import URL, Connection, Table, func, select, text

from sink.connection import CONNECT_TIMEOUT_S, Database, Limits
from sink.migrate import alembic_config, context_of
from sink.remedies import Remedies
from sink.settings import NoDatabaseError, Settings, is_local
from sink.table import METADATA
from streamcore.errors import StreamsError
from streamcore.findings import Finding
from streamcore.heroku import App

_LIMITS: Final = Limits(
    transaction_s=CONNECT_TIMEOUT_S + 3, statement_ms=2_000, lock_ms=1_000, refused_s=0.0
)


@dataclass(frozen=True, slots=True)
class Facts:
    """What a database tells. ``revision`` None: no table of ours was ever made there.

    ``newest`` is the revision that this program knows; ``known``: whether it knows the other.
    ``refused``: the tables that this ``user`` may not read and write.
    """

    version: str
    local: bool
    tls: bool
    read_only: bool
    revision: str | None
    newest: str
    known: bool = True
    refused: tuple[str, ...] = ()
    user: str = ""


def checks(settings: Settings, app: App | None = None) -> Iterable[Finding]:
    """Return what is to be said of the database; no migration is run.

    ``app`` is the one that commands are for, None away from Heroku.

    :raises ConfigError: if there is no address of one; the command that mends it is a note.
    """
    try:
        address = settings.address
    except NoDatabaseError as error:
        error.add_note(Remedies(app).no_database())
        raise
    remedies = Remedies(app, address.variable)
    try:
        with closing(Database(address, _LIMITS)) as database:
            return [*judge(look(database, address.url), remedies)]
    except StreamsError as error:
        return [Finding("failure", "database", str(error), remedies.after(error))]


def look(database: Database, url: URL) -> Facts:
    """Ask the database, in a transaction that may only read.

    :raises StreamsError: if it cannot be asked.
    """
    with database.transaction() as connection:
        read_only = connection.scalar(select(func.pg_is_in_recovery())) or (
            connection.scalar(text("show default_transaction_read_only")) == "on"
        )
        connection.execute(text("set transaction read only"))
        script = ScriptDirectory.from_config(alembic_config(connection))
        revision = context_of(connection).get_current_revision()
        return Facts(
            version=str(connection.scalar(text("show server_version"))).split(" ")[0],
            local=is_local(url),
            tls=bool(_driver_of(connection).pgconn.ssl_in_use),
            read_only=bool(read_only),
            revision=revision,
            newest=str(script.get_current_head()),
            known=revision in {one.revision for one in script.walk_revisions()},
            refused=tuple(_refused(connection)) if revision else (),
            user=str(connection.scalar(text("select current_user"))),
        )


def _driver_of(connection: Connection) -> psycopg.Connection[object]:
    driver = connection.connection.driver_connection
    assert isinstance(driver, psycopg.Connection)
    return driver


def _refused(connection: Connection) -> Iterator[str]:
    for table in METADATA.sorted_tables:
        if not _may_write(connection, table):
            yield table.name


def _may_write(connection: Connection, table: Table) -> bool:
    found = func.to_regclass(table.name)
    rights = [func.has_table_privilege(found, right) for right in ("SELECT", "INSERT", "UPDATE")]
    # Null, where there is no such table: then the migrations say so.
    return all(allowed is not False for allowed in connection.execute(select(*rights)).one())


def judge(facts: Facts, remedies: Remedies) -> Iterator[Finding]:
    """Yield a line for each thing that can be wrong with a database that answers."""
    how = "over TLS" if facts.tls else "without TLS"
    answers = f"PostgreSQL {facts.version} answers, {how}"
    if facts.tls or facts.local:
        yield Finding("ok", "database", answers)
    else:
        yield Finding(
            "warning", "database", f"{answers}: words go over the net as they are; sslmode=require"
        )
    if facts.read_only:
        yield Finding(
            "failure",
            "database",
            "it can only be read: a copy, or one in maintenance; name the one that takes writes",
            remedies.read_only(),
        )
    if facts.refused:
        refused = f"this user may not write {', '.join(facts.refused)}"
        grant = remedies.grant(facts.user, facts.refused)
        yield Finding("failure", "database", refused, grant)
    yield _migrated(facts, remedies.migrate())


def _migrated(facts: Facts, command: str) -> Finding:
    if facts.revision == facts.newest:
        return Finding("ok", "tables", f"at revision {facts.revision}")
    if facts.revision is None:
        return Finding("failure", "tables", f"not there; {facts.newest} is needed", command)
    if facts.known:
        return Finding(
            "failure", "tables", f"at revision {facts.revision}; {facts.newest} is needed", command
        )
    return Finding(
        "warning",
        "tables",
        f"at revision {facts.revision}, which is newer than this program ({facts.newest})",
    )
