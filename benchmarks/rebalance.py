"""How long a partition stands still when instances come and go in an orderly way.

Four events, each with full stores and words flowing: `term`, one of two is told to end, and the
other one has standbys; `back`, it starts again with the disk that it had; `scale`, a second one
starts with an empty disk beside one that has everything, without standbys; `down`, that one is told
to end again. `moved` is the longest time without a count of a task that changed its owner, `stayed`
of one that did not.
"""

import shutil
import sys
from collections import defaultdict
from collections.abc import Callable

from benchmarks import bounds, results
from benchmarks.command import (
    COMMIT_INTERVAL_MS,
    SESSION_TIMEOUT_MS,
    conduct,
    guarantees,
    judged,
    parser,
    say,
)
from benchmarks.contestants import OURS, Contestant, Group
from benchmarks.fleet import SETTLE_TIMEOUT_S, STOP_TIMEOUT_S, Fleet, fleet
from benchmarks.measure import RunError
from benchmarks.moves import Move, Watch, watch
from benchmarks.topics import Broker

FIRST, SECOND = "a", "b"
Moves = dict[str, list[Move]]


def main(arguments: list[str] | None = None) -> int:
    """Print each event and, as the last line, the longest times of each kind in seconds.

    1 when ours counted nothing, or other than was fed, or stood still for too long; 2 when a run
    failed.
    """
    options = parser("rebalance", __doc__)
    options.add_argument(
        "--entries", type=int, default=1_000_000, help="entries in each of the four stores"
    )
    options.add_argument("--part", choices=PARTS, help="with standbys, or without")
    given = options.parse_args(arguments)
    figures: list[str] = []
    broken: list[str] = []

    def run(broker: Broker, who: str, contestant: Contestant) -> bool:
        is_right = True
        for guarantee in guarantees(given):
            moves: Moves = defaultdict(list)
            kind = f"{guarantee}/{who}"
            for part in (given.part,) if given.part else PARTS:
                standbys, play = PARTS[part]
                group = Group(SESSION_TIMEOUT_MS, standbys)
                with fleet(broker, who, contestant, guarantee, COMMIT_INTERVAL_MS, group) as made:
                    for name in (FIRST, SECOND) if standbys else (FIRST,):
                        made.start(name)
                    made.wait("a fair share of tasks for each", made.shared, SETTLE_TIMEOUT_S)
                    made.fill(given.entries)
                    with watch(made) as seen:
                        for _ in range(given.rounds):
                            play(made, seen, moves, kind)
                        is_right = is_right and seen.is_exact
            figures.append(f"{kind}: {_longest(moves)}")
            if who == OURS:
                broken.extend(bounds.long_gaps(kind, moves))
        return is_right

    code = conduct("rebalance", given, run)
    last = f"rebalance {'; '.join(figures)}"
    if given.record and code == 0:
        results.append(
            f"rebalance, {given.entries} entries in each of four stores, {given.rounds} events of"
            " each kind: moved/stayed, longest in seconds",
            last,
        )
    say(last)
    return judged("rebalance", code, broken)


def _longest(moves: Moves) -> str:
    return " ".join(
        f"{event}={max(move.idle_s for move in seen):.2f}/{max(move.stayed_s for move in seen):.2f}"
        for event, seen in moves.items()
    )


def _with_standbys(fleet: Fleet, seen: Watch, moves: Moves, kind: str) -> None:
    _event("term", fleet, seen, moves, kind)
    _event("back", fleet, seen, moves, kind)


def _without_standbys(fleet: Fleet, seen: Watch, moves: Moves, kind: str) -> None:
    _event("scale", fleet, seen, moves, kind)
    _event("down", fleet, seen, moves, kind)
    shutil.rmtree(fleet.job.state_dir / SECOND)


PARTS: dict[str, tuple[int, Callable[[Fleet, Watch, Moves, str], None]]] = {
    "standbys": (1, _with_standbys),
    "alone": (0, _without_standbys),
}


def _event(event: str, fleet: Fleet, seen: Watch, moves: Moves, kind: str) -> None:
    """Let the second instance end if it lives, start it if not, and note what that did."""
    fleet.settle(SETTLE_TIMEOUT_S)
    if SECOND in fleet.living:
        ending = fleet.instance(SECOND).child
        move = seen.move(
            lambda: fleet.ask_to_stop(SECOND),
            lambda: fleet.complete() and ending.returncode is not None,
        )
        if not ending.wait(STOP_TIMEOUT_S):
            raise RunError(f"{fleet.job.application_id}: instance {SECOND} does not end")
    else:
        move = seen.move(lambda: fleet.start(SECOND), fleet.shared)
    moves[event].append(move)
    say(f"{kind} {event}: {move}; counted {seen.counted}/{seen.fed}")


if __name__ == "__main__":
    sys.exit(main())
