"""Alembic's entry: runs the scripts in the transaction of ``sink.migrate``."""

from alembic import context

from sink.migrate import VERSION_TABLE
from sink.table import METADATA

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=METADATA,
    version_table=VERSION_TABLE,
)
context.run_migrations()
