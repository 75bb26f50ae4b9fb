"""Who runs the word count: how each contestant's process is started. The measure knows neither."""

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.jvm import Compiled
from devstack.ports import free_port

JAVA_THREADS = 2
COMMIT_INTERVAL_MS = 1_000
# A setting of the caller's must not reach a contestant: both run with their defaults.
_SETTING_PREFIXES = ("STREAMCORE_", "INGEST_", "AGGREGATOR_", "SINK_", "KAFKA_")
_PLAIN_SETTINGS = frozenset(
    {"EMIT", "WINDOW_SIZE_MS", "GRACE_MS", "WORDS_TOPIC", "COUNTS_TOPIC", "JAVA_TOOL_OPTIONS"}
)


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


@dataclass(frozen=True, slots=True)
class Launch:
    """A process to be: its command line and the variables it gets besides ours."""

    command: list[str]
    variables: dict[str, str]


Contestant = Callable[[Job], Launch]


def java(compiled: Compiled) -> Contestant:
    """Return how Kafka Streams is started: our own WordCount.java, two threads."""

    def launch(job: Job) -> Launch:
        arguments = (
            job.bootstrap,
            job.application_id,
            job.words_topic,
            job.counts_topic,
            str(job.state_dir),
            job.guarantee,
            str(job.commit_interval_ms),
            str(JAVA_THREADS),
        )
        return Launch(compiled.command("WordCount", *arguments), {})

    return launch


def streamcore(job: Job) -> Launch:
    """Return how ours is started: the aggregator as it ships, one process, metrics served."""
    variables = {
        "KAFKA_URL": f"kafka://{job.bootstrap}",
        "AGGREGATOR_APPLICATION_ID": job.application_id,
        "STREAMCORE_PROCESSING_GUARANTEE": job.guarantee,
        "STREAMCORE_COMMIT_INTERVAL_MS": str(job.commit_interval_ms),
        "STREAMCORE_STATE_DIR": str(job.state_dir),
        "AGGREGATOR_WORDS_TOPIC": job.words_topic,
        "AGGREGATOR_COUNTS_TOPIC": job.counts_topic,
        "AGGREGATOR_METRICS_PORT": str(free_port()),
    }
    return Launch([sys.executable, "-m", "aggregator"], variables)


def environment(launch: Launch) -> dict[str, str]:
    """Return this process's environment with the launch's variables and no other setting."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(_SETTING_PREFIXES) and name not in _PLAIN_SETTINGS
    }
    return {**kept, **launch.variables}
