"""A push builds with the stock buildpack, and the release runs where it was not built.

Needs the index of packages, as `make setup` does; what that has fetched is not fetched again.
"""

import re
import shutil
from pathlib import Path

import pytest
from tests.deploy import buildpack
from tests.deploy.buildpack import ROOT, Dyno
from tools import bootstrap

from devstack.procfile import read_procfile

COMMANDS = read_procfile(ROOT / "Procfile").commands
OUR_PACKAGES = ("streamcore", "ingest", "aggregator", "sink")
NO_VARIABLES = re.compile(r"\$|\bpoetry\b")


@pytest.fixture(scope="module")
def dyno(tmp_path_factory: pytest.TempPathFactory) -> Dyno:
    """A release: pushed, built in one folder, moved to another one, booted."""
    folder = tmp_path_factory.mktemp("heroku")
    built_in, home = folder / "build_1f3c", folder / "app"
    buildpack.push_to(built_in)
    buildpack.build(built_in)
    built_in.rename(home)
    return Dyno(home, built_in)


@pytest.fixture(scope="module")
def booted(dyno: Dyno) -> Dyno:
    """The same, after its paths were rewritten."""
    before = dyno.run("python -c 'import streamcore'")
    assert "ModuleNotFoundError" in before.stderr  # or the rewriting would show nothing
    assert len(dyno.boot()) >= len(OUR_PACKAGES)
    return dyno


# --- what is pushed -------------------------------------------------------------------------------


def test_the_root_has_one_lock_file_and_nothing_that_ends_a_build(tmp_path: Path) -> None:
    buildpack.push_to(tmp_path)
    assert buildpack.detect(tmp_path) == "poetry.lock"
    pushed = {path.name for path in tmp_path.iterdir()}
    assert not pushed & set(buildpack.MUST_NOT_BE_PUSHED)
    assert {"Procfile", "app.json", ".python-version"} <= pushed
    hooks = [path.name for path in (tmp_path / "bin").iterdir()]
    assert not {"pre_compile", "post_compile"} & set(hooks), "the newer buildpack ignores hooks"


def test_a_second_lock_file_would_be_noticed(tmp_path: Path) -> None:
    for name in ("poetry.lock", "requirements.txt"):
        (tmp_path / name).touch()
    with pytest.raises(AssertionError, match="lock files"):
        buildpack.detect(tmp_path)


def test_the_python_asked_for_has_wheels_of_the_store() -> None:
    # The buildpack's own default is too new for plyvel, and nothing can be compiled there.
    version = (ROOT / ".python-version").read_text(encoding="utf-8").strip()
    lock = (ROOT / "poetry.lock").read_text(encoding="utf-8")
    tag = "cp" + version.replace(".", "")
    assert re.search(rf"plyvel-[\d.]+-{tag}-{tag}-manylinux\w*x86_64\w*(?:\.\w+)*\.whl", lock)


def test_the_project_has_the_buildpacks_poetry() -> None:
    assert f"poetry=={buildpack.POETRY}" in bootstrap.REQUIREMENTS


# --- the release ----------------------------------------------------------------------------------


@pytest.mark.parametrize("package", OUR_PACKAGES)
def test_packages_are_imported_from_the_place_the_app_was_moved_to(
    booted: Dyno, package: str
) -> None:
    found = booted.run(f"python -c 'import {package}; print({package}.__file__)'")
    assert found.stdout.startswith(str(booted.home)), found.stderr


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_of_the_procfile_shows_its_help_without_poetry(booted: Dyno, name: str) -> None:
    assert booted.run("command -v poetry").returncode != 0
    assert NO_VARIABLES.search(COMMANDS[name]) is None
    for part in COMMANDS[name].split(" && "):
        shown = booted.run(f"{part} --help")
        assert shown.returncode == 0, f"{part}: {shown.stdout}{shown.stderr}"
        assert "Usage:" in shown.stdout


def test_the_release_finds_all_applications_where_it_was_moved_to(booted: Dyno) -> None:
    program = "from streamcore.application import applications as a; print(*[x.name for x in a()])"
    found = booted.run(f"python -c '{program}'")
    assert sorted(found.stdout.split()) == ["aggregator", "ingest", "sink"], found.stderr


def test_nothing_of_the_development_tools_is_on_the_dyno(booted: Dyno) -> None:
    there = {path.name.partition("-")[0] for path in booted.packages().glob("*.dist-info")}
    assert "confluent_kafka" in there
    assert not there & {"pytest", "mypy", "ruff", "honcho", "streamcore_devstack", "hypothesis"}


def test_without_variables_a_worker_says_what_is_missing_and_ends(booted: Dyno) -> None:
    ended = booted.run(COMMANDS["aggregator_worker"])
    assert ended.returncode == 2
    assert "KAFKA_URL is not set" in ended.stderr
    assert "Traceback" not in ended.stderr


# --- the lock file --------------------------------------------------------------------------------


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A copy of what decides about packages."""
    for name in buildpack.pushed_files():
        path = Path(name)
        if path.name in ("pyproject.toml", "poetry.lock", "poetry.toml"):
            (tmp_path / path.parent).mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / path, tmp_path / path)
    return tmp_path


def locked_anew(folder: Path) -> str:
    """Resolve the lock file anew, keeping its versions, and return it."""
    done = buildpack.poetry(folder, "lock", "--no-interaction", "--no-ansi")
    assert done.returncode == 0, done.stdout + done.stderr
    return (folder / "poetry.lock").read_text(encoding="utf-8")


def test_the_lock_file_fits_every_pyproject(clone: Path) -> None:
    checked = buildpack.poetry(clone, "check", "--lock")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert locked_anew(clone) == (ROOT / "poetry.lock").read_text(encoding="utf-8")


def test_a_dependency_of_a_package_that_was_not_locked_is_noticed(clone: Path) -> None:
    """`poetry check --lock` looks at the root's pyproject alone; the comparison finds it."""
    path = clone / "libs" / "streamcore" / "pyproject.toml"
    text = path.read_text(encoding="utf-8")
    assert '    "tenacity>=9,<10",\n' in text
    path.write_text(text.replace('    "tenacity>=9,<10",\n', '    "tenacity>=9,<9.9",\n'))
    assert buildpack.poetry(clone, "check", "--lock").returncode == 0
    assert locked_anew(clone) != (ROOT / "poetry.lock").read_text(encoding="utf-8")
