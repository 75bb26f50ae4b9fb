"""What the documents name exists: links, commands, variables; and they leave no log line out."""

import ast
import re
import runpy
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

import aggregator.__main__
import aggregator.settings
import ingest.__main__
import ingest.settings
import sink.__main__
import sink.settings
import streamcore.cli
from streamcore.operators import base
from streamcore.runtime.metrics import DESCRIPTIONS
from streamcore.settings import ServiceSettings, variables

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "tests").glob("*.md")),
]
OPERATIONS = (ROOT / "docs" / "OPERATIONS.md").read_text(encoding="utf-8")
SETTINGS: list[type[ServiceSettings]] = [
    ingest.settings.Settings,
    aggregator.settings.Settings,
    sink.settings.Settings,
]
PROGRAMS = {
    "ingest": ingest.__main__.cli,
    "aggregator": aggregator.__main__.cli,
    "sink": sink.__main__.cli,
    "streamcore": streamcore.cli.app,
}
OPERATE = runpy.run_path(str(ROOT / "docs" / "operate.py"))
every_document = pytest.mark.parametrize(
    "document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT))
)


def anchors(document: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", document.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@every_document
def test_links_lead_somewhere(document: Path) -> None:
    for link in re.findall(r"\]\(([^)]+)\)", document.read_text(encoding="utf-8")):
        if link.startswith("https://"):
            continue
        path, _, anchor = link.partition("#")
        target = (document.parent / path).resolve() if path else document
        assert target.exists(), f"{link} leads nowhere"
        assert not anchor or anchor in anchors(target), f"{link}: no such heading"


@every_document
def test_the_files_that_are_named_exist(document: Path) -> None:
    bases = (ROOT, ROOT / "libs/streamcore/src/streamcore", ROOT / "libs/streamcore/src")
    text = document.read_text(encoding="utf-8")
    for name in re.findall(r"`([\w./-]+/[\w./-]+\.(?:py|md|toml))`", text):
        assert any((base / name).exists() for base in bases), name


@every_document
def test_make_has_the_targets_that_are_named(document: Path) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    named = set(re.findall(r"`make ([a-z-]+)", document.read_text(encoding="utf-8")))
    assert named <= targets


@every_document
def test_the_variables_that_are_named_exist(document: Path) -> None:
    known = {name for settings in SETTINGS for v in variables(settings) for name in v.names}
    text = document.read_text(encoding="utf-8")
    found = re.findall(r"\b(?:STREAMCORE|INGEST|AGGREGATOR|SINK)_[A-Z_]*[A-Z]\b", text)
    assert set(found) <= known


@every_document
def test_the_commands_that_are_named_exist(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    for program, command in re.findall(r"python -m (\w+)(?: ([a-z][a-z-]*))?", text):
        if program in PROGRAMS:
            words = [command, "--help"] if command else ["--help"]
            assert CliRunner().invoke(PROGRAMS[program], words).exit_code == 0, (program, command)
        else:
            assert program in ("pytest", "devstack"), f"python -m {program}"


def operate_commands() -> list[str]:
    """Return each distinct call of docs/operate.py that a document shows."""
    texts = [document.read_text(encoding="utf-8") for document in DOCUMENTS]
    found = {
        call for text in texts for call in re.findall(r"python docs/operate.py (.+)$", text, re.M)
    }
    return sorted(found)


@pytest.mark.parametrize("command", operate_commands())
def test_operate_has_the_commands_and_options_that_are_shown(command: str) -> None:
    words = shlex.split(command)
    helped = CliRunner().invoke(OPERATE["cli"], [words[0], "--help"])
    assert helped.exit_code == 0
    for option in (word for word in words if word.startswith("--")):
        assert option in helped.output


# --- OPERATIONS leaves nothing out ----------------------------------------------------------------


def log_events() -> Iterator[tuple[str, str]]:
    """Yield (file, event) for each log line that engine and services may write."""
    sources = [*ROOT.glob("libs/*/src/**/*.py"), *ROOT.glob("services/*/src/**/*.py")]
    for path in sorted(sources):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in ("debug", "info", "warn", "warning", "error", "exception")
                and "log" in ast.unparse(node.func.value)
            ):
                event = ast.unparse(node.args[0])
                if isinstance(node.args[0], ast.Constant):
                    event = str(node.args[0].value)
                elif isinstance(node.args[0], ast.JoinedStr):
                    event = event[2:].partition("{")[0]
                elif event in PASSED_ON:
                    continue
                yield path.name, event


# Names under which an event is handed to the log; what they stand for is listed below.
PASSED_ON = {"kind", "what", "event", "warning"}
PASSED_ON_EVENTS = (
    "broker trouble",
    "revoked",
    "lost",
    "restoring",
    "restore ends",
    "changelog topic",
)


def test_every_log_line_has_a_row() -> None:
    events = {event for _, event in log_events()} | set(PASSED_ON_EVENTS)
    assert len(events) > 30
    missing = sorted(event for event in events if f"`{event.strip()}" not in OPERATIONS)
    assert missing == []


def test_every_reason_of_a_dropped_record_has_a_row() -> None:
    reasons = {
        value
        for name, value in vars(base).items()
        if name.isupper() and isinstance(value, str) and not name.startswith("_")
    }
    assert "late" in reasons
    assert sorted(reason for reason in reasons if f"`{reason}`" not in OPERATIONS) == []


def test_the_metrics_that_are_named_exist() -> None:
    named = set(re.findall(r"`(streamcore_[a-z_]+)", OPERATIONS))
    assert len(named) > 5
    assert named <= set(DESCRIPTIONS)


def test_every_folder_of_tests_has_a_row() -> None:
    table = (ROOT / "tests" / "README.md").read_text(encoding="utf-8")
    folders = [p.name for p in (ROOT / "tests").iterdir() if p.is_dir() and any(p.glob("**/*.py"))]
    assert sorted(name for name in folders if f"| `{name}/` |" not in table) == []
