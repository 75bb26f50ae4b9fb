"""The watchdog in a process of its own: what counts as silence, and what does not."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

PROGRAM = """
import ctypes, os, signal, sys, threading, time
from streamcore.adapters.log_output import configure_logging
from streamcore.adapters.system import StopSignals
from streamcore.adapters.watchdog import Watchdog
configure_logging("logfmt")

def beat_for(watchdog, seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end and not signals.requested:
        watchdog.beat()
        time.sleep(0.01)

def stuck_in_here():
    time.sleep(60)

def hold_the_lock():
    ctypes.PyDLL(None).sleep(60)  # C code that does not let anybody else in

with StopSignals(LAST_RESORT_MS) as signals:
    with Watchdog(STALL_MS, signals.back_up) as watchdog:
        sys.stdout.write("ready\\n"); sys.stdout.flush()
        WORK
    AFTER
sys.stdout.write("the end\\n")
"""


@contextmanager
def started(
    work: str, *, stall_ms: int = 500, last_resort_ms: int = 60_000, after: str = "pass"
) -> Iterator["subprocess.Popen[str]"]:
    """Run a program that does this under a watchdog; it is ready when it is handed over."""
    program = PROGRAM.replace("STALL_MS", str(stall_ms)).replace("WORK", work)
    program = program.replace("LAST_RESORT_MS", str(last_resort_ms)).replace("AFTER", after)
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def ended(process: "subprocess.Popen[str]") -> tuple[int, str, str, float]:
    """Return exit code, output, log, and how long it took to end from now."""
    began_s = time.monotonic()
    out, log = process.communicate(timeout=20)
    return process.returncode, out, log, time.monotonic() - began_s


def test_a_silent_loop_ends_the_process_with_the_stacks_of_all_its_threads() -> None:
    with started("beat_for(watchdog, 1); stuck_in_here()") as process:
        code, out, log, took_s = ended(process)
    assert (code, out) == (1, "")
    assert 1.4 <= took_s < 5
    assert log.startswith('level=critical event="the loop is silent;')
    assert "silent_s=0.5" in log
    assert "in stuck_in_here" in log
    assert "in _listen" in log  # the other threads, too


def test_code_that_holds_the_interpreters_lock_is_ended_by_the_back_up() -> None:
    with started("hold_the_lock()") as process:
        code, out, log, took_s = ended(process)
    assert (code, out) == (1, "")
    assert 1.4 <= took_s < 5
    assert "in hold_the_lock" in log


def test_a_loop_that_beats_lives_and_so_does_what_comes_after_it() -> None:
    with started("beat_for(watchdog, 0.7)", stall_ms=300, after="time.sleep(1.1)") as process:
        code, out, log, _ = ended(process)
    assert (code, out, log) == (0, "the end\n", "")


def test_no_watch_at_all() -> None:
    with started("time.sleep(0.5)", stall_ms=0) as process:
        assert ended(process)[:3] == (0, "the end\n", "")


def test_a_process_that_was_frozen_as_a_whole_was_not_silent() -> None:
    with started("beat_for(watchdog, 2.5)", stall_ms=600) as process:
        os.kill(process.pid, signal.SIGSTOP)
        time.sleep(1.2)
        os.kill(process.pid, signal.SIGCONT)
        assert ended(process)[:3] == (0, "the end\n", "")


@pytest.mark.parametrize("stuck", ["stuck_in_here()", "hold_the_lock()"])
def test_after_a_signal_the_last_resort_has_the_timer_for_itself(stuck: str) -> None:
    """Short of the silence, and longer than it."""
    work = f"beat_for(watchdog, 60); watchdog.__exit__(); {stuck}"
    with started(work, stall_ms=300, last_resort_ms=1_500) as process:
        process.send_signal(signal.SIGTERM)
        code, out, log, took_s = ended(process)
    assert (code, out) == (1, "")
    assert 1.4 <= took_s < 5
    assert "the loop is silent" not in log
    assert f"in {stuck[:-2]}" in log


def test_a_signal_in_the_middle_of_a_silence_does_not_prolong_it() -> None:
    with started("stuck_in_here()", stall_ms=1_000) as process:
        process.send_signal(signal.SIGTERM)
        code, _, log, took_s = ended(process)
    assert code == 1
    assert took_s < 5
    assert "the loop is silent" in log
