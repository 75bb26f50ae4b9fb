"""A real worker whose loop hangs ends by itself, with its stacks, and another one goes on."""

import signal
import time

from tests.integration import trials
from tests.integration.harness import AGGREGATOR, COUNTS, WORDS, Stack, line, pause_s, wait_until

from devstack.processes import Child

STALL_S = 5  # on a busy machine a question to the broker may take some seconds
SETTINGS = {
    "STREAMCORE_STALL_TIMEOUT_MS": str(STALL_S * 1_000),
    "STREAMCORE_SESSION_TIMEOUT_MS": "3000",
    "STREAMCORE_LOG_FORMAT": "logfmt",
}


def test_a_worker_that_hangs_in_user_code_ends_and_says_where(stack: Stack) -> None:
    stack.create(WORDS, COUNTS)
    worker = trials.start_worker(stack, TRIAL_WORK_MS="600000", **SETTINGS)
    wait_until(lambda: stack.metrics(worker.name), "a worker", alive=[worker])
    pause_s(2 * STALL_S)  # without input its loop goes round
    assert stack.metrics(worker.name), worker.tail(40)
    stack.produce(WORDS, [line(0, 1_700_000_000_000, "a")])
    began_s = time.monotonic()
    assert worker.wait(30), worker.tail(40)
    assert time.monotonic() - began_s > STALL_S - 1
    assert worker.returncode == 1
    log = worker.tail(1_000)
    assert 'level=critical event="the loop is silent;' in log
    assert "in worked" in log
    again = trials.start_worker(stack, "-again", **SETTINGS)
    stack.wait_for_lag_0(AGGREGATOR, alive=[again])
    assert stack.counts_in_topic() == {("a", 1_700_000_000_000): 1}
    stack.stop(again)


def stuck_at_its_start(stack: Stack, **settings: str) -> Child:
    """Return a worker that waits for ever for the answer to its first question."""
    stack.create(WORDS, COUNTS)
    settings |= {"TRIAL_STUCK_AT_START": "1"}
    settings |= {"STREAMCORE_PROCESSING_GUARANTEE": "exactly_once_v2"}
    worker = trials.start_worker(stack, **SETTINGS | settings)
    wait_until(lambda: "trial: it is asked" in worker.tail(100), "the question", alive=[worker])
    return worker


def test_a_worker_that_hangs_in_its_start_ends_and_says_where(stack: Stack) -> None:
    worker = stuck_at_its_start(stack)
    began_s = time.monotonic()
    assert worker.wait(30), worker.tail(40)
    assert time.monotonic() - began_s > STALL_S - 1
    assert worker.returncode == 1
    log = worker.tail(1_000)
    assert 'level=critical event="the loop is silent;' in log
    assert "in unanswered" in log


def test_a_worker_that_is_told_to_stop_in_its_start_does_so_at_once(stack: Stack) -> None:
    worker = stuck_at_its_start(stack, STREAMCORE_STALL_TIMEOUT_MS="60000")
    worker.send(signal.SIGTERM)
    assert worker.wait(5), worker.tail(40)
    assert worker.returncode == 0, worker.tail(40)


def test_a_worker_that_was_frozen_longer_than_that_goes_on(stack: Stack) -> None:
    stack.create(WORDS, COUNTS)
    worker = trials.start_worker(stack, **SETTINGS)
    wait_until(lambda: trials.tasks_of(stack, worker)[worker.name] == 8, "tasks", alive=[worker])
    worker.send(signal.SIGSTOP)
    pause_s(2 * STALL_S)
    worker.send(signal.SIGCONT)
    stack.produce(WORDS, [line(0, 1_700_000_000_000, "a")])
    stack.wait_for_lag_0(AGGREGATOR, alive=[worker])
    assert "the loop is silent" not in worker.tail(1_000)
    stack.stop(worker)
