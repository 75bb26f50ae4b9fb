"""How fast a store comes back from its changelog: a start with an empty disk against one with it.

Both starts are of the same process over the same topics, each with a few records to count, and
each lasts until those are committed. Two rates, of the changelog's entries: `back` by the whole of
a start with an empty disk, which is what a takeover waits for, and `replay` by what the empty disk
adds to a start. Java does the same beside ours, over the same entries, with as many threads as ours
has processes.
"""

import argparse
import sys
from statistics import median

from benchmarks import results
from benchmarks.broker import at_hand
from benchmarks.contestants import JAVA, OURS, Contestant, java, ours
from benchmarks.jvm import CompileError, compile_java
from benchmarks.live import live_pairs
from benchmarks.measure import RunError
from benchmarks.topics import Broker
from devstack.errors import StackError


def main(arguments: list[str] | None = None) -> int:
    """Print the starts and, as the last line, `restore back: ...=RATE/s ... replay: ...`."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.restore", description=__doc__)
    parser.add_argument("--entries", type=int, default=1_000_000, help="(word, window) pairs")
    parser.add_argument("--rounds", type=int, default=3, help="restores of each")
    parser.add_argument("--threads", type=int, default=1, help="of Java; processes of ours")
    parser.add_argument("--peer", choices=(JAVA, "none"), default=JAVA, help="beside whom")
    parser.add_argument("--record", action="store_true", help="add a row to RESULTS.md")
    options = parser.parse_args(arguments)
    back: dict[str, float] = {}
    replay: dict[str, float] = {}
    try:
        contestants: dict[str, Contestant] = {OURS: ours(options.threads)}
        if options.peer == JAVA:
            contestants[JAVA] = java(compile_java("WordCount"), options.threads)
        with at_hand("restore") as broker:
            for who, contestant in contestants.items():
                starts = _starts(broker, who, contestant, options.entries, options.rounds)
                back[who] = options.entries / median(empty_s for _, empty_s in starts)
                replay[who] = options.entries / median(
                    empty_s - kept_s for kept_s, empty_s in starts
                )
    except (CompileError, RunError, StackError) as problem:
        sys.stderr.write(f"restore: {problem}\n")
        return 2
    last = f"restore back: {_told(back)}; replay: {_told(replay)}"
    if options.record:
        results.append(
            f"restore of {options.entries} entries, {options.threads} threads,"
            f" medians of {options.rounds} rounds",
            last,
        )
    sys.stdout.write(last + "\n")
    return 0


def _starts(
    broker: Broker, who: str, contestant: Contestant, entries: int, rounds: int
) -> list[tuple[float, float]]:
    """Return how long each start took, with its disk and with an empty one."""
    took_s = []
    with live_pairs(broker, contestant, entries, commit_interval_ms=100) as live:
        live.fill()
        live.run()
        for _ in range(rounds):
            live.touch()
            kept = live.run()
            live.touch()
            live.lose_disk()
            restored = live.run()
            took_s.append((kept.whole_s, restored.whole_s))
            sys.stdout.write(
                f"{who}: start with its disk {kept.whole_s:.2f} s, with an empty one"
                f" {restored.whole_s:.2f} s, peak {restored.peak_rss_mib} MiB\n"
            )
            sys.stdout.flush()
    return took_s


def _told(rates: dict[str, float]) -> str:
    told = " ".join(f"{who}={rate:,.0f}/s" for who, rate in rates.items())
    return f"{told} ratio={rates[OURS] / rates[JAVA]:.2f}" if JAVA in rates else told


if __name__ == "__main__":
    sys.exit(main())
