"""num_stream_threads above 1: worker processes under one parent, and how all of it stops."""

import os
import re
import signal
import sys
import time
from pathlib import Path

import pytest
from tests.integration.harness import (
    AGGREGATOR,
    COUNTS,
    WORDS,
    Record,
    Stack,
    line,
    wait_until,
)

from devstack.processes import Child

TWO = {
    "STREAMCORE_NUM_STREAM_THREADS": "2",
    "STREAMCORE_PROCESSING_GUARANTEE": "exactly_once_v2",
    "STREAMCORE_COMMIT_INTERVAL_MS": "200",
    "STREAMCORE_SESSION_TIMEOUT_MS": "3000",
}
PARTITIONS = 4
TASKS = 2 * PARTITIONS  # words to their repartition topic, and counting


def some_words(times: int) -> list[Record]:
    return [line(number % PARTITIONS, 1_000, f"w{number % 20}") for number in range(20 * times)]


def wanted(times: int) -> dict[tuple[str, int], int]:
    return {(f"w{number}", 0): times for number in range(20)}


def pids(parent: Child) -> dict[int, int]:
    """Return the newest process id of each worker that the parent has started."""
    found = re.findall(r"worker process started +pid=(\d+) worker=(\d+)", parent.tail(10_000))
    return {int(number): int(pid) for pid, number in found}


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def tasks_of(stack: Stack, worker: int) -> float:
    return stack.metrics("aggregator").get(f'streamcore_tasks{{worker="{worker}"}}', 0)


def shared(stack: Stack, **settings: str) -> Child:
    """Start a parent of two, and return it when they have shared the tasks."""
    stack.create(WORDS, COUNTS, partitions=PARTITIONS)
    parent = stack.start("aggregator", **{**TWO, **settings})
    wait_until_shared(stack, parent)
    return parent


def wait_until_shared(stack: Stack, parent: Child) -> None:
    wait_until(
        lambda: [tasks_of(stack, 1), tasks_of(stack, 2)] == [TASKS / 2, TASKS / 2],
        lambda: f"tasks in equal shares: {stack.metrics('aggregator')}",
        alive=[parent],
    )


def counted(stack: Stack, parent: Child, times: int) -> None:
    stack.wait_for_lag_0(AGGREGATOR, alive=[parent])
    assert stack.counts_in_topic() == wanted(times)


def test_two_share_the_work_one_is_replaced_and_a_signal_to_the_parent_ends_all(
    stack: Stack,
) -> None:
    parent = shared(
        stack,
        STREAMCORE_WORKER_FAILURE="replace",
        STREAMCORE_INSTANCE="both.1",
        STREAMCORE_METRICS_LOG_INTERVAL_MS="1000",
    )
    stack.produce(WORDS, some_words(3))
    counted(stack, parent, 3)
    rows = "streamcore_rows_processed_total"
    wait_until(
        lambda: sum(v for k, v in stack.metrics("aggregator").items() if k.startswith(rows)) == 120,
        lambda: f"60 words, each twice: {stack.metrics('aggregator')}",
    )
    assert {k for k in stack.metrics("aggregator") if k.startswith(rows)} == {
        f'{rows}{{worker="1"}}', f'{rows}{{worker="2"}}',
    }  # fmt: skip
    assert sorted(p.name for p in (stack.state_dir / stack.name(AGGREGATOR)).iterdir()) == [
        "0", "0.lock", "1", "1.lock",
    ]  # fmt: skip
    for number in (1, 2):
        assert re.search(rf"tasks of this generation .*worker={number}\b", parent.tail(10_000))

    # The parent tells the numbers of both as one, the memory of all three processes.
    told = [row for row in parent.tail(10_000).splitlines() if "#streamcore." in row]
    assert all(row.startswith("source=both.1 ") for row in told)
    assert any(f" sample#streamcore.tasks={TASKS}" in row for row in told)
    assert all(int(n) > 40e6 for n in re.findall(r"process_rss_bytes=(\d+)", " ".join(told)))
    assert int(re.findall(r"process_rss_bytes=(\d+)", told[-1])[0]) > 120e6

    first = pids(parent)
    os.kill(first[2], signal.SIGKILL)
    stack.produce(WORDS, some_words(2))
    wait_until(lambda: pids(parent)[2] != first[2], "a replacement", alive=[parent])
    counted(stack, parent, 5)
    wait_until_shared(stack, parent)

    os.kill(parent.pid, signal.SIGTERM)
    assert parent.wait(30), parent.tail(40)
    assert parent.returncode == 0, parent.tail(60)
    assert not any(map(lives, pids(parent).values()))
    assert stack.lag(AGGREGATOR) == {}
    assert "exit code" not in parent.tail(10_000)


def test_when_one_is_killed_the_rest_stops_well_and_the_parent_says_which(stack: Stack) -> None:
    parent = shared(stack)
    stack.produce(WORDS, some_words(1))
    counted(stack, parent, 1)
    os.kill(pids(parent)[1], signal.SIGKILL)
    assert parent.wait(30), parent.tail(40)
    assert parent.returncode == 1
    log = parent.tail(10_000)
    assert re.search(r"worker process died .*how=SIGKILL .*worker=1\b", log)
    assert re.search(r"stopped .*committed=True .*worker=2\b", log)
    assert not lives(pids(parent)[2])


def test_when_the_parent_is_killed_its_workers_drain_and_leave(stack: Stack) -> None:
    parent = shared(stack)
    stack.produce(WORDS, some_words(1))
    os.kill(parent.pid, signal.SIGKILL)
    workers = pids(parent).values()
    wait_until(lambda: not any(map(lives, workers)), "the workers' end", patience_s=25)
    log = parent.tail(10_000)
    for number in (1, 2):
        assert re.search(rf"stopped .*committed=True .*worker={number}\b", log)


# -- whatever happens ----------------------------------------------------------------------------

PROGRAM = '''
import ctypes, sys
from streamcore import STR, Consumed, Processor, StreamsBuilder
from streamcore.app import StreamsApp
from streamcore.config import StreamsConfig

class Hangs(Processor):
    """Never comes back: a mutex locked twice, in C; no signal handler of Python ever runs."""

    def process(self, key, value):
        print("hangs", flush=True)
        mutex, libc = ctypes.create_string_buffer(64), ctypes.CDLL(None)
        libc.pthread_mutex_lock(mutex)
        libc.pthread_mutex_lock(mutex)

builder = StreamsBuilder()
builder.stream("words", Consumed(key=STR, value=STR)).process(Hangs)
bootstrap, prefix, state, threads = sys.argv[1:]
sys.exit(StreamsApp(builder.build(), StreamsConfig(
    application_id="app", prefix=prefix, bootstrap_servers=bootstrap, state_dir=state,
    num_stream_threads=int(threads), shutdown_timeout_ms=1_000,
)).run())
'''


@pytest.mark.parametrize("threads", [1, 2])
def test_user_code_that_never_comes_back_does_not_keep_a_platform_waiting(
    stack: Stack, tmp_path: Path, threads: int
) -> None:
    stack.create(WORDS, partitions=2)
    stack.produce(WORDS, [line(0, 1_000, "a"), line(1, 1_000, "b")])
    (tmp_path / "hangs.py").write_text(PROGRAM)
    words = [stack.bootstrap, stack.prefix, str(stack.state_dir), str(threads)]
    program = Child(
        "hangs", [sys.executable, "hangs.py", *words], log=tmp_path / "hangs.log", cwd=tmp_path
    )
    stack.children.append(program)
    wait_until(lambda: "hangs" in program.tail(1_000).splitlines(), "a hang", alive=[program])
    workers = pids(program).values()
    began_s = time.monotonic()
    os.kill(program.pid, signal.SIGTERM)
    assert program.wait(15), program.tail(40)
    assert 1 < time.monotonic() - began_s < 10  # 1 s and 1.5 s; the rest is for a busy machine
    assert program.returncode == 1
    assert re.search(r"hangs\.py\S+ line \d+ in process\b", program.tail(1_000)), "where it was"
    assert not any(map(lives, workers))
