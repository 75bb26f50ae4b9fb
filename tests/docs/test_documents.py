"""What the documents name exists: links, commands, variables; and they leave no log line out."""

import ast
import inspect
import re
import runpy
import shlex
import tomllib
from collections.abc import Iterator
from datetime import timedelta
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
import streamcore.errors
from streamcore import StreamsConfig
from streamcore.adapters.watchdog import BACKUP
from streamcore.errors import (
    ConfigError,
    RecordError,
    Recovery,
    StreamsError,
    TopologyError,
    UserCodeError,
)
from streamcore.model import TaskId
from streamcore.operators import base
from streamcore.runtime import internal_topics
from streamcore.runtime.metrics import DESCRIPTIONS
from streamcore.runtime.ports import TopicSpec
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
    for program, command in re.findall(r"python -m (\w+(?:\.\w+)*)(?: ([a-z][a-z-]*))?", text):
        if program in PROGRAMS:
            words = [command, "--help"] if command else ["--help"]
            assert CliRunner().invoke(PROGRAMS[program], words).exit_code == 0, (program, command)
        else:
            module = ROOT / program.replace(".", "/")
            there = module.is_dir() or module.with_suffix(".py").is_file()
            assert there or program == "pytest", f"python -m {program}"


def test_the_migration_says_which_variables_may_hold_the_address() -> None:
    helped = CliRunner().invoke(PROGRAMS["sink"], ["migrate", "--help"]).output
    for name in ("SINK_DATABASE_URL", "DATABASE_ATTACHMENT", "DATABASE_URL"):
        assert re.search(rf"\b{name}\b", helped)


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


def test_the_layers_are_those_of_the_contract() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = project["tool"]["importlinter"]["contracts"]
    (layers,) = (contract["layers"] for contract in contracts if contract["type"] == "layers")
    page = (ROOT / "docs" / "ARCHITECTURE.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+) \| ([^|]+) \|", page, re.MULTILINE)
    assert [int(number) for number, _ in rows] == list(range(1, len(rows) + 1))
    shown = [re.findall(r"`(\w+)`", packages) for _, packages in rows]
    assert shown == [layer.split(" | ") for layer in layers]


# --- OPERATIONS leaves nothing out ----------------------------------------------------------------


LEVELS = ("debug", "info", "warn", "warning", "error", "exception", "critical")
SOURCES = sorted([*ROOT.glob("libs/*/src/**/*.py"), *ROOT.glob("services/*/src/**/*.py")])


def calls(path: Path) -> Iterator[ast.Call]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and node.args:
            yield node


def writes_a_line(call: ast.Call, path: Path) -> bool:
    """Tell whether this is a call of a log, or of the one that tells faults now and then."""
    if not isinstance(call.func, ast.Attribute):
        return False
    owner, name = ast.unparse(call.func.value), call.func.attr
    if name == "tell":
        return owner == "self._log" or path.name == "rare_log.py"
    return name in LEVELS and "log" in owner


def log_events() -> Iterator[str]:
    """Yield the event of each log line that engine and services may write, up to a variable."""
    for path in SOURCES:
        for call in calls(path):
            if not writes_a_line(call, path):
                continue
            event = call.args[0]
            if isinstance(event, ast.Constant):
                yield str(event.value)
            elif isinstance(event, ast.JoinedStr):
                yield "".join(pieces(event)[:1])
            else:
                assert ast.unparse(event) in PASSED_ON, f"{path.name}: {ast.unparse(call)}"


def pieces(message: ast.AST) -> list[str]:
    """Return the texts in a message, without its variables."""
    found = [node.value for node in ast.walk(message) if isinstance(node, ast.Constant)]
    return [text for text in found if isinstance(text, str)]


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


def chapter(heading: str) -> str:
    """Return what stands in OPERATIONS under a heading of the second level."""
    return OPERATIONS.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def first_cells(text: str) -> Iterator[str]:
    """Yield what is marked as code in the first column of each table."""
    for cell in re.findall(r"^\| ([^|]*) \|", text, re.MULTILINE):
        yield from re.findall(r"`([^`]+)`", cell)


def test_every_log_line_has_a_row() -> None:
    events = {*log_events(), *PASSED_ON_EVENTS}
    assert {"no connection to a broker", "no answer about a group"} <= events, "RareLog's"
    assert any(event.startswith("the loop is silent") for event in events), "a critical one"
    missing = sorted(event for event in events if f"`{event.strip()}" not in OPERATIONS)
    assert missing == []


def test_every_row_of_a_log_line_is_of_one_that_is_written() -> None:
    events = {*map(str.strip, log_events()), *PASSED_ON_EVENTS}
    rows = [row for row in first_cells(chapter("Log lines")) if not row.startswith("Timeout (")]
    assert len(rows) > 30
    assert [row for row in rows if row.partition(" ...")[0] not in events] == []


def test_every_message_that_ends_a_worker_has_a_row() -> None:
    """Four words of it that stand together will do: rows shorten the rest."""
    told, missing = " ".join(chapter("Exit messages").split()), []
    for path in SOURCES:
        if not {"runtime", "task", "state", "adapters", "sink"} & set(path.parts):
            continue
        for call in calls(path):
            name = getattr(call.func, "id", "")
            if name in ENDINGS:
                spoken = [text.split() for text in pieces(call)]
                runs = [" ".join(text[n : n + 4]) for text in spoken for n in range(len(text) - 3)]
                if runs and not any(run in told for run in runs):
                    missing.append(f"{path.name}: {runs[0]}")
    assert missing == []
    assert re.search("a user's function failed", str(UserCodeError(TaskId(0, 1), "", "")))
    assert "a user's function failed" in told
    for problem in misfits():
        must_have = re.findall(r"must have (?:\d|[\w']+)", problem)
        assert must_have
        assert must_have[0].replace("4", "M") in told


# What stops a worker in mid-run or at its start; what is wrong with a topology is told to whoever
# writes it.
ENDINGS = {
    name
    for name, error in vars(streamcore.errors).items()
    if inspect.isclass(error)
    and issubclass(error, StreamsError)
    and error.recovery is Recovery.STOP
    and not issubclass(error, ConfigError | TopologyError | RecordError)
}


def misfits() -> Iterator[str]:
    """Yield what is said of internal topics that do not fit."""
    wanted = [TopicSpec("a", 4, internal_topics.REPARTITION)]
    yield from internal_topics.count_problems(wanted, {"a": 3}, "b")
    found = {"cleanup.policy": "compact", "message.timestamp.type": "LogAppendTime"}
    yield from internal_topics.setting_problems(wanted, {"a": found})


def test_the_times_after_which_a_hanging_process_ends_are_the_settings() -> None:
    config = StreamsConfig(application_id="a", bootstrap_servers="b:1")
    asked, unasked = re.findall(r"`Timeout \(([\d:]+)\)!`", OPERATIONS)[::-1]
    assert asked == str(timedelta(milliseconds=config.shutdown_timeout_ms))
    assert unasked == str(timedelta(milliseconds=BACKUP * config.stall_timeout_ms))


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


# --- the trials ----------------------------------------------------------------------------------


def test_every_trial_that_is_named_is_explained_and_shown_by_tests_that_are_there() -> None:
    page = (ROOT / "tests" / "README.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| (P\d\d) \| .* \| (.*) \|$", page, re.MULTILINE))
    assert list(rows) == [f"P{number:02}" for number in range(1, 25)]
    for trial, shown in rows.items():
        named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", shown)
        assert len(named) == shown.count("::") > 0, trial
        for file, name in named:
            text = (ROOT / file).read_text(encoding="utf-8")
            assert f"\ndef {name}(" in text, f"{trial}: {file} has no {name}"
    folders = ("benchmarks", "devstack/src", "docs", "libs", "services", "tests", "tools")
    files = [*ROOT.glob("*.md"), *(p for one in folders for p in (ROOT / one).rglob("*.*"))]
    used: set[str] = set()
    for path in files:
        if path.suffix in (".py", ".md"):
            used |= set(re.findall(r"\bP\d\d\b", path.read_text(encoding="utf-8")))
    assert "P17" in used
    assert used <= set(rows)
