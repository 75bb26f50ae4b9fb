"""Who runs the word count: how each contestant's process is started. The measure knows neither."""

import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from benchmarks.jvm import Compiled
from devstack.ports import free_port
from devstack.processes import Child

JAVA = "java"
OURS = "streamcore"
JAVA_THREADS = 2
COMMIT_INTERVAL_MS = 1_000
# A setting of the caller's must not reach a contestant: both run with their defaults.
_SETTING_PREFIXES = ("STREAMCORE_", "INGEST_", "AGGREGATOR_", "SINK_", "KAFKA_")
_PLAIN_SETTINGS = frozenset(
    {"EMIT", "WINDOW_SIZE_MS", "GRACE_MS", "WORDS_TOPIC", "COUNTS_TOPIC", "JAVA_TOOL_OPTIONS"}
)
_TASK_OF_METRIC = re.compile(r'^streamcore_task_watermark_ms\{task="([0-9]+_[0-9]+)"\}', re.M)
_TASKS_OF_LOG = re.compile(r"^tasks (.*)$", re.M)

Tasks = frozenset[str]


@dataclass(frozen=True, slots=True)
class Group:
    """What several instances of one application agree on."""

    session_timeout_ms: int
    standbys: int


@dataclass(frozen=True, slots=True)
class Job:
    """One run: what to read, where to write, under which name and guarantee."""

    bootstrap: str
    application_id: str
    words_topic: str
    counts_topic: str
    guarantee: str
    state_dir: Path
    commit_interval_ms: int = COMMIT_INTERVAL_MS
    group: Group | None = None
    """None: alone, with the defaults."""


def _unknown(_child: Child) -> Tasks:
    return frozenset()


@dataclass(frozen=True, slots=True)
class Launch:
    """A process to be: its command line and the variables it gets besides ours."""

    command: list[str]
    variables: dict[str, str]
    tasks: Callable[[Child], Tasks] = field(default=_unknown)
    """Which tasks it runs, once it has started; none while it does not say."""


Contestant = Callable[[Job], Launch]


def java(compiled: Compiled, threads: int = JAVA_THREADS) -> Contestant:
    """Return how Kafka Streams is started: our own WordCount.java."""

    def launch(job: Job) -> Launch:
        arguments = (
            job.bootstrap,
            job.application_id,
            job.words_topic,
            job.counts_topic,
            str(job.state_dir),
            job.guarantee,
            str(job.commit_interval_ms),
            str(threads),
            *_java_group(job.group),
        )
        return Launch(compiled.command("WordCount", *arguments), {}, _java_tasks)

    return launch


def _java_group(group: Group | None) -> list[str]:
    if group is None:
        return []
    settings = {
        "consumer.session.timeout.ms": group.session_timeout_ms,
        # A third, as Kafka's documentation advises; the default would be half of such a session.
        "consumer.heartbeat.interval.ms": group.session_timeout_ms // 3,
        "num.standby.replicas": group.standbys,
        # How often a newcomer that has caught up is noticed. The smallest value that is accepted;
        # the default is ten minutes.
        "probing.rebalance.interval.ms": 60_000,
    }
    return [f"{name}={value}" for name, value in settings.items()]


def _java_tasks(child: Child) -> Tasks:
    said = _TASKS_OF_LOG.findall(child.log.read_text(encoding="utf-8", errors="replace"))
    return frozenset(said[-1].split() if said else ())


def ours(processes: int = 1) -> Contestant:
    """Return how ours is started: the aggregator as it ships, metrics served."""

    def launch(job: Job) -> Launch:
        port = free_port()
        variables = {
            "KAFKA_URL": f"kafka://{job.bootstrap}",
            "AGGREGATOR_APPLICATION_ID": job.application_id,
            "STREAMCORE_PROCESSING_GUARANTEE": job.guarantee,
            "STREAMCORE_COMMIT_INTERVAL_MS": str(job.commit_interval_ms),
            "STREAMCORE_STATE_DIR": str(job.state_dir),
            "STREAMCORE_NUM_STREAM_THREADS": str(processes),
            "AGGREGATOR_WORDS_TOPIC": job.words_topic,
            "AGGREGATOR_COUNTS_TOPIC": job.counts_topic,
            "AGGREGATOR_METRICS_PORT": str(port),
        }
        if job.group is not None:
            variables["STREAMCORE_SESSION_TIMEOUT_MS"] = str(job.group.session_timeout_ms)
            variables["STREAMCORE_NUM_STANDBY_REPLICAS"] = str(job.group.standbys)

        def tasks(_child: Child) -> Tasks:
            try:
                with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
                    return frozenset(_TASK_OF_METRIC.findall(answer.read().decode()))
            except (URLError, TimeoutError):
                return frozenset()

        return Launch([sys.executable, "-m", "aggregator"], variables, tasks)

    return launch


streamcore: Contestant = ours()
"""One process, which is what ships."""


def environment(launch: Launch) -> dict[str, str]:
    """Return this process's environment with the launch's variables and no other setting."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(_SETTING_PREFIXES) and name not in _PLAIN_SETTINGS
    }
    return {**kept, **launch.variables}
