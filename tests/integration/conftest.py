"""Fixtures of the tests on real servers."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from tests.integration.harness import Stack

if TYPE_CHECKING:
    from devstack.kafka import Broker
    from devstack.postgres import Database
    from devstack.pytest_plugin import Names

MakeStack = Callable[..., Stack]


@pytest.fixture
def stacks(names: "Names", tmp_path: Path) -> Iterator[MakeStack]:
    """Make stacks on any broker; what they have started ends with the test."""
    made: list[Stack] = []

    def make(broker: "Broker", **options: Any) -> Stack:
        prefix = options.pop("prefix", names.prefix)
        made.append(Stack(broker.bootstrap, prefix, tmp_path, **options))
        return made[-1]

    yield make
    for stack in made:
        stack.close()


@pytest.fixture
def table(database: "Database", names: "Names") -> Iterator[str]:
    """Return the URL of an empty database for the sink; its tables are not made yet."""
    name = names.prefix.replace("-", "_")
    with psycopg.connect(database.url, autocommit=True) as connection:
        connection.execute(f"create database {name}")
        yield database.url_of(name)
        connection.execute(f"drop database {name} with (force)")


@pytest.fixture
def stack(broker: "Broker", stacks: MakeStack) -> Stack:
    """Return a stack on the session's broker, without a database."""
    return stacks(broker)
