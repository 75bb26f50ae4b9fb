"""Fixtures: a real broker and a real database for a test session.

Both are made for the session, on ports of their own and in pytest's own temporary folder, so a
running `make run` is left alone. A test that asks for `broker` or `database` carries the marker
`broker` or `postgres` by that alone.
"""

import itertools
import shutil
import uuid
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:  # importing these takes a second, which unit tests need not pay
    from devstack.heroku.broker import HerokuBroker
    from devstack.heroku.sandbox import Sandbox
    from devstack.kafka import Broker
    from devstack.postgres import Database

# What takes a broker minutes by default takes it a second here. Records with old timestamps
# stay, unless a topic is given a retention of its own.
TEST_SETTINGS: Mapping[str, str] = {
    "log.retention.ms": "-1",
    "log.retention.check.interval.ms": "1000",
    "log.initial.task.delay.ms": "1000",
    "log.segment.delete.delay.ms": "1000",
    "log.cleaner.backoff.ms": "500",
    "group.min.session.timeout.ms": "1000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
}
_MARKERS = {"broker": "broker", "heroku_broker": "broker", "database": "postgres"}


class Names:
    """Names that no other test of this session and no earlier session has used."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix

    def __call__(self, name: str) -> str:
        """Return this test's own variant of a topic, group or application name."""
        return f"{self.prefix}{name}"


_SESSION = uuid.uuid4().hex[:6]
_NUMBERS = itertools.count(1)


@pytest.fixture
def names() -> Names:
    """Return a maker of names that belong to this test alone."""
    return Names(f"t{_SESSION}-{next(_NUMBERS)}-")


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[Broker]":
    """A running broker, shared by the session: use `names`, and never stop this one."""
    from devstack.kafka import Broker  # noqa: PLC0415

    folder = tmp_path_factory.mktemp("kafka")
    with Broker(folder, settings=dict(TEST_SETTINGS)) as running:
        yield running
    shutil.rmtree(folder / "data", ignore_errors=True)


@pytest.fixture(scope="session")
def heroku_broker(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[HerokuBroker]":
    """A running broker with TLS and rights as on Heroku, shared by the session."""
    from devstack.heroku.broker import HerokuBroker  # noqa: PLC0415

    folder = tmp_path_factory.mktemp("heroku-kafka")
    with HerokuBroker(folder, settings=dict(TEST_SETTINGS)) as running:
        yield running
    shutil.rmtree(folder / "data", ignore_errors=True)


@pytest.fixture
def heroku(
    heroku_broker: "HerokuBroker", names: Names, tmp_path_factory: pytest.TempPathFactory
) -> "Sandbox":
    """An app of this test's own on a basic plan: no topic, no group, no quota, no database."""
    from devstack.heroku.sandbox import Sandbox  # noqa: PLC0415

    name = names.prefix.removesuffix("-")
    folder = tmp_path_factory.mktemp("heroku-account")
    return Sandbox.make(heroku_broker, folder, name, prefix=f"{name}.")


@pytest.fixture(scope="session")
def database(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[Database]":
    """A running PostgreSQL, shared by the session: never stop this one."""
    from devstack.postgres import Database  # noqa: PLC0415

    folder = tmp_path_factory.mktemp("postgres")
    with Database(folder, settings={"fsync": "off"}) as running:
        yield running
    shutil.rmtree(folder / "data", ignore_errors=True)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that use our servers, before pytest leaves out what `-m` excludes."""
    for item in items:
        fixtures = getattr(item, "_fixtureinfo", None)
        if fixtures is None:
            continue
        for fixture, marker in _MARKERS.items():
            found = fixtures.name2fixturedefs.get(fixture)
            if found and found[-1].func.__module__ == __name__:
                item.add_marker(marker)
