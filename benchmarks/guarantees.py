"""What exactly-once costs: ours under both guarantees, in turn, with a commit every second."""

import argparse
import sys

from benchmarks import bounds, results
from benchmarks.command import judged
from benchmarks.contestants import OURS
from benchmarks.measure import RunError
from benchmarks.run import GUARANTEES, Options, rounds
from benchmarks.words import RECORDS_PER_MS
from devstack.errors import StackError


def main(arguments: list[str] | None = None) -> int:
    """Print each run and, as the last line, the rate of exactly-once by that of at-least-once.

    1 when a run did not count every word fed, or exactly-once costs too much; 2 when one failed.
    """
    parser = argparse.ArgumentParser(prog="python -m benchmarks.guarantees", description=__doc__)
    parser.add_argument("--records", type=int, default=2_000_000, help="words to count")
    parser.add_argument("--rounds", type=int, default=5, help="runs of each, in turn")
    parser.add_argument("--record", action="store_true", help="add a row to RESULTS.md")
    given = parser.parse_args(arguments)
    options = Options(
        records=given.records,
        per_ms=RECORDS_PER_MS,
        rounds=given.rounds,
        contestants=(OURS,),
        guarantees=GUARANTEES,
        timeout_s=600.0,
        record=False,
    )
    try:
        tally = rounds(options)
    except (RunError, StackError) as problem:
        sys.stderr.write(f"guarantees: {problem}\n")
        return 2
    at_least_once, exactly_once = (tally.rate(guarantee, OURS) for guarantee in GUARANTEES)
    counted = tally.counted(OURS, options.records)
    last = (
        f"guarantees at_least_once={at_least_once:,.0f}/s exactly_once_v2={exactly_once:,.0f}/s"
        f" ratio={exactly_once / at_least_once:.2f} counted={counted}/{options.records}"
    )
    if given.record:
        results.append(
            f"cost of exactly-once, {options.records} records, {options.rounds} rounds", last
        )
    sys.stdout.write(last + "\n")
    broken = bounds.dear_guarantee(at_least_once, exactly_once)
    return judged("guarantees", int(counted != options.records), broken)


if __name__ == "__main__":
    sys.exit(main())
