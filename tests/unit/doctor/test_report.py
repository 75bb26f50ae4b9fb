"""Findings as people and as scripts get them."""

import io
import json

import pytest
from rich.console import Console

from streamcore.doctor.report import as_json, exit_code, show
from streamcore.findings import Finding, Level

COMMAND = "heroku kafka:topics:create a-name-that-is-long --partitions 4 --retention-time 168h"
FINDINGS = (
    Finding("ok", "brokers", "2 of 2 answer"),
    Finding(
        "failure", "topic words", "missing;\naggregator does not start " + "at all " * 9, COMMAND
    ),
    Finding("unknown", "topic counts", "nobody tells"),
)


def shown(*, terminal: bool) -> str:
    out = io.StringIO()
    console = Console(
        file=out, width=80, force_terminal=terminal, color_system="standard" if terminal else None
    )
    show(FINDINGS, console)
    return out.getvalue()


@pytest.mark.parametrize(
    ("levels", "settings_are_wrong", "code"),
    [
        ([], False, 0),
        (["ok", "warning", "unknown"], False, 0),
        (["ok", "failure"], False, 1),
        (["failure"], True, 2),
    ],
)
def test_the_exit_code_is_the_worst(
    levels: list[Level], settings_are_wrong: bool, code: int
) -> None:
    findings = [Finding(level, "what", "detail") for level in levels]
    assert exit_code(findings, settings_are_wrong=settings_are_wrong) == code


def test_in_a_log_each_finding_is_one_plain_line() -> None:
    lines = shown(terminal=False).splitlines()
    assert lines[0] == "ok       brokers: 2 of 2 answer"
    assert lines[1].startswith("failure  topic words: missing; aggregator does not start at all")
    assert lines[1].endswith(f"; run: {COMMAND}")
    assert lines[2] == "unknown  topic counts: nobody tells"
    assert lines[3:] == ["doctor: 1 failure, 1 unknown, 1 ok"]
    assert "\x1b" not in "".join(lines)


def test_on_a_terminal_words_are_folded_and_commands_are_not() -> None:
    shown_lines = shown(terminal=True).splitlines()
    assert any(line.startswith("\x1b[1;31mfailure") for line in shown_lines)
    plain = [Console(file=io.StringIO()).render_str(line).plain for line in shown_lines]
    assert any(COMMAND in line for line in plain)
    assert sum("at all" in line for line in plain) > 1  # the words took several lines


def test_scripts_get_one_document() -> None:
    document = json.loads(as_json(FINDINGS, 1))
    assert document["exit_code"] == 1
    assert document["counts"] == {"ok": 1, "warning": 0, "failure": 1, "unknown": 1}
    assert document["findings"][1]["command"] == COMMAND
    assert document["findings"][0] == {
        "level": "ok",
        "what": "brokers",
        "detail": "2 of 2 answer",
        "command": None,
    }
