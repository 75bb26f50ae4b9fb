"""The aggregator's resident memory with a million live (word, window) pairs."""

import argparse
import sys

from benchmarks import results
from benchmarks.broker import at_hand
from benchmarks.contestants import COMMIT_INTERVAL_MS, streamcore
from benchmarks.live import live_pairs
from benchmarks.measure import RunError


def main(arguments: list[str] | None = None) -> int:
    """Print, as the last line, resident memory at the end and at its peak, in MiB."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.memory", description=__doc__)
    parser.add_argument("--pairs", type=int, default=1_000_000, help="(word, window) pairs")
    parser.add_argument("--record", action="store_true", help="add a row to RESULTS.md")
    options = parser.parse_args(arguments)
    try:
        with (
            at_hand("memory") as broker,
            live_pairs(broker, streamcore, options.pairs, COMMIT_INTERVAL_MS) as live,
        ):
            live.fill()
            filled = live.run()
    except RunError as problem:
        sys.stderr.write(f"memory: {problem}\n")
        return 2
    last = f"memory resident={filled.rss_mib} MiB peak={filled.peak_rss_mib} MiB"
    if options.record:
        results.append(f"memory with {options.pairs} live pairs", last)
    sys.stdout.write(last + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
