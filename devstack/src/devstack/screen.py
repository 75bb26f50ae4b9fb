"""What a person sees: a live table on a terminal, plain lines elsewhere."""

import sys
from collections.abc import Callable, Sequence
from typing import Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from devstack.counts import Snapshot, Window

PLAIN_EVERY_S = 3.0
PLAIN_AGAIN_S = 30.0
_WORDS_ON_A_LINE = 6
_PROBLEMS_SHOWN = 5


class Screen(Protocol):
    """Shows what `make run` is doing."""

    def say(self, line: str) -> None:
        """Show a line that stays."""

    def show(self, snapshot: Snapshot | None, status: str, now_s: float) -> None:
        """Show how the counts stand now."""

    def problem(self, line: str) -> None:
        """Show a line that a child has complained with."""

    def close(self) -> None:
        """Leave the terminal as it was found."""


class PlainScreen:
    """Lines for a log: one every few seconds, each complete in itself."""

    def __init__(self, write: Callable[[str], None] | None = None) -> None:
        self._write = write or _print
        self._next_s = 0.0
        self._repeat_s = 0.0
        self._last = ""

    def say(self, line: str) -> None:
        """Print the line."""
        self._write(line)

    def show(self, snapshot: Snapshot | None, status: str, now_s: float) -> None:
        """Print the newest window on one line, if the last one is long enough ago.

        When nothing changes, silence would look like an end: the line is repeated now and then.
        """
        if now_s < self._next_s:
            return
        line = _plain_line(snapshot, status)
        if line == self._last and now_s < self._repeat_s:
            return
        self._write(line)
        self._last = line
        self._next_s = now_s + PLAIN_EVERY_S
        self._repeat_s = now_s + PLAIN_AGAIN_S

    def problem(self, line: str) -> None:
        """Print the line."""
        self._write(f"! {line}")

    def close(self) -> None:
        """There is nothing to restore."""


class LiveScreen:
    """A table that is drawn again in place."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live: Live | None = None
        self._problems: list[str] = []

    def say(self, line: str) -> None:
        """Print the line above the table."""
        self._console.print(Text(line))

    def show(self, snapshot: Snapshot | None, status: str, now_s: float) -> None:  # noqa: ARG002
        """Draw the table anew."""
        picture = Group(
            Text("Top words of the newest windows (UTC)", style="bold"),
            counts_table(snapshot),
            Text(status, style="dim"),
            *(Text(f"! {line}", style="yellow") for line in self._problems),
        )
        if self._live is None:
            self._live = Live(picture, console=self._console, auto_refresh=False, transient=False)
            self._live.start()
        self._live.update(picture, refresh=True)

    def problem(self, line: str) -> None:
        """Keep the line below the table."""
        self._problems = [*self._problems, line][-_PROBLEMS_SHOWN:]

    def close(self) -> None:
        """Leave the last table standing."""
        if self._live is not None:
            self._live.stop()
            self._live = None


def make_screen() -> Screen:
    """Return the screen that fits standard output."""
    console = Console()
    return LiveScreen(console) if console.is_terminal else PlainScreen()


def _plain_line(snapshot: Snapshot | None, status: str) -> str:
    if snapshot is None:
        return f"no counts: the database does not answer | {status}"
    if not snapshot.windows:
        return f"no counts yet | {status}"
    return window_line(snapshot.windows[0])


def window_line(window: Window) -> str:
    """Return a window as one line of plain text."""
    top = " ".join(f"{printable(word)}={count}" for word, count in window.top[:_WORDS_ON_A_LINE])
    return f"{window_name(window)} {top} | {window.words} words, {window.counted} counted"


def window_name(window: Window) -> str:
    """Return the window's interval, in UTC, by time of day."""
    return f"{window.start:%H:%M:%S}-{window.end:%H:%M:%S}"


def printable(word: str) -> str:
    """Return the word with what a terminal would obey written out."""
    return "".join(letter if letter.isprintable() else f"\\u{ord(letter):04x}" for letter in word)


def counts_table(snapshot: Snapshot | None) -> RenderableType:
    """Return the newest windows side by side."""
    if snapshot is None:
        return Text("the database does not answer", style="red")
    if not snapshot.windows:
        return Text("no counts yet", style="dim")
    table = Table()
    for window in snapshot.windows:
        table.add_column(
            f"{window_name(window)}\n{window.words} words, {window.counted} counted",
            min_width=24,
        )
    rows = max(len(window.top) for window in snapshot.windows)
    for row in range(rows):
        table.add_row(*(_cell(window.top, row) for window in snapshot.windows))
    return table


def _cell(top: Sequence[tuple[str, int]], row: int) -> Text:
    if row >= len(top):
        return Text("")
    word, count = top[row]
    return Text(f"{count:>6} {printable(word)}", no_wrap=True, overflow="ellipsis")


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
