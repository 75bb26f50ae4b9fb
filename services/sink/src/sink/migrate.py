"""Brings the database's tables to what this version of the sink needs.

Runs in one transaction under an advisory lock, so that two at once are safe: the second waits and
finds nothing left to do. Alembic's scripts lie in this package; no file in the working folder is
read.
"""

from collections.abc import Callable
from typing import Final

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection, func, select
from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception_type,
    stop_after_delay,
    wait_exponential,
)

from sink.connection import Database
from streamcore.errors import RetriableError

# Any number will do, as long as all versions of this program use the same.
_LOCK: Final = 7_243_105_927_114_811_204
VERSION_TABLE: Final = "sink_alembic_version"
"""Others may use Alembic in this database, too."""


def migrate(
    database: Database,
    patience_s: float = 0.0,
    waiting: Callable[[str], object] = lambda _reason: None,
) -> str:
    """Bring the tables up to date and return the revision that they have now.

    ``patience_s`` is for how long a database that is away is asked again; ``waiting`` is called
    once, with what it said first.

    :raises RetriableError: if it stayed away, or can only be read.
    """

    def tell(state: RetryCallState) -> None:
        if state.attempt_number == 1 and state.outcome is not None:
            waiting(str(state.outcome.exception()))

    attempts = Retrying(
        retry=retry_if_exception_type(RetriableError),
        stop=stop_after_delay(patience_s),
        wait=wait_exponential(multiplier=0.2, max=3),
        before_sleep=tell,
        reraise=True,
    )
    revision: str = attempts(_upgrade, database)
    return revision


def alembic_config(connection: Connection) -> Config:
    """Return Alembic's settings: the scripts of this package, and the connection to use."""
    config = Config()
    config.set_main_option("script_location", "sink:migrations")
    config.attributes["connection"] = connection
    return config


def context_of(connection: Connection) -> MigrationContext:
    """Return Alembic's view of the database: which revision it has."""
    return MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})


def _upgrade(database: Database) -> str:
    with database.transaction() as connection:
        if connection.scalar(select(func.pg_is_in_recovery())):
            raise RetriableError("the database is a copy that can only be read")
        connection.execute(select(func.pg_advisory_xact_lock(_LOCK)))
        command.upgrade(alembic_config(connection), "head")
        return str(context_of(connection).get_current_revision())
