"""Calls that are waited for no longer than asked."""

import threading

import pytest

from streamcore.adapters.bounded import Bounded


def test_results_and_errors_come_through() -> None:
    bounded: Bounded[int] = Bounded("call")
    assert bounded.run(lambda: 7, 10) == 7
    with pytest.raises(ZeroDivisionError):
        bounded.run(lambda: 1 // 0, 10)
    assert bounded.run(lambda: 8, 10) == 8


def test_a_late_call_stands_in_front_of_the_next_until_it_has_ended() -> None:
    bounded: Bounded[bool] = Bounded("call")
    go, begun = threading.Event(), threading.Event()
    with pytest.raises(TimeoutError, match="took longer"):
        bounded.run(go.wait, 0.01)
    with pytest.raises(TimeoutError, match="an earlier call"):
        bounded.run(lambda: begun.set() is None, 0.01)  # type: ignore[func-returns-value]
    assert not begun.is_set()
    go.set()
    assert bounded.run(lambda: True, 10)
