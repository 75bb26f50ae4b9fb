"""Fixtures of the tests that run Java."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:  # importing it takes half a second, which other tests need not pay
    from benchmarks.jvm import Compiled


@pytest.fixture(scope="session")
def java_programs() -> "Compiled":
    """Return what runs the Java programs beside this file; the first time needs a network."""
    from benchmarks.jvm import compile_java  # noqa: PLC0415

    folder = Path(__file__).parent
    return compile_java(*sorted(path.stem for path in folder.glob("*.java")), folder=folder)
