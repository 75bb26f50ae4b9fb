"""E24: what a worker on a dyno writes: events and numbers on short lines, throttling, no secret."""

import re
import time
from random import Random

from tests.integration.harness import LINES, WORDS, Stack, line

from devstack.heroku.sandbox import Sandbox
from devstack.processes import Child

DYNO = {
    "DYNO": "ingest_worker.1",
    "DYNO_RAM": "512",
    "HEROKU_APP_NAME": "sushi",
    "HEROKU_RELEASE_VERSION": "v7",
    "STREAMCORE_LOG_FORMAT": "",  # as where nobody has set it
    "STREAMCORE_METRICS_LOG_INTERVAL_MS": "1000",
}
EVENT = re.compile(r'level=(info|warning) event=("(\\.|[^"\\])*"|\S+)( \w+=("(\\.|[^"\\])*"|\S*))*')
LINE_COUNT = 1_800
"""Of a kilobyte each: a basic-0 lets a third of them through at once."""
NUMBERS = re.compile(
    r"source=ingest_worker\.1( (count|sample|measure)#streamcore\.[\w.]+=\d+(\.\d+)?(ms)?)+"
)


def feed(stack: Stack) -> None:
    """Write lines of one long word each that do not compress."""
    random, now_ms = Random(7), time.time_ns() // 1_000_000
    texts = [random.randbytes(500).hex() for _ in range(LINE_COUNT)]
    stack.produce(LINES, [line(n % 4, now_ms, text) for n, text in enumerate(texts)])


def lines_of(child: Child) -> list[str]:
    return child.tail(10_000).splitlines()


def number(child: Child, key: str) -> float:
    """Return the sum of what the lines tell of a counter, the last of a sample."""
    told = [
        float(n) for row in lines_of(child) for n in re.findall(rf" {re.escape(key)}=(\S+)", row)
    ]
    return sum(told) if key.startswith("count#") else (told or [0.0])[-1]


def test_a_throttled_worker_on_a_dyno(heroku: Sandbox, stack: Stack) -> None:
    for topic in (LINES, WORDS):
        heroku.run(f"kafka:topics:create {topic} --partitions 4 --retention-time 36h")
    heroku.run("kafka:consumer-groups:create ingest-app")
    feed(stack)
    heroku.throttle(on=True)
    child = stack.start("ingest", **DYNO)
    stack.wait_for_lag_0("ingest-app", alive=[child])
    stack.stop(child)
    lines = lines_of(child)
    assert lines[0].startswith("level=info event=starting application=")
    assert "instance=ingest_worker.1" in lines[0]
    assert lines[0].endswith(" app=sushi release=v7")
    for row in lines:
        assert len(row.encode()) < 10_000
        assert EVENT.fullmatch(row) or NUMBERS.fullmatch(row), row
    held_back = [row for row in lines if 'event="throttled by a quota"' in row]
    assert held_back
    assert re.search(
        r'reason="127\.0\.0\.1\S* held back an answer for \d+ ms; \d+ ms in all"', held_back[0]
    )
    assert len(held_back) < 10
    assert number(child, "count#streamcore.throttle_ms") > 1_000
    # Nothing was given up for lost because it waited for the quota, and sent again.
    assert number(child, "count#streamcore.rows_processed") == LINE_COUNT
    assert len(stack.read(WORDS)) == LINE_COUNT
    assert 20e6 < number(child, "sample#streamcore.process_rss_bytes") < 200e6
    key = heroku.env["KAFKA_CLIENT_CERT_KEY"].splitlines()[1]
    assert key not in "".join(lines)
