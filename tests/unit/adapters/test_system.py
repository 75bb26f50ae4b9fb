"""The clock and the signals."""

import os
import signal

import pytest

from streamcore.adapters.system import StopSignals, SystemClock


def test_the_clock_gives_milliseconds_of_today() -> None:
    now_ms = SystemClock().now_ms()
    assert isinstance(now_ms, int)
    assert 1_700_000_000_000 < now_ms < 10_000_000_000_000


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_is_noted_and_what_was_there_before_comes_back(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with StopSignals() as stop:
        received = [stop.received]
        os.kill(os.getpid(), number)
        received.append(stop.received)
        os.kill(os.getpid(), signal.SIGTERM)  # platforms send it more than once
        received.append(stop.received)
        assert received == [None, number, number]
        assert stop.requested
    assert signal.getsignal(number) is before
