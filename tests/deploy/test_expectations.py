"""docs/heroku-expectations.md has every expectation, and each names tests that exist."""

import ast
import re

import pytest
from tests.deploy.buildpack import ROOT

PAGE = ROOT / "docs" / "heroku-expectations.md"
ROWS: dict[str, str] = dict(
    re.findall(r"^\| (E\d+) \| (.*) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
)
TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def test_there_are_twenty_five() -> None:
    assert list(ROWS) == [f"E{number}" for number in range(1, 26)]


@pytest.mark.parametrize("number", ROWS)
def test_a_row_says_how_it_is_met_and_names_tests_that_are_there(number: str) -> None:
    _, how, shown = ROWS[number].split(" | ")
    assert how.strip()
    named = TEST.findall(shown)
    assert named, "a row without a test"
    assert len(named) == shown.count("::"), "a name that is not read"
    for file, name in named:
        tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
        there = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        assert name in there, f"{file} has no {name}"
