"""Durations as the `heroku` program reads them: `36h`, `7 days`, or digits for milliseconds."""

import re

from devstack.errors import StackError

_UNITS_MS = {
    "ms": 1, "millisecond": 1, "milliseconds": 1,
    "s": 1_000, "second": 1_000, "seconds": 1_000,
    "m": 60_000, "minute": 60_000, "minutes": 60_000,
    "h": 3_600_000, "hour": 3_600_000, "hours": 3_600_000,
    "d": 86_400_000, "day": 86_400_000, "days": 86_400_000,
}  # fmt: skip


def parse_ms(text: str) -> int:
    """Return milliseconds; raise StackError for what is no duration.

    >>> parse_ms("36h")
    129600000
    """
    found = re.fullmatch(r"(\d+) ?([a-z]*)", text.strip())
    if found is None or (found[2] and found[2] not in _UNITS_MS):
        raise StackError(f"Could not parse retention time {text!r}; expected a number, as in 10d")
    return int(found[1]) * _UNITS_MS[found[2] or "ms"]


def shown(duration_ms: int) -> str:
    """Return a duration for people.

    >>> shown(129_600_000)
    '36 hours'
    """
    for unit in ("day", "hour", "minute", "second"):
        count, rest = divmod(duration_ms, _UNITS_MS[unit])
        if count and not rest and not (unit == "day" and count == 1):
            return f"{count} {unit}{'s' if count > 1 else ''}"
    return f"{duration_ms} milliseconds"
