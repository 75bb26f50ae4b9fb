"""`make bench`: the article's word count, Java Kafka Streams and streamcore in turn.

The last line on stdout is plain text, the ratios of the medians (ours to Java) and how many words
ours counted of those fed: `bench at_least_once=1.07 exactly_once_v2=1.01 counted=2000000/2000000`
"""

import argparse
import shutil
import sys
import tempfile
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from benchmarks import contestants, results
from benchmarks.broker import bootstrap
from benchmarks.contestants import JAVA, OURS, Contestant, Job
from benchmarks.jars import CACHE
from benchmarks.jvm import CompileError, compile_java
from benchmarks.measure import Run, RunError, measure
from benchmarks.topics import Broker
from benchmarks.words import RECORDS_PER_MS, feed, stamped
from devstack.errors import StackError
from devstack.jars import KAFKA_VERSION

WORDS_TOPIC = "words"
PARTITIONS = 4
WINDOW_SIZE_MS = 10_000
GUARANTEES = ("at_least_once", "exactly_once_v2")


@dataclass(frozen=True, slots=True)
class Options:
    """What was asked for on the command line."""

    records: int
    per_ms: int
    rounds: int
    contestants: tuple[str, ...]
    guarantees: tuple[str, ...]
    timeout_s: float
    record: bool


@dataclass(slots=True)
class Tally:
    """The runs so far, by guarantee and contestant."""

    runs: dict[tuple[str, str], list[Run]] = field(default_factory=dict)

    def add(self, guarantee: str, name: str, run: Run) -> None:
        """Keep one run."""
        self.runs.setdefault((guarantee, name), []).append(run)

    def rate(self, guarantee: str, name: str) -> float:
        """Return the median rate."""
        return median(run.rate for run in self.runs[guarantee, name])

    def counted(self, name: str, records: int) -> int:
        """Return the count that is furthest from what was fed, 0 without runs."""
        counts = [
            run.counted.words
            for (_, runner), runs in self.runs.items()
            if runner == name
            for run in runs
        ]
        return max(counts, key=lambda count: abs(records - count), default=0)


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmark; 1 when ours did not count every word fed, 2 when a run failed."""
    options = _options(arguments)
    try:
        return _conclude(options, rounds(options))
    except (CompileError, RunError, StackError) as problem:
        sys.stderr.write(f"bench: {problem}\n")
        return 2


def rounds(options: Options) -> Tally:
    """Run each contestant under each guarantee, in turn, as often as asked for.

    Raises RunError, CompileError or StackError when one of them fails.
    """
    tally = Tally()
    CACHE.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="bench-", dir=CACHE))
    try:
        with bootstrap(folder / "broker") as servers:
            broker = Broker(servers)
            _prepare(broker, options)
            runners = _runners(options)
            _say_settings(options)
            for number in range(1, options.rounds + 1):
                # Each is the first one as often as the other, so that what drifts hits both.
                for guarantee in options.guarantees[:: 1 if number % 2 else -1]:
                    for name, contestant in runners.items():
                        job = _job(servers, name, guarantee, folder)
                        run = _one(broker, contestant, job, options)
                        tally.add(guarantee, name, run)
                        _say_run(number, guarantee, name, run, options.records)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return tally


def _options(arguments: list[str] | None) -> Options:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run", description=__doc__)
    parser.add_argument("--records", type=int, default=2_000_000, help="words to count")
    parser.add_argument(
        "--records-per-ms", type=int, default=RECORDS_PER_MS, help="fewer make more windows"
    )
    parser.add_argument("--rounds", type=int, default=3, help="runs of each, in turn")
    parser.add_argument("--only", choices=(JAVA, OURS), help="run one of the two")
    parser.add_argument("--guarantee", choices=GUARANTEES, help="run one of the two")
    parser.add_argument("--timeout", type=float, default=600.0, help="seconds for one run")
    parser.add_argument("--record", action="store_true", help="add a row to RESULTS.md")
    given = parser.parse_args(arguments)
    return Options(
        records=given.records,
        per_ms=given.records_per_ms,
        rounds=given.rounds,
        contestants=(given.only,) if given.only else (JAVA, OURS),
        guarantees=(given.guarantee,) if given.guarantee else GUARANTEES,
        timeout_s=given.timeout,
        record=given.record,
    )


def _prepare(broker: Broker, options: Options) -> None:
    """Have the words topic hold exactly the records asked for."""
    records = options.records
    present = broker.topics().get(WORDS_TOPIC)
    if present is not None:
        if sum(broker.ends(WORDS_TOPIC, present)) == records:
            return
        raise SystemExit(
            f"topic {WORDS_TOPIC} of this broker holds something else: use a broker without it"
        )
    windows = records / options.per_ms / WINDOW_SIZE_MS
    _say(
        f"filling {WORDS_TOPIC}: {records} records, {PARTITIONS} partitions, {windows:.1f} windows"
    )
    broker.create(WORDS_TOPIC, PARTITIONS)
    feed(broker.bootstrap, WORDS_TOPIC, PARTITIONS, stamped(records, options.per_ms))


def _runners(options: Options) -> dict[str, Contestant]:
    runners: dict[str, Contestant] = {}
    if JAVA in options.contestants:
        runners[JAVA] = contestants.java(compile_java("WordCount"))
    if OURS in options.contestants:
        runners[OURS] = contestants.streamcore
    return runners


def _job(servers: str, name: str, guarantee: str, folder: Path) -> Job:
    application_id = f"bench-{name}-{uuid.uuid4().hex[:8]}"
    return Job(
        bootstrap=servers,
        application_id=application_id,
        words_topic=WORDS_TOPIC,
        counts_topic=f"{application_id}-counts",
        guarantee=guarantee,
        state_dir=folder / application_id,
    )


def _one(broker: Broker, contestant: Contestant, job: Job, options: Options) -> Run:
    """Run one contestant on topics of its own; nothing of it is left for the next one."""
    broker.create(job.counts_topic, PARTITIONS)
    log = Path(f"{job.state_dir}.log")
    try:
        return measure(broker, _telling(contestant), job, options.timeout_s)
    finally:
        if log.is_file():
            _say_log(log)
        broker.delete(name for name in broker.topics() if name.startswith(job.application_id))
        shutil.rmtree(job.state_dir, ignore_errors=True)


def _telling(contestant: Contestant) -> Contestant:
    """Return the contestant, saying the variables it is started with (Java's says its own)."""

    def launch(job: Job) -> contestants.Launch:
        made = contestant(job)
        if made.variables:
            settings = ", ".join(f"{name}={value}" for name, value in made.variables.items())
            _say(f"    settings {{{settings}}}")
        return made

    return launch


def _say_settings(options: Options) -> None:
    _say(f"machine: {results.machine()}; commit {results.commit()}")
    if JAVA in options.contestants:
        _say(f"{JAVA}: Kafka Streams {KAFKA_VERSION}, {contestants.JAVA_THREADS} threads")
    if OURS in options.contestants:
        _say(f"{OURS}: python -m aggregator, one process")
    _say(f"commit every {contestants.COMMIT_INTERVAL_MS} ms, otherwise their defaults")
    _say(f"rounds: {options.rounds}")


def _say_log(log: Path) -> None:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    for line in lines if len(lines) <= 24 else [*lines[:12], "...", *lines[-12:]]:
        _say(f"    {line[:300]}")


def _say_run(number: int, guarantee: str, name: str, run: Run, records: int) -> None:
    _say(
        f"round {number} {guarantee} {name}: {run.rate:,.0f} records/s"
        f" ({run.processing_s:.2f} s from first to last, {run.whole_s:.2f} s from process start,"
        f" {run.cpu_s:.1f} s of processor, peak {run.peak_rss_mib} MiB),"
        f" counted {run.counted.words}/{records}"
        f" in {run.counted.pairs} pairs, {run.counted.records} output records"
    )


def _conclude(options: Options, tally: Tally) -> int:
    counted = tally.counted(OURS, options.records)
    rates: list[str] = []
    ratios: list[str] = []
    for guarantee in options.guarantees:
        medians = {name: tally.rate(guarantee, name) for name in options.contestants}
        shown = " ".join(f"{name} {rate:,.0f}/s" for name, rate in medians.items())
        rates.append(f"{guarantee}: {shown}")
        if len(medians) == 2:
            ratios.append(f"{guarantee}={medians[OURS] / medians[JAVA]:.2f}")
    for line in rates:
        _say(f"median {line}")
    if JAVA in options.contestants:
        _say(f"java counted={tally.counted(JAVA, options.records)}/{options.records}")
    ours = f"counted={counted}/{options.records}" if OURS in options.contestants else ""
    last = " ".join(["bench", *ratios, *([ours] if ours else [])])
    if options.record:
        results.append(
            f"word count, {options.records} records, {options.rounds} rounds",
            "; ".join([*rates, last]),
        )
    _say(last)
    return int(OURS in options.contestants and counted != options.records)


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
