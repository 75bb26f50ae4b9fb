"""The examples in docstrings run, module by module."""

import doctest
from importlib import import_module
from pkgutil import walk_packages
from types import ModuleType

import pytest

import aggregator
import devstack
import ingest
import sink
import streamcore


def modules_of(package: ModuleType) -> list[str]:
    """Return the names of a package's modules; Alembic's run when they are imported."""
    found = walk_packages(package.__path__, f"{package.__name__}.")
    return [package.__name__, *(m.name for m in found if ".migrations" not in m.name)]


MODULES = [
    name
    for package in (streamcore, ingest, aggregator, sink, devstack)
    for name in modules_of(package)
    if not name.endswith(".__main__")  # runs its program
]


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_run(name: str) -> None:
    outcome = doctest.testmod(import_module(name))
    assert outcome.failed == 0
