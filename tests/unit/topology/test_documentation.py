"""The examples in the docstrings of serdes and topologies run, and the package loads light."""

import doctest
import subprocess
import sys
from importlib import import_module
from pkgutil import walk_packages

import pytest

import streamcore.serde
import streamcore.topology

MODULES = [
    module.name
    for package in (streamcore.serde, streamcore.topology)
    for module in walk_packages(package.__path__, f"{package.__name__}.")
]


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_run(name: str) -> None:
    assert doctest.testmod(import_module(name)).failed == 0


def test_importing_streamcore_loads_no_client_library() -> None:
    heavy = "{'confluent_kafka', 'plyvel', 'pydantic', 'psycopg', 'structlog'}"
    code = f"import sys, streamcore; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
