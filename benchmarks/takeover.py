"""How long counts stay away when one of two instances is killed.

With `--standbys 1` the other one has the state already, with `--standbys 0` it has to restore it.
The time is taken from the SIGKILL until a consumer with read_committed has seen the first new count
of every task that the dead one ran.
"""

import shutil
import sys

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
from benchmarks.fleet import SETTLE_TIMEOUT_S, Fleet, fleet
from benchmarks.moves import Move, watch
from benchmarks.topics import Broker

NAMES = ("a", "b")


def main(arguments: list[str] | None = None) -> int:
    """Print each kill and, as the last line, the longest takeover of each kind in seconds.

    1 when ours counted nothing, or other than was fed, or took over too late where it had standbys;
    2 when a run failed.
    """
    options = parser("takeover", __doc__)
    options.add_argument(
        "--entries",
        type=int,
        nargs="+",
        default=[1_000, 250_000],
        help="entries in each of the four stores, one size after the other",
    )
    options.add_argument("--standbys", type=int, default=1, help="num_standby_replicas")
    given = options.parse_args(arguments)
    group = Group(SESSION_TIMEOUT_MS, given.standbys)
    figures: list[str] = []
    broken: list[str] = []

    def run(broker: Broker, who: str, contestant: Contestant) -> bool:
        is_right = True
        for entries in given.entries:
            for guarantee in guarantees(given):
                kind = f"{guarantee}/{entries}/{who}"
                with fleet(broker, who, contestant, guarantee, COMMIT_INTERVAL_MS, group) as made:
                    kills, exact = _kills(made, kind, entries, given.rounds)
                figures.append(f"{kind}={max(kill.took_over_s for kill in kills):.2f}")
                if who == OURS and given.standbys:
                    broken.extend(bounds.slow_takeovers(kind, kills, SESSION_TIMEOUT_MS))
                is_right = is_right and exact
        return is_right

    code = conduct("takeover", given, run)
    last = " ".join(["takeover", f"session={SESSION_TIMEOUT_MS / 1_000:.0f}", *figures])
    if given.record and code == 0:
        results.append(
            f"takeover after SIGKILL, num_standby_replicas={given.standbys}, {given.rounds} kills"
            " of each kind: guarantee/entries in each of four stores/who=longest in seconds",
            last,
        )
    say(last)
    return judged("takeover", code, broken)


def _kills(fleet: Fleet, kind: str, entries: int, rounds: int) -> tuple[list[Move], bool]:
    for name in NAMES:
        fleet.start(name)
    fleet.wait("a fair share of tasks for each", fleet.shared, SETTLE_TIMEOUT_S)
    fleet.fill(entries)
    kills = []
    with watch(fleet) as seen:
        for number in range(rounds):
            victim = NAMES[number % len(NAMES)]
            for name in {*NAMES} - fleet.living:
                fleet.start(name)
            fleet.settle(SETTLE_TIMEOUT_S)
            kill = seen.move(lambda: fleet.kill(victim), fleet.complete)  # noqa: B023
            kills.append(kill)
            say(f"{kind}: {kill.took_over_s:.2f} s; {kill}; counted {seen.counted}/{seen.fed}")
            # A disk that is not lost would spare the next survivor a restore.
            if fleet.job.group == Group(SESSION_TIMEOUT_MS, standbys=0):
                shutil.rmtree(fleet.job.state_dir / victim)
        return kills, seen.is_exact


if __name__ == "__main__":
    sys.exit(main())
