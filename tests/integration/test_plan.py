"""The plan in Kafka's own form: what its lines say a broker takes, and then nothing is missing."""

import json
import os
import shlex
import subprocess
import sys
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from devstack.pytest_plugin import Names
from devstack.topics import Topic, create_topics

if TYPE_CHECKING:
    from devstack.kafka import Broker

SERVICES = ("ingest", "aggregator")


def plan(environment: dict[str, str], code: int) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "streamcore", "plan", *SERVICES, "--diff", "--json"],
        env=environment, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == code, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def topic_of(line: str) -> Topic:
    """Read a line as `kafka-topics.sh` does (the program itself is no part of the broker)."""
    program, *words = shlex.split(line)
    assert program == "kafka-topics.sh"
    assert "--create" in words
    options = list(pairwise(words))
    settings = dict(value.split("=", 1) for name, value in options if name == "--config")
    named = dict(options)
    return Topic(named["--topic"], int(named["--partitions"]), settings)


def test_what_the_lines_create_is_as_planned(broker: "Broker", names: Names) -> None:
    environment = {
        "PATH": os.environ["PATH"],
        "KAFKA_URL": f"kafka://{broker.bootstrap}",
        # Nobody looks at the bytes, so the rehearsal is a short one.
        "WINDOW_SIZE_MS": "1000",
        "STREAMCORE_COMMIT_INTERVAL_MS": "100",
        **{
            f"{name}_TOPIC": f"{names.prefix}{name}".lower()
            for name in ("LINES", "WORDS", "COUNTS")
        },
        "AGGREGATOR_APPLICATION_ID": f"{names.prefix}aggregator",
    }
    before = plan(environment, 1)
    assert before["form"] == "kafka"
    missing = [one for one in before["differences"] if one["what"] == "missing"]
    assert [one["command"] for one in missing] == before["commands"]
    wanted = [topic_of(line) for line in before["commands"]]
    assert len(create_topics({"bootstrap.servers": broker.bootstrap}, wanted)) == 5

    assert plan(environment, 0)["differences"] == []
