"""One run of one contestant, measured from outside: the same for whoever it is.

The clock starts when the first record reaches the repartition topic (the worker has started, has
its partitions and has processed a first batch), and ends when the group has committed every
record of the source and of the repartition topic. Both ends are seen by asking the broker every
`POLL_INTERVAL_S`. The rate is source records by that time. The whole time, from the start of the
process, is kept beside it: it holds the start of the JVM or of Python as well.
"""

import os
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.contestants import Contestant, Job, environment
from benchmarks.topics import Broker, Counted
from devstack.processes import Child

POLL_INTERVAL_S = 0.1
STOP_TIMEOUT_S = 60.0


class RunError(Exception):
    """A contestant ended early, stood still, or would not stop."""


@dataclass(frozen=True, slots=True)
class Run:
    """What one run showed."""

    records: int
    processing_s: float
    whole_s: float
    cpu_s: float
    rss_mib: int
    peak_rss_mib: int
    counted: Counted

    @property
    def rate(self) -> float:
        """Return source records a second, between first and last."""
        return self.records / self.processing_s


def measure(broker: Broker, contestant: Contestant, job: Job, timeout_s: float) -> Run:
    """Start the contestant, wait until it has processed everything, stop it, count its output.

    Its own output goes to `<state_dir>.log`. Raises RunError when it does not finish in
    `timeout_s` or fails.
    """
    launch = contestant(job)
    job.state_dir.mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()
    child = Child(
        job.application_id,
        launch.command,
        log=Path(f"{job.state_dir}.log"),
        env=environment(launch),
    )
    try:
        first, last = _first_and_last(broker, job, child, begun + timeout_s)
        cpu_s, rss_mib, peak_rss_mib = _usage(child.pid)
    finally:
        stopped = child.stop(patience_s=STOP_TIMEOUT_S)
    if not stopped:
        raise RunError(f"{job.application_id} did not stop within {STOP_TIMEOUT_S:.0f} s")
    records = sum(broker.ends(job.words_topic, broker.topics()[job.words_topic]))
    counted = broker.count(job.counts_topic, broker.topics()[job.counts_topic])
    return Run(records, last - first, last - begun, cpu_s, rss_mib, peak_rss_mib, counted)


def _first_and_last(broker: Broker, job: Job, child: Child, deadline: float) -> tuple[float, float]:
    repartition = f"{job.application_id}-windowed-counts-repartition"
    partitions = broker.topics()[job.words_topic]
    source_ends = broker.ends(job.words_topic, partitions)

    def wait(what: str) -> None:
        if child.returncode is not None:
            raise RunError(
                f"{job.application_id} ended early: exit code {child.returncode}\n{child.tail()}"
            )
        if time.monotonic() > deadline:
            raise RunError(f"{job.application_id}: waited in vain for {what}")
        time.sleep(POLL_INTERVAL_S)

    while repartition not in broker.topics():
        wait("its repartition topic")
    copies = broker.topics()[repartition]
    while not any(broker.ends(repartition, copies)):
        wait("its first record")
    first = time.monotonic()
    while not _reached(
        broker.committed(job.application_id, job.words_topic, partitions), source_ends
    ):
        wait("the end of the source")
    # Everything the source gave has been committed, so the repartition topic is complete.
    # Its last offset may be a transaction's marker, and no group is bound to commit behind one.
    repartition_ends = [end - 1 for end in broker.ends(repartition, copies)]
    while not _reached(broker.committed(job.application_id, repartition, copies), repartition_ends):
        wait("the end of the repartition topic")
    return first, time.monotonic()


def _reached(committed: list[int], ends: list[int]) -> bool:
    return all(offset >= end for offset, end in zip(committed, ends, strict=True))


def cpu_seconds(pid: int) -> float:
    """Return what a living process has used of the processors."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _usage(pid: int) -> tuple[float, int, int]:
    """Return processor seconds, resident memory and its peak (MiB) of a living process."""
    sizes = dict.fromkeys(("VmRSS", "VmHWM"), 0)
    for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines():
        name, _, rest = line.partition(":")
        if name in sizes:
            sizes[name] = int(rest.split()[0]) // 1024
    return cpu_seconds(pid), sizes["VmRSS"], sizes["VmHWM"]
