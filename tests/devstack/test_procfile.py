"""The Procfile and SCALE, as `make run` reads them."""

from pathlib import Path

import pytest

from devstack.errors import StackError
from devstack.places import ROOT
from devstack.procfile import parse_scale, read_env_file, read_procfile

TEXT = "release: prepare\nfirst_worker: python -m first\nsecond-worker: run --a b\n"


def procfile(folder: Path, text: str = TEXT) -> Path:
    path = folder / "Procfile"
    path.write_text(text, encoding="utf-8")
    return path


def test_release_is_no_service(tmp_path: Path) -> None:
    found = read_procfile(procfile(tmp_path))
    assert found.release == "prepare"
    assert found.services == ("first_worker", "second-worker")


def test_each_service_runs_once_in_the_order_of_the_file(tmp_path: Path) -> None:
    found = read_procfile(procfile(tmp_path)).instances({})
    assert [(each.name, each.command) for each in found] == [
        ("first_worker.1", "python -m first"),
        ("second-worker.1", "run --a b"),
    ]


def test_scale_multiplies_a_service_and_numbers_its_processes(tmp_path: Path) -> None:
    found = read_procfile(procfile(tmp_path)).instances({"first_worker": 2, "second-worker": 0})
    assert [each.name for each in found] == ["first_worker.1", "first_worker.2"]
    assert [each.env["HONCHO_PROCESS_NAME"] for each in found] == [each.name for each in found]


def test_scale_of_an_unknown_service_names_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(StackError, match=r"'third'.*first_worker, second-worker"):
        read_procfile(procfile(tmp_path)).instances({"third": 1})


@pytest.mark.parametrize("text", ["", "release: prepare\n", "# nothing\n"])
def test_a_procfile_without_services_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(StackError, match="has no line"):
        read_procfile(procfile(tmp_path, text))


def test_a_name_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StackError, match="unique"):
        read_procfile(procfile(tmp_path, "a: one\na: two\n"))


def test_a_missing_procfile_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(StackError, match="No such file"):
        read_procfile(tmp_path / "Procfile")


@pytest.mark.parametrize(
    ("text", "scale"),
    [
        ("", {}),
        ("a=2", {"a": 2}),
        ("a=2,b-c=0", {"a": 2, "b-c": 0}),
        (" a=1  b=3 ", {"a": 1, "b": 3}),
    ],
)
def test_scale_is_read(text: str, scale: dict[str, int]) -> None:
    assert parse_scale(text) == scale


@pytest.mark.parametrize("text", ["a", "a=", "a=-1", "a=x", "=2", "a = 2"])
def test_what_is_no_scale_is_refused(text: str) -> None:
    with pytest.raises(StackError, match="SCALE"):
        parse_scale(text)


def test_the_projects_own_procfile_starts_the_three_services() -> None:
    found = read_procfile(ROOT / "Procfile")
    assert found.services == ("ingest_worker", "aggregator_worker", "sink_worker")
    assert found.release == "python -m sink migrate && python -m streamcore doctor --release"
    assert not any("poetry" in command for command in found.commands.values())


def test_an_env_file_is_read_and_may_be_absent(tmp_path: Path) -> None:
    path = tmp_path / ".env"
    assert read_env_file(path) == {}
    path.write_text("A=1\nB='two words'\n", encoding="utf-8")
    assert read_env_file(path) == {"A": "1", "B": "two words"}
