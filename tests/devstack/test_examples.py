"""The examples in docstrings say what the code does."""

import doctest
import importlib

import pytest


@pytest.mark.parametrize("module", ["kafka_url", "logs", "procfile"])
def test_examples_are_true(module: str) -> None:
    results = doctest.testmod(importlib.import_module(f"devstack.{module}"))
    assert results.attempted > 0
    assert results.failed == 0
