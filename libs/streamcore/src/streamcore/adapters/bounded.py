"""Bounded: calls of librdkafka that take no time-out, waited for no longer than we choose."""

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class _Outcome(Generic[T]):
    """What became of one call, once ``done`` is set."""

    def __init__(self) -> None:
        self.done = threading.Event()
        self.result: T | None = None
        self.error: BaseException | None = None


class Bounded(Generic[T]):
    """Runs one call at a time in a thread of its own; a call that is late keeps its place.

    A synchronous commit ends when the coordinator answers, which a frozen broker never does: a
    worker that was told to stop must not hang on it. The thread is a daemon, so that neither does
    the end of the process.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._late: _Outcome[T] | None = None

    @property
    def busy(self) -> bool:
        """True while a late call is still under way."""
        return self._late is not None and not self._late.done.is_set()

    def run(self, call: Callable[[], T], timeout_s: float) -> T:
        """Return the result of ``call``, or raise what it raised.

        :raises TimeoutError: if it did not end in time, or if a late one stands in front of it
            (then it was not begun). What a late call gives in the end is dropped.
        """
        if self._late is not None and not self._late.done.wait(timeout_s):
            raise TimeoutError(f"an earlier {self._name} has not ended")
        self._late = None
        outcome: _Outcome[T] = _Outcome()

        def work() -> None:
            try:
                outcome.result = call()
            except BaseException as error:
                outcome.error = error
            finally:
                outcome.done.set()

        threading.Thread(target=work, name=self._name, daemon=True).start()
        if not outcome.done.wait(timeout_s):
            self._late = outcome
            raise TimeoutError(f"{self._name} took longer than {timeout_s:.1f} s")
        if outcome.error is not None:
            raise outcome.error
        return outcome.result  # type: ignore[return-value]
