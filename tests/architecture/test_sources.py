"""Rules about the sources that no linter knows: duties, sizes, asserts, what an import loads."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import streamcore

MODULE_LINES_MAX = 400
FUNCTION_LINES_MAX = 60

ROOT = Path(streamcore.__file__).parents[4]
SOURCES = sorted(
    path
    for folder in ("libs/streamcore/src", "services", "devstack/src")
    for path in (ROOT / folder).rglob("*.py")
    if "contracts" not in path.parts  # suites of tests, which happen to be shipped
)


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


every_module = pytest.mark.parametrize("path", SOURCES, ids=name_of)


def test_the_sources_are_where_they_are_looked_for() -> None:
    assert len(SOURCES) > 80
    assert (ROOT / "pyproject.toml").exists()


@every_module
def test_a_module_says_its_duty_first(path: Path) -> None:
    text = path.read_text(encoding="utf8")
    if not text.strip():
        assert path.name == "__init__.py"
        return
    duty = ast.get_docstring(ast.parse(text))
    assert duty, "no docstring"
    assert duty.splitlines()[0].strip().endswith((".", ",", ":", ";", "(")) or len(duty) > 20


@every_module
def test_a_module_is_not_too_long(path: Path) -> None:
    assert len(path.read_text(encoding="utf8").splitlines()) <= MODULE_LINES_MAX


@every_module
def test_a_function_fits_on_a_screen(path: Path) -> None:
    long = [
        f"{node.name} has {node.end_lineno - node.lineno + 1} lines"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno is not None
        and node.end_lineno - node.lineno + 1 >= FUNCTION_LINES_MAX
    ]
    assert long == []


def test_import_streamcore_loads_no_library_of_others() -> None:
    """Topologies, tests and docs load without any client, database or settings library."""
    code = (
        "import sys; before = set(sys.modules); import streamcore; "
        "new = {name.split('.')[0] for name in set(sys.modules) - before}; "
        "print(*sorted(new - set(sys.stdlib_module_names) - {'streamcore'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_asserts_are_on() -> None:
    """They are a tool here: python -O would take them away."""
    assert __debug__
    with pytest.raises(AssertionError):
        assert SOURCES == []
