"""How fast a store comes back from its changelog: a start with an empty disk against one with it.

Both starts are of the same process over the same topics, each with a few records to count, and
each lasts until those are committed. What the empty disk adds is the restore; the rate is the
changelog's entries by that.
"""

import argparse
import sys

from benchmarks import results
from benchmarks.live import live_pairs
from benchmarks.measure import RunError


def main(arguments: list[str] | None = None) -> int:
    """Print both starts and, as the last line, `restore RATE/s`."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.restore", description=__doc__)
    parser.add_argument("--entries", type=int, default=1_000_000, help="(word, window) pairs")
    parser.add_argument("--record", action="store_true", help="add a row to RESULTS.md")
    options = parser.parse_args(arguments)
    try:
        with live_pairs(options.entries, commit_interval_ms=100) as live:
            live.fill()
            live.run()
            live.touch()
            kept = live.run()
            live.touch()
            live.lose_disk()
            restored = live.run()
    except RunError as problem:
        sys.stderr.write(f"restore: {problem}\n")
        return 2
    seconds = restored.whole_s - kept.whole_s
    sys.stdout.write(f"start with its disk: {kept.whole_s:.2f} s\n")
    sys.stdout.write(
        f"start with an empty disk: {restored.whole_s:.2f} s, peak {restored.peak_rss_mib} MiB\n"
    )
    last = f"restore {options.entries / seconds:,.0f}/s"
    if options.record:
        results.append(f"restore of {options.entries} entries", f"{last} ({seconds:.2f} s)")
    sys.stdout.write(last + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
