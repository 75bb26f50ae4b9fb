"""The Procfile means the same to all who read it: three of Heroku's parsers, and `make run`."""

import re
from collections.abc import Callable, Mapping

import pytest
from tests.deploy.buildpack import ROOT

from devstack.procfile import read_procfile

WORKERS = ("ingest_worker", "aggregator_worker", "sink_worker")
TEXT = (ROOT / "Procfile").read_text(encoding="utf-8")
NAME_CHARACTERS_MAX = 63

Parser = Callable[[str], Mapping[str, str]]


class RefusedError(Exception):
    """The platform would not take this Procfile."""


def cedar(text: str) -> Mapping[str, str]:
    """Read as the older platform: letters, digits, underscores, hyphens; the rest is nothing."""
    lines = (re.match(r"^([A-Za-z0-9_-]+):\s*(.+)$", line) for line in text.splitlines())
    return {line[1]: line[2].strip() for line in lines if line}


def heroku_local(text: str) -> Mapping[str, str]:
    """Read as `heroku local` without arguments: a name has no hyphen, or nothing starts."""
    found = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not re.search(r"\w", line) or re.match(r"^\s*#", line):
            continue
        if not re.match(r"^\s*\w+:", line):
            raise RefusedError(f"line {number}: {line}")
        name, _, command = line.partition(":")
        found[name.rstrip()] = command.lstrip()
    return found


def fir(text: str) -> Mapping[str, str]:
    """Read as the newer platform: small letters, digits, hyphens; others are folded into these."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, colon, command = line.partition(":")
        folded = name.strip().lower().replace("_", "-")
        legal = re.fullmatch(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?", folded)
        if not colon or legal is None or len(folded) > NAME_CHARACTERS_MAX or not command.strip():
            raise RefusedError(line)
        if folded in found:
            raise RefusedError(f"{folded} twice: the last one would win")
        found[folded] = command.strip()
    return found


@pytest.mark.parametrize("parser", [cedar, heroku_local, fir])
def test_every_parser_reads_the_same_commands(parser: Parser) -> None:
    ours = read_procfile(ROOT / "Procfile").commands
    read = {name.replace("-", "_"): command for name, command in parser(TEXT).items()}
    assert read == ours
    assert set(read) == {"release", *WORKERS}


def test_every_line_that_says_something_is_read() -> None:
    said = [line for line in TEXT.splitlines() if line.strip() and not line.startswith("#")]
    assert len(cedar(TEXT)) == len(said)


@pytest.mark.parametrize(
    ("parser", "text"),
    [
        (heroku_local, "aggregator-worker: run\n"),
        (fir, "aggregator.worker: run\n"),
        (fir, "a_b: run\na-b: run\n"),
        (fir, "_worker: run\n"),
        (fir, f"{'a' * (NAME_CHARACTERS_MAX + 1)}: run\n"),
    ],
)
def test_the_parsers_refuse_what_the_platform_refuses(parser: Parser, text: str) -> None:
    with pytest.raises(RefusedError):
        parser(text)


def test_a_worker_is_started_by_name_whatever_its_process_type_is_called() -> None:
    """`python -m NAME` and nothing else: no shell in between that would keep a signal."""
    commands = cedar(TEXT)
    for worker in WORKERS:
        assert commands[worker] == f"python -m {worker.removesuffix('_worker')}"


def test_no_local_runner_takes_the_release_for_a_service() -> None:
    assert read_procfile(ROOT / "Procfile").services == WORKERS
