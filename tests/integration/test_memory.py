"""The soft limit of memory on a real process: caches shrink, it stays near it, and counts right."""

import re
import resource
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

from tests.integration.harness import (
    COUNTS,
    WORDS,
    Record,
    Stack,
    difference,
    line,
    recount,
    wait_until,
)

from devstack.processes import Child

MIB = 1 << 20
WORD_COUNT = 300_000
OTHER = "other-counts"
LIMIT_BYTES = 150 * MIB
BASE_MS = 1_700_000_000_000


def words() -> list[Record]:
    """Return words that are all different, so that all of them must be remembered."""
    random = Random(3)
    return [
        line(number % 4, BASE_MS + number % 10_000, random.randbytes(100).hex())
        for number in range(WORD_COUNT)
    ]


class Peak:
    """The most resident memory that a process was seen to have."""

    def __init__(self, child: Child) -> None:
        self.rss_bytes = 0
        self._statm = Path(f"/proc/{child.pid}/statm")
        self._over = threading.Event()

    def look(self) -> None:
        while not self._over.wait(0.1):
            try:
                pages = int(self._statm.read_text().split()[1])
            except (OSError, IndexError):
                return
            self.rss_bytes = max(self.rss_bytes, pages * resource.getpagesize())

    def stop(self) -> None:
        self._over.set()


@contextmanager
def watched(child: Child) -> Iterator[Peak]:
    peak = Peak(child)
    thread = threading.Thread(target=peak.look)
    thread.start()
    try:
        yield peak
    finally:
        peak.stop()
        thread.join()


def counted(stack: Stack, instance: str, **settings: str) -> tuple[int, str]:
    """Let an aggregator count all; return the most memory it had, and its log."""
    child = stack.start(
        "aggregator",
        instance,
        STREAMCORE_CACHE_MAX_BYTES=str(256 * MIB),
        STREAMCORE_COMMIT_INTERVAL_MS="120000",
        STREAMCORE_STATE_DIR=str(stack.folder / f"state{instance}"),
        AGGREGATOR_APPLICATION_ID=f"aggregator-app{instance}",
        **settings,
    )
    with watched(child) as peak:
        wait_until(
            lambda: stack.processed(child.name) >= 2 * WORD_COUNT, "all is counted", alive=[child]
        )
        stack.stop(child)
    return peak.rss_bytes, child.tail(1_000)


def test_what_would_pass_the_limit_stays_near_it_and_is_counted_right(stack: Stack) -> None:
    stack.create(WORDS, COUNTS, OTHER)
    fed = words()
    stack.produce(WORDS, fed)
    without_bytes, log = counted(stack, "-without", COUNTS_TOPIC=OTHER)
    assert without_bytes > LIMIT_BYTES + 100 * MIB
    assert "memory is short" not in log
    with_bytes, log = counted(stack, "-with", STREAMCORE_MEMORY_LIMIT_BYTES=str(LIMIT_BYTES))
    assert "memory is short, caches shrink" in log
    # The commit of what was there when it was noticed takes some by itself.
    assert with_bytes < LIMIT_BYTES + 60 * MIB
    assert int(re.findall(r"stopped .* rss_bytes=(\d+)", log)[0]) < LIMIT_BYTES + 10 * MIB
    assert not difference(recount(fed), stack.counts_in_topic())
