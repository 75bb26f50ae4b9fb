"""``make sim``: replay one history and tell it, or play many and count.

python -m tests.sim --seed 17
python -m tests.sim --seeds 500 --first 900000
"""

import argparse
import sys
from collections import Counter
from collections.abc import Sequence

from tests.sim.history import History, quietly, told
from tests.sim.seeds import outcomes

SHOW_EVERY = 25


def many(seeds: Sequence[int]) -> int:
    """Play all of them, and say in one line at the end how that was; return the exit code."""
    met: Counter[str] = Counter()
    played, violations = 0, 0
    for outcome in outcomes(seeds):
        played += 1
        met.update(outcome.kinds)
        if outcome.violation:
            violations += 1
            say(f"seed {outcome.seed}: {outcome.violation}")
        if played % SHOW_EVERY == 0:
            say(f"{played} of {len(seeds)} seeds, {violations} violations")
    faults = ", ".join(f"{kind} {seeds}" for kind, seeds in sorted(met.items())) or "none"
    say(f"sim: {played} seeds, {violations} violations; seeds that met each fault: {faults}")
    return 1 if violations or not played else 0


def one(seed: int) -> int:
    """Play one seed and tell its history; return the exit code."""
    quietly()
    history = History(seed)
    violation = history.failure()
    say("\n".join(history.log))
    say(f"sim: seed {seed}: " + ("no violation" if violation is None else told(violation)))
    return 0 if violation is None else 1


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seed", type=int, help="replay this one and tell its history")
    parser.add_argument("--seeds", type=int, default=300, help="play so many (default: 300)")
    parser.add_argument("--first", type=int, default=0, help="beginning with this one")
    chosen = parser.parse_args(arguments)
    if chosen.seed is not None:
        return one(chosen.seed)
    return many(range(chosen.first, chosen.first + chosen.seeds))


if __name__ == "__main__":
    sys.exit(main())
