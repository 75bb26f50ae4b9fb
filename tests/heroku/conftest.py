"""Fixtures of the tests on the Heroku-like broker."""

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from tests.integration.harness import Stack

from devstack.heroku.sandbox import Sandbox
from devstack.postgres import Database
from devstack.pytest_plugin import Names


@pytest.fixture
def stack(heroku: Sandbox, tmp_path: Path) -> Iterator[Stack]:
    """The app's services. Records go in and out by the administrator's door."""
    made = stack_of(heroku, tmp_path)
    yield made
    made.close()


@pytest.fixture
def table(database: Database, names: Names) -> Iterator[str]:
    """The URL of an empty database; its tables are not made yet."""
    name = names.prefix.replace("-", "_")
    with psycopg.connect(database.url, autocommit=True) as connection:
        connection.execute(f"create database {name}")
        yield database.url_of(name)
        connection.execute(f"drop database {name} with (force)")


def stack_of(app: Sandbox, folder: Path, **variables: str) -> Stack:
    """Return a stack whose services know nothing but the app's variables, and a disk to search."""
    stack = Stack(app.broker.admin_bootstrap, app.prefix, folder, app.env.get("DATABASE_URL", ""))
    home = folder / "home"
    home.mkdir()
    own = {"HOME": str(home), "TMPDIR": str(home), "TEMP": str(home)}
    stack.settings = {**app.env, **own, **variables}
    return stack
