"""The pages in docs/generated are what `make docs` writes."""

import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = ("config.md", "metrics.md", "task-states.md", "topologies.md", "worker-states.md")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the pages as they would be written now."""
    folder = tmp_path_factory.mktemp("generated")
    command = [sys.executable, str(DOCS / "generate.py"), "--into", str(folder)]
    subprocess.run(command, check=True)
    return folder


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_what_the_code_says(page: str, written: Path) -> None:
    committed = (DOCS / "generated" / page).read_text(encoding="utf-8")
    assert committed == (written / page).read_text(encoding="utf-8"), "run `make docs`"


def test_there_are_no_other_pages(written: Path) -> None:
    assert sorted(path.name for path in written.iterdir()) == sorted(PAGES)
    assert sorted(path.name for path in (DOCS / "generated").iterdir()) == sorted(PAGES)
