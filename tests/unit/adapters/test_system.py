"""The clock, the signals, and the end of a process that does not hear them."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import pairwise

import pytest

from streamcore.adapters.system import PARENT_GONE, StopSignals, SystemClock

PROGRAM = """
import ctypes, os, signal, sys, time
from streamcore.adapters.system import StopSignals

def hang_in_python():
    while True:
        pass

def hang_in_c():  # a mutex locked twice: no signal ends the call, no handler of Python ever runs
    mutex = ctypes.create_string_buffer(64)
    libc = ctypes.CDLL(None)
    libc.pthread_mutex_lock(mutex)
    libc.pthread_mutex_lock(mutex)

def leave_in_time(signals):
    while not signals.requested:
        time.sleep(0.01)

with StopSignals(1_000) as signals:
    print("ready", flush=True)
    {does}
time.sleep(1.3)  # the last resort would come in here
print("done", flush=True)
"""


def started(does: str) -> subprocess.Popen[str]:
    """Start the program, and return when it heeds signals."""
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(does=does)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_the_clock_gives_milliseconds_of_today() -> None:
    now_ms = SystemClock().now_ms()
    assert isinstance(now_ms, int)
    assert 1_700_000_000_000 < now_ms < 10_000_000_000_000


def test_the_clock_never_goes_back_and_catches_up_with_one_that_was_set_back() -> None:
    second_ns = 1_000_000_000
    wall_ns, monotonic_ns = [100 * second_ns], [5 * second_ns]
    clock = SystemClock(lambda: wall_ns[0], lambda: monotonic_ns[0])
    told_ms, steady_ms = [], clock.steady_ms()
    for set_by_s in (0, 0, -10, *[0] * 22, 60, 0):
        wall_ns[0] += (1 + set_by_s) * second_ns
        monotonic_ns[0] += second_ns
        told_ms.append(clock.now_ms())
    steps_ms = [later - sooner for sooner, later in pairwise(told_ms)]
    # One second of 1 s, then half seconds until 10 s are made up; a leap ahead is followed at once.
    assert steps_ms == [1_000, *[500] * 20, *[1_000] * 3, 61_000, 1_000]
    assert told_ms[-1] * 1_000_000 == wall_ns[0]
    assert clock.steady_ms() - steady_ms == 27_000


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_is_noted_and_what_was_there_before_comes_back(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with StopSignals() as stop:
        received = [stop.received]
        assert stop.reason == ""
        os.kill(os.getpid(), number)
        received.append(stop.received)
        os.kill(os.getpid(), signal.SIGTERM)  # platforms send it more than once
        received.append(stop.received)
        assert received == [None, number, number]
        assert stop.requested
        assert stop.reason == number.name
    assert signal.getsignal(number) is before
    assert signal.set_wakeup_fd(-1) == -1


def test_a_process_that_is_about_to_end_heeds_no_second_signal() -> None:
    program = """
import os, signal
from streamcore.adapters.system import StopSignals
with StopSignals(to_the_end=True) as stop:
    os.kill(os.getpid(), signal.SIGTERM)
    assert stop.requested
os.kill(os.getpid(), signal.SIGTERM)
print("done")
"""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


def test_other_signals_mean_nothing() -> None:
    before = signal.signal(signal.SIGUSR1, lambda *_: None)
    try:
        with StopSignals() as stop:
            os.kill(os.getpid(), signal.SIGUSR1)
            time.sleep(0.05)  # the thread has had its chance
            assert not stop.requested
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_budget_counts_from_the_arrival_of_the_first_signal() -> None:
    with StopSignals() as stop:
        assert stop.left_ms(1_000) == 1_000
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.1)
        os.kill(os.getpid(), signal.SIGTERM)
        assert 0 < stop.left_ms(1_000) <= 900
        assert stop.left_ms(50) == 0


def test_the_end_of_a_parent_counts_as_a_signal() -> None:
    ours, parents = socket.socketpair()
    with ours, parents, StopSignals(parent=ours.fileno()) as stop:
        assert stop.reason == ""
        parents.close()
        wait_for(lambda: stop.requested)
        assert (stop.received, stop.reason) == (None, PARENT_GONE)


@pytest.mark.parametrize("hang", ["hang_in_python", "hang_in_c"])
def test_a_process_that_hangs_ends_in_time_and_tells_where_it_was(hang: str) -> None:
    process = started(f"{hang}()")
    began_s = time.monotonic()
    process.send_signal(signal.SIGTERM)
    time.sleep(0.2)
    process.send_signal(signal.SIGTERM)  # changes nothing, not the time either
    out, err = process.communicate(timeout=20)
    assert 0.9 < time.monotonic() - began_s < 6
    assert process.returncode == 1
    assert out == ""
    assert f"in {hang}" in err


def test_who_leaves_in_time_is_left_alone() -> None:
    process = started("leave_in_time(signals)")
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=20)
    assert (process.returncode, out, err) == (0, "done\n", "")


def test_a_hang_without_a_signal_is_nobodys_business() -> None:
    process = started("time.sleep(1.3)")
    assert process.communicate(timeout=20) == ("done\n", "")
    assert process.returncode == 0


def test_a_signal_to_a_fork_of_user_code_is_none_to_us() -> None:
    process = started(
        "child = os.fork() or time.sleep(30); os.kill(child, signal.SIGTERM); "
        "ended = os.waitpid(child, 0)[1]; time.sleep(0.1); print(ended, signals.requested)"
    )
    out, err = process.communicate(timeout=20)
    assert out == f"{int(signal.SIGTERM)} False\ndone\n", err
