"""The logs of the children: where they are, and what in them is worth showing."""

import contextlib
import re
from pathlib import Path

_PROBLEM = re.compile(
    r"""\blevel=["']?(?:warn|err|crit|fatal)"""  # key=value
    r"""|["'](?:level|log_level)["']:\s*["'](?:warn|err|crit|fatal)"""  # JSON
    r"""|\[(?:warn(?:ing)?|error|critical)\s*\]"""  # structlog's console
    r"""|^(?:error|warning)\b|^Traceback |^\w+(?:\.\w+)*(?:Error|Exception):""",
    re.IGNORECASE | re.VERBOSE,
)
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_CHUNK_BYTES = 256 * 1024
_LINE_SHOWN = 300


def is_problem(line: str) -> bool:
    """Say whether a line complains.

    >>> is_problem('ts=1 level=warning event="slow"')
    True
    >>> is_problem("level=info event=started errors=0")
    False
    """
    return _PROBLEM.search(line) is not None


def set_aside(log: Path) -> None:
    """Keep the log of the former run under another name, so that each run begins a new one."""
    with contextlib.suppress(FileNotFoundError):
        log.replace(log.with_suffix(".log.old"))


class Follower:
    """Reads what has been added to a log since it last looked."""

    def __init__(self, name: str, log: Path) -> None:
        self.name = name
        self._log = log
        self._position = 0
        self._rest = b""

    def problems(self) -> list[str]:
        """Return the new lines that complain, short enough to show."""
        return [f"{self.name}: {line[:_LINE_SHOWN]}" for line in self._lines() if is_problem(line)]

    def _lines(self) -> list[str]:
        try:
            with self._log.open("rb") as opened:
                opened.seek(self._position)
                added = opened.read(_CHUNK_BYTES)
        except FileNotFoundError:
            return []
        self._position += len(added)
        *complete, self._rest = (self._rest + added).split(b"\n")
        return [_COLOUR.sub("", line.decode("utf-8", "replace")) for line in complete]
