"""Finding: what a read-only check has found, and the command that mends it."""

from dataclasses import dataclass
from typing import Literal

Level = Literal["ok", "warning", "failure", "unknown"]
"""``unknown``: the question is not ours to ask, for rights are missing."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of a report: what was looked at, what was found, what to do about it.

    >>> Finding("failure", "topic words", "missing", "heroku kafka:topics:create words").level
    'failure'
    """

    level: Level
    what: str
    detail: str
    command: str | None = None
