"""Set-up speaks one line, and knows when it has nothing to do."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from tools import other_python

from devstack.places import ROOT


@pytest.fixture(scope="module")
def bootstrap() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bootstrap", ROOT / "tools" / "bootstrap.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["HTTPSConnectionPool: Max retries exceeded"], "no network while installing"),
        (["All attempts to connect to the index failed."], "no network while installing"),
        (["OSError: [Errno 28] No space left on device"], "no disk space left"),
        (["pyproject.toml changed significantly since"], "make lock"),
        (["one", "the reason", ""], "installing failed: the reason"),
        ([], "installing failed: no output"),
    ],
)
def test_a_failed_step_is_one_line_with_the_reason(
    bootstrap: ModuleType, words: list[str], says: str
) -> None:
    line = bootstrap.reason("installing", words)
    assert says in line
    assert "\n" not in line


def test_the_stamp_follows_every_file_that_decides_about_packages(
    bootstrap: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in bootstrap.INPUTS:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    monkeypatch.setattr(bootstrap, "ROOT", tmp_path)
    seen = {bootstrap.fingerprint()}
    for name in bootstrap.INPUTS:
        with (tmp_path / name).open("ab") as opened:
            opened.write(b"\n")
        seen.add(bootstrap.fingerprint())
    assert len(seen) == len(bootstrap.INPUTS) + 1


def test_packages_are_counted_as_they_come(
    bootstrap: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    show = bootstrap.Installed()
    show("Package operations: 1 install, 1 update, 3 removals")
    show("  - Removing old (1)")
    show("  - Installing new (1.0)")
    show("  - Updating other (1.0 -> 2.0)")
    assert capsys.readouterr().out == "  1/2 new (1.0)\n  2/2 other (1.0 -> 2.0)\n"


def test_no_fitting_python_is_one_line(tmp_path: Path) -> None:
    old = tmp_path / "python3"
    old.write_text("#!/bin/sh\nexit 1\n", encoding="utf-8")
    old.chmod(0o755)
    done = subprocess.run(
        ["/bin/sh", str(ROOT / "tools" / "find-python")],
        env={"PATH": str(tmp_path), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("error: no fitting Python: install Python 3.11 or 3.12")
    assert done.stderr.count("\n") == 1


def test_the_python_asked_for_goes_first() -> None:
    done = subprocess.run(
        ["/bin/sh", str(ROOT / "tools" / "find-python")],
        env={"PATH": os.defpath, "PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == sys.executable


def test_only_the_version_that_is_asked_for_will_do() -> None:
    mine = "{}.{}".format(*sys.version_info[:2])
    found = [
        subprocess.run(
            ["/bin/sh", str(ROOT / "tools" / "find-python"), version],
            env={"PATH": "", "PYTHON": sys.executable},
            capture_output=True,
            text=True,
            check=False,
        )
        for version in (mine, "3.10")
    ]
    assert found[0].stdout.strip() == sys.executable
    assert found[1].returncode == 1
    assert "install Python 3.10" in found[1].stderr


def test_without_the_other_python_one_line_says_that_its_tests_were_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(other_python, "find", asked.append)
    assert other_python.main() == 0
    printed = capsys.readouterr().out
    assert printed.startswith("SKIPPED: ")
    assert printed.count("\n") == 1
    assert asked == [("3.11" if sys.version_info >= (3, 12) else "3.12")]


def test_no_file_names_the_host_of_a_registry() -> None:
    hosts = ("pypi" + ".org", "pythonhosted" + ".org", "repo1.maven", "repo.maven")
    tracked = [
        *ROOT.glob("*.*"),
        *(
            path
            for folder in ("tools", "devstack", ".ci", "bin", "tests/deploy")
            for path in (ROOT / folder).rglob("*")
        ),
    ]
    guilty = [
        str(path)
        for path in tracked
        if path.is_file()
        and path.suffix not in (".pyc",)
        and any(host in path.read_text(encoding="utf-8") for host in hosts)
    ]
    assert guilty == []
