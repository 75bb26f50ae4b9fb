"""Report: findings for people and for scripts."""

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from streamcore.findings import Finding, Level

LEVELS: Final[tuple[Level, ...]] = ("ok", "warning", "failure", "unknown")
_STYLES: Final[dict[Level, str]] = {
    "ok": "green",
    "warning": "yellow",
    "failure": "bold red",
    "unknown": "cyan",
}
_LEVEL_WIDTH: Final = max(map(len, LEVELS))


def exit_code(findings: Sequence[Finding], *, settings_are_wrong: bool = False) -> int:
    """Return 2 if settings cannot be read, 1 if anything failed, 0 otherwise."""
    if settings_are_wrong:
        return 2
    return 1 if any(finding.level == "failure" for finding in findings) else 0


def as_json(findings: Sequence[Finding], code: int) -> str:
    """Return one JSON document."""
    counts = Counter(finding.level for finding in findings)
    document: dict[str, Any] = {
        "exit_code": code,
        "counts": {level: counts[level] for level in LEVELS},
        "findings": [
            {
                "level": finding.level,
                "what": finding.what,
                "detail": finding.detail,
                "command": finding.command,
            }
            for finding in findings
        ],
    }
    return json.dumps(document, ensure_ascii=False, indent=2)


def line_of(finding: Finding) -> str:
    """Return a finding as one line, the command at its end.

    >>> line_of(Finding("failure", "topic words", "missing", "heroku kafka:topics:create words"))
    'failure  topic words: missing; run: heroku kafka:topics:create words'
    """
    detail = " ".join(finding.detail.split())
    command = "" if finding.command is None else f"; run: {finding.command}"
    return f"{finding.level:<{_LEVEL_WIDTH}}  {finding.what}: {detail}{command}"


def summary(findings: Sequence[Finding]) -> str:
    """Return the last line: how many of each level there are.

    >>> summary([Finding("ok", "a", "b"), Finding("ok", "c", "d"), Finding("failure", "e", "f")])
    'doctor: 1 failure, 2 ok'
    """
    counts = Counter(finding.level for finding in findings)
    worst_first: tuple[Level, ...] = ("failure", "warning", "unknown", "ok")
    said = [
        f"{counts[level]} {_many(level, counts[level])}" for level in worst_first if counts[level]
    ]
    return f"doctor: {', '.join(said) or 'nothing to look at'}"


def _many(level: Level, count: int) -> str:
    return f"{level}s" if count > 1 and level in {"warning", "failure"} else level


def show(findings: Sequence[Finding], console: Console) -> None:
    """Print for a person at a terminal, or one line each into a log.

    Commands stand on lines of their own on a terminal, never broken, ready to be copied.
    """
    if not console.is_terminal:
        for finding in findings:
            console.out(line_of(finding), highlight=False)
        console.out(summary(findings), highlight=False)
        return
    for finding in findings:
        row = Table.grid(padding=(0, 2))
        row.add_column(width=_LEVEL_WIDTH)
        row.add_column(overflow="fold")
        said = Text.assemble((finding.what, "bold"), f"  {finding.detail}")
        row.add_row(Text(finding.level, _STYLES[finding.level]), said)
        console.print(row)
        if finding.command is not None:
            console.print(Text(f"{'':{_LEVEL_WIDTH + 2}}{finding.command}", "cyan"), soft_wrap=True)
    console.print(Text(summary(findings), "bold"))
