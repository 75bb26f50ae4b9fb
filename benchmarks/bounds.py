"""What the figures of takeovers, rebalances and guarantees may be at most, and what breaks that.

The bounds are promises of the engine, so they are judged for it alone.
"""

from collections.abc import Mapping, Sequence

from benchmarks.moves import Move

TAKEOVER_S = 2.0
"""After the session's end, with a standby, until the last task counts again."""
MOVED_S = 2.0
"""Without a count, of a task that moves: with a standby, or to an instance that is added."""
STAYED_S = 0.5
"""Without a count, of a task that stays."""
MOVES_BOUND = ("term", "back", "scale")
"""Where no standby is, who is told to end leaves tasks that have to be restored."""
RATIO = 0.8
"""What exactly-once leaves of the rate of at-least-once."""


def slow_takeovers(kind: str, kills: Sequence[Move], session_timeout_ms: int) -> list[str]:
    """Say which of the kills, with a standby, took too long; nothing: all are in time."""
    most_s = session_timeout_ms / 1_000 + TAKEOVER_S
    longest_s = max((kill.took_over_s for kill in kills), default=0.0)
    return _beyond(f"{kind}: the takeover", longest_s, most_s)


def long_gaps(kind: str, moves: Mapping[str, Sequence[Move]]) -> list[str]:
    """Say in which of the events tasks stood still for too long; nothing: in none."""
    broken: list[str] = []
    for event, seen in moves.items():
        if event in MOVES_BOUND:
            idle_s = max((move.idle_s for move in seen), default=0.0)
            broken += _beyond(f"{kind} {event}: the gap of a task that moved", idle_s, MOVED_S)
        stayed_s = max((move.stayed_s for move in seen), default=0.0)
        broken += _beyond(f"{kind} {event}: the gap of a task that stayed", stayed_s, STAYED_S)
    return broken


def dear_guarantee(at_least_once: float, exactly_once: float) -> list[str]:
    """Say if exactly-once costs too much, by the rates; nothing: it does not."""
    ratio = exactly_once / at_least_once
    if ratio >= RATIO:
        return []
    return [f"exactly_once_v2 leaves {ratio:.3f} of the rate, the bound is {RATIO:.2f}"]


def verdict(name: str, broken: Sequence[str]) -> str:
    """Return one line that says which bounds are broken; empty: none is."""
    return f"{name}: beyond the bound: {'; '.join(broken)}" if broken else ""


def _beyond(what: str, found_s: float, most_s: float) -> list[str]:
    if found_s <= most_s:
        return []
    return [f"{what} took {found_s:.2f} s, the bound is {most_s:.2f} s"]
