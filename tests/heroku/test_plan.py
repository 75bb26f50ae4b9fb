"""The plan on the Heroku-like broker: its script is enough, and its bytes are what is written."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any, Final

import pytest
from tests.integration.harness import (
    AGGREGATOR,
    CHANGELOG,
    COUNTS,
    INGEST,
    LINES,
    REPARTITION,
    WORDS,
    Record,
    Stack,
)

from devstack.heroku.sandbox import Sandbox
from streamcore.plan import sample

SERVICES: Final = ("ingest", "aggregator")
TOPICS: Final = (LINES, WORDS, COUNTS, REPARTITION, CHANGELOG)
GROUPS: Final = (INGEST, AGGREGATOR)
PARTITIONS: Final = 4
WORDS_PER_LINE: Final = 10
WINDOW_MS: Final = 2_000
"""Short windows, and none kept longer: they close and expire in the test, as in a long run."""


def plan(*words: str, env: Mapping[str, str], code: int = 0) -> str:
    """Return what `streamcore plan` prints."""
    done = subprocess.run(
        [sys.executable, "-m", "streamcore", "plan", *SERVICES, *words],
        env={"PATH": os.environ["PATH"], **env}, capture_output=True, text=True, timeout=120,
        check=False,
    )  # fmt: skip
    assert done.returncode == code, done.stdout + done.stderr
    assert done.stderr == ""
    return done.stdout


def differing(env: Mapping[str, str], code: int) -> dict[str, set[str]]:
    """Return what `plan --diff` finds: names by kind."""
    # Nobody looks at the bytes here, so the rehearsal is a short one.
    env = {**env, "WINDOW_SIZE_MS": "1000", "STREAMCORE_COMMIT_INTERVAL_MS": "100"}
    found: dict[str, set[str]] = {}
    for one in json.loads(plan("--diff", "--json", env=env, code=code))["differences"]:
        found.setdefault(one["what"], set()).add(one["name"])
    return found


def test_the_script_is_enough_and_may_be_run_again(heroku: Sandbox) -> None:
    assert differing(heroku.env, 1)["missing"] == {*TOPICS, *GROUPS}
    script = plan("--script", "--app", heroku.name, env=heroku.env)

    first, again = heroku.shell(script), heroku.shell(script)
    assert (first.returncode, first.stderr) == (0, "")
    assert again.returncode == 0, again.stderr
    assert "already" in again.stderr  # the refusal of what exists is shown, not hidden

    # The app may not ask for settings; nothing else is left to be told.
    assert differing(heroku.env, 0) == {"unknown": {REPARTITION, CHANGELOG}}


def test_of_two_clusters_the_script_makes_all_on_the_one_that_is_chosen(heroku: Sandbox) -> None:
    heroku.run("addons:create heroku-kafka:basic-0 --as HEROKU_KAFKA_MAUVE")
    env = {**heroku.env, "STREAMCORE_KAFKA_ATTACHMENT": "HEROKU_KAFKA_MAUVE"}
    script = plan("--script", "--app", heroku.name, env=env)
    for _ in range(2):
        done = heroku.shell(script)
        assert done.returncode == 0, done.stderr
    assert differing(env, 0) == {"unknown": {REPARTITION, CHANGELOG}}
    assert set(heroku.run("kafka:consumer-groups HEROKU_KAFKA_MAUVE")) == set(GROUPS)
    assert heroku.run("kafka:topics KAFKA") == ["No topics found on this Kafka cluster."]


def test_a_script_over_a_topic_with_other_partitions_fails(heroku: Sandbox) -> None:
    heroku.run(f"kafka:topics:create {WORDS} --partitions 8 --retention-time 24h")
    done = heroku.shell(plan("--script", "--app", heroku.name, env=heroku.env))
    assert done.returncode == 1
    assert f"{WORDS} has 8 partitions, and {PARTITIONS} are needed" in done.stderr
    assert {LINES, COUNTS} <= {row.split()[0] for row in heroku.run("kafka:topics")}


def test_a_script_that_cannot_create_says_so(heroku: Sandbox) -> None:
    script = plan("--script", "--app", "no-such-app", env=heroku.env)
    done = heroku.shell(script)
    assert done.returncode == 1
    assert "no-such-app" in done.stderr


def written(heroku: Sandbox, topic: str) -> int:
    """Return the bytes of all batches in a topic, as they lie on the broker's disk."""
    data = heroku.broker.folder / "data"
    logs = data.glob(f"{heroku.prefix}{topic}-[0-9]*/*.log")
    return sum(log.stat().st_size for log in logs)


def feed(stack: Stack, lines: int, lines_per_s: float) -> None:
    """Let the feed of the repository write sample lines at a rate."""
    text = stack.folder / "lines.txt"
    sampled = islice(sample.lines(WORDS_PER_LINE, 5_000), lines)
    text.write_text("\n".join(sampled) + "\n", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "ingest", "feed", str(text), "--rate", f"{lines_per_s:g}"],
        env={"PATH": os.environ["PATH"], **stack.settings}, capture_output=True, text=True,
        timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "words_per_s",
    [
        1_000,
        pytest.param(100, marks=pytest.mark.long),
        pytest.param(300, marks=pytest.mark.long),
        pytest.param(3_000, marks=pytest.mark.long),
    ],
)
def test_bytes_per_line_are_what_is_written(
    heroku: Sandbox, stack: Stack, words_per_s: int, tmp_path: Path
) -> None:
    stack.settings |= {
        "WINDOW_SIZE_MS": str(WINDOW_MS),
        "AGGREGATOR_RETENTION_MS": str(WINDOW_MS),
    }
    document = json.loads(plan("--json", "--rate", str(words_per_s), env=stack.settings))
    planned = {
        topic["name"]: topic["produced_bytes_per_line"] for topic in document["traffic"]["topics"]
    }
    assert planned.keys() == set(TOPICS)
    for command in document["commands"]:
        heroku.run(command)

    workers = [stack.start(service) for service in SERVICES]
    lines = words_per_s // WORDS_PER_LINE * 4 * WINDOW_MS // 1_000
    feed(stack, lines, words_per_s / WORDS_PER_LINE)
    # All windows close and expire.
    later_ms = time.time_ns() // 1_000_000 + 4 * WINDOW_MS
    stack.produce(LINES, [Record(number, later_ms, b"later") for number in range(PARTITIONS)])
    stack.wait_for_lag_0(INGEST, AGGREGATOR, alive=workers)
    measured = {topic: written(heroku, topic) / lines for topic in TOPICS}

    close: dict[str, Any] = {
        topic: (round(planned[topic]), round(measured[topic]))
        for topic in TOPICS
        if not 0.75 < planned[topic] / measured[topic] < 1.25
    }
    assert not close, f"planned and measured bytes per line: {close}"
    assert sum(planned.values()) == pytest.approx(sum(measured.values()), rel=0.25)


@pytest.mark.long
def test_a_basic_plan_throttles_where_it_is_said(heroku: Sandbox, stack: Stack) -> None:
    """Well below that rate nobody is held back, and well above it somebody is."""
    stack.settings |= {
        "WINDOW_SIZE_MS": str(WINDOW_MS),
        "AGGREGATOR_RETENTION_MS": str(WINDOW_MS),
    }
    document = json.loads(plan("--json", "--plan", "basic-0", env=stack.settings))
    lines_per_s = document["throttle"]["words_per_s"] / WORDS_PER_LINE
    assert document["throttle"]["binds"] == "produce"
    for command in document["commands"]:
        heroku.run(command)
    heroku.throttle()
    workers = [stack.start(service) for service in SERVICES]

    def held_back_ms(share: float) -> float:
        before = throttled_ms(stack)
        feed(stack, int(share * lines_per_s * 20), share * lines_per_s)
        stack.wait_for_lag_0(INGEST, AGGREGATOR, alive=workers)
        return throttled_ms(stack) - before

    assert held_back_ms(0.7) < 1_000
    assert held_back_ms(1.5) > 2_000


def throttled_ms(stack: Stack) -> float:
    """Return for how long the broker has held back the workers, in all."""
    return sum(
        value
        for service in SERVICES
        for name, value in stack.metrics(service).items()
        if name.startswith("streamcore_throttle_ms_total")
    )
