"""What the commands have in common that let a contestant run in several instances."""

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence

from benchmarks import bounds, contestants, results
from benchmarks.broker import at_hand
from benchmarks.contestants import JAVA, OURS, Contestant
from benchmarks.fleet import PARTITIONS
from benchmarks.jvm import CompileError, compile_java
from benchmarks.measure import RunError
from benchmarks.moves import RATE
from benchmarks.topics import Broker
from devstack.errors import StackError
from devstack.jars import KAFKA_VERSION

GUARANTEES = ("at_least_once", "exactly_once_v2")
SESSION_TIMEOUT_MS = 6_000
COMMIT_INTERVAL_MS = 100


def parser(name: str, description: str | None) -> argparse.ArgumentParser:
    """Return the options that all of these commands have."""
    made = argparse.ArgumentParser(prog=f"python -m benchmarks.{name}", description=description)
    made.add_argument("--rounds", type=int, default=1, help="events of each kind")
    made.add_argument("--peer", choices=(JAVA, "none"), default=JAVA, help="beside whom")
    made.add_argument("--only", choices=(JAVA, OURS), help="run one of the two")
    made.add_argument("--guarantee", choices=GUARANTEES, help="run one of the two")
    made.add_argument("--record", action="store_true", help="add a row to RESULTS.md")
    return made


def guarantees(given: argparse.Namespace) -> tuple[str, ...]:
    """Return the guarantees that were asked for."""
    return (given.guarantee,) if given.guarantee else GUARANTEES


def conduct(
    name: str, given: argparse.Namespace, run: Callable[[Broker, str, Contestant], bool]
) -> int:
    """Call `run` for every contestant, on one broker; return the exit code.

    1 when a run of ours says that its counts are wrong, 2 when one failed.
    """
    is_right = True
    try:
        runners = _runners(given)
        with at_hand(name) as broker:
            _say_settings(runners)
            for who, contestant in runners.items():
                is_right = (run(broker, who, contestant) or who != OURS) and is_right
    except (CompileError, RunError, StackError) as problem:
        sys.stderr.write(f"{name}: {problem}\n")
        return 2
    return int(not is_right)


def judged(name: str, code: int, broken: Sequence[str]) -> int:
    """Return the exit code of a run with these broken bounds; one line says which they are."""
    if line := bounds.verdict(name, broken):
        sys.stderr.write(line + "\n")
        return code or 1
    return code


def _runners(given: argparse.Namespace) -> dict[str, Contestant]:
    """Return who takes part, each with its default of one process with one thread."""
    found: dict[str, Contestant] = {}
    if given.only != JAVA:
        found[OURS] = contestants.streamcore
    if given.only != OURS and given.peer == JAVA:
        found[JAVA] = contestants.java(compile_java("WordCount"), threads=1)
    return found


def _say_settings(who: Iterable[str]) -> None:
    say(f"machine: {results.machine()}; commit {results.commit()}")
    if JAVA in who:
        say(f"{JAVA}: Kafka Streams {KAFKA_VERSION}; each instance with one thread")
    say(
        f"session timeout {SESSION_TIMEOUT_MS} ms, commit every {COMMIT_INTERVAL_MS} ms,"
        f" {RATE} words/s into each of {PARTITIONS} partitions, counts read as read_committed"
    )


def say(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
