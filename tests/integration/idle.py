"""P16: services without input take away what their clients have to tell, and do not grow."""

import json
import resource
import signal
import time
from pathlib import Path
from typing import Any

from tests.integration import trials
from tests.integration.harness import (
    COUNTS,
    LINES,
    WORDS,
    Stack,
    line,
    pause_s,
    wait_until,
)

from devstack.processes import Child

PROGRAM = "tests.integration.idle_service"
INTERVAL_MS = 100
GROWTH_BYTES_MAX = 5 * 1024 * 1024
KINDS = {"ingest": 4, "aggregator": 5, "sink": 4}
"""How many clients each has at least: member, reader, producer, questions, questions about the
group (the ones that read and write have nothing to read are there all the same).
"""


def idle_services(
    stack: Stack, guarantee: str, *, warm_up_s: float, idle_s: float, growth_bytes: int
) -> None:
    """Run all three for a while with no input, the aggregator with a standby."""
    stack.create(LINES, WORDS, COUNTS)
    stack.migrate()
    stack.settings |= {
        "STREAMCORE_KAFKA_SETTINGS": json.dumps({"statistics.interval.ms": INTERVAL_MS}),
        "STREAMCORE_PROCESSING_GUARANTEE": guarantee,
        "AGGREGATOR_NUM_STANDBY_REPLICAS": "1",
        "SINK_PROCESSING_GUARANTEE": "at_least_once",
    }
    files = {
        name: stack.folder / f"{name}.events" for name in ("ingest", "aggregator", "other", "sink")
    }
    services = {
        name: trials.start_program(
            stack,
            PROGRAM,
            f"-{name}",
            TRIAL_SERVICE="aggregator" if name == "other" else name,
            TRIAL_EVENTS=str(path),
            STREAMCORE_STATE_DIR=str(stack.folder / f"state-{name}"),
        )
        for name, path in files.items()
    }
    children = list(services.values())
    stack.produce(LINES, [line(n, 1_700_000_000_000, "to be") for n in range(4)])
    stack.wait_for_lag_0("ingest-app", "aggregator-app", "sink-app", alive=children)
    wait_until(
        lambda: all(trials.tasks_of(stack, *children).values()), "each has tasks", alive=children
    )
    pause_s(warm_up_s)
    before = {name: (_rss_bytes(child), _events(files[name])) for name, child in services.items()}
    pause_s(idle_s)
    for name, child in services.items():
        assert child.returncode is None, child.tail(40)
        rss_bytes, events = before[name]
        grown_bytes = _rss_bytes(child) - rss_bytes
        assert grown_bytes < growth_bytes, f"{name} has grown by {grown_bytes:,} bytes"
        _all_came_at_their_rate(name, events, _events(files[name]), idle_s)
    for child in children:
        _ends_at_once(child)


def _ends_at_once(child: Child) -> None:
    """E16: told to stop, twice as platforms do, it ends within 5 s, and well."""
    began_s = time.monotonic()
    child.send(signal.SIGTERM)
    child.send(signal.SIGTERM)
    assert child.wait(5), f"{child.name} does not end:\n{child.tail(40)}"
    assert time.monotonic() - began_s < 5
    assert child.returncode == 0, child.tail(40)


def _all_came_at_their_rate(
    name: str, before: dict[str, Any], after: dict[str, Any], idle_s: float
) -> None:
    assert len(after) >= KINDS.get(name, 4), f"{name} has only these clients: {after}"
    for kind, client in after.items():
        if kind not in before:  # made anew meanwhile
            continue
        came = client["statistics"] - before[kind]["statistics"]
        wanted = idle_s * 1_000 / INTERVAL_MS
        assert came > wanted / 2, f"{name}: {came} of {wanted:.0f} statistics came of {kind}"
        assert client["waited_s"] < 2, f"{name}: those of {kind} waited {client['waited_s']:.1f} s"


def _events(path: Path) -> dict[str, Any]:
    return {client["kind"]: client for client in json.loads(path.read_text())}


def _rss_bytes(child: Child) -> int:
    pages = int(Path(f"/proc/{child.pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize()
