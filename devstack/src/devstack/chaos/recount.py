"""What the counts must be, worked out from the lines alone, and where a table differs from it.

Nothing here is taken from the services: the rules are spelled out once more, so that a fault in
them does not hide itself.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

_TYPOGRAPHERS_APOSTROPHE = "\u2019"


class Line(NamedTuple):
    """A record of the topic of lines."""

    partition: int
    stamp_ms: int
    text: str


class Key(NamedTuple):
    """What is counted: a word in a window."""

    word: str
    start_ms: int
    end_ms: int


Counts = Mapping[Key, int]


@dataclass(frozen=True, slots=True)
class Recount:
    """All counts, and the number of words that came too late for their window."""

    counts: Counts
    late: int

    @property
    def windows(self) -> int:
        """How many windows have a word."""
        return len({key.start_ms for key in self.counts})

    @property
    def words(self) -> int:
        """How many words were counted."""
        return sum(self.counts.values())


def words_in(text: str) -> list[str]:
    """Return the words: lower case, runs of letters and digits, apostrophes inside.

    >>> words_in("Don\u2019t count 'em, DON'T!")
    ["don't", 'count', 'em', "don't"]
    """
    found, word = [], ""
    for character in f"{text.lower().replace(_TYPOGRAPHERS_APOSTROPHE, chr(39))} ":
        if character.isalnum() or character == "'":
            word += character
            continue
        if word.strip("'"):
            found.append(word.strip("'"))
        word = ""
    return found


def recount(lines: Iterable[Line], size_ms: int, grace_ms: int) -> Recount:
    """Count the words of lines, given by partition in order, in each window.

    A line is late by the clock of its own partition: its window ended, and the grace with it,
    before a time that the partition has already had.
    """
    counts: dict[Key, int] = {}
    clocks_ms: dict[int, int] = {}
    late = 0
    for line in lines:
        words = words_in(line.text)
        if not words:
            continue
        clock_ms = max(line.stamp_ms, clocks_ms.get(line.partition, line.stamp_ms))
        clocks_ms[line.partition] = clock_ms
        start_ms = line.stamp_ms - line.stamp_ms % size_ms
        if start_ms + size_ms + grace_ms <= clock_ms:
            late += len(words)
            continue
        for word in words:
            key = Key(word, start_ms, start_ms + size_ms)
            counts[key] = counts.get(key, 0) + 1
    return Recount(counts, late)


class Difference(NamedTuple):
    """A row whose count is not the one of the recount; no row counts as 0."""

    key: Key
    wanted: int
    found: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """How many rows there are, and those that differ: too low or missing, too high or extra."""

    rows: int
    below: tuple[Difference, ...]
    above: tuple[Difference, ...]

    @property
    def equal(self) -> bool:
        """Whether every row has the count that it must have, and there is no other."""
        return not self.below and not self.above

    @property
    def surplus(self) -> int:
        """How many words were counted more often than they came."""
        return sum(row.found - row.wanted for row in self.above)

    @property
    def lost(self) -> int:
        """How many words were not counted."""
        return sum(row.wanted - row.found for row in self.below)


def compare(wanted: Counts, found: Counts) -> Comparison:
    """Return where the found counts differ from the wanted ones, by window and word.

    A row with the count 0 that nobody wants is one too many all the same.
    """
    below, above = [], []
    for key in sorted({**wanted, **found}, key=lambda key: (key.start_ms, key.word, key.end_ms)):
        row = Difference(key, wanted.get(key, 0), found.get(key, 0))
        if row.found < row.wanted:
            below.append(row)
        elif row.found > row.wanted or key not in wanted:
            above.append(row)
    return Comparison(len(found), tuple(below), tuple(above))
