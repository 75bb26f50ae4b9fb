"""Marks: how far event time has come on a path, and whether everybody behind it has fallen silent.

A mark is the promise "no record that I still bring is judged by a clock below ``ms``". Marks of
several inputs combine to the smallest of those that are not idle; when all are idle, to the
largest clock anybody has reached. The rule is associative, so it gives the same answer however
many hops and groups the partitions pass (a property test compares it with the flat rule).
"""

from collections.abc import Iterable
from typing import NamedTuple

from streamcore.model import NO_TIME_MS


class Mark(NamedTuple):
    """A watermark in ms and whether all that stand behind it are idle."""

    ms: int
    idle: bool


UNKNOWN = Mark(NO_TIME_MS, False)
"""Nothing known yet: it holds every watermark back."""


def combine(marks: Iterable[Mark]) -> Mark:
    """Return the mark of several inputs together.

    >>> combine([Mark(5, False), Mark(9, False), Mark(2, True)])
    Mark(ms=5, idle=False)
    >>> combine([Mark(5, True), Mark(9, True)])
    Mark(ms=9, idle=True)
    """
    awake_ms: int | None = None
    asleep_ms = NO_TIME_MS
    for ms, idle in marks:
        if idle:
            asleep_ms = max(asleep_ms, ms)
        elif awake_ms is None or ms < awake_ms:
            awake_ms = ms
    return Mark(asleep_ms, True) if awake_ms is None else Mark(awake_ms, False)
