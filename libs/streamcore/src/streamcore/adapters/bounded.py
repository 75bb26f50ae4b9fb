"""Bounded: calls of librdkafka that take no time-out, waited for no longer than we choose."""

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from confluent_kafka import cimpl

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

    A consumer of the binding lets one thread in at a time, and a thread that is in already (from
    inside a callback, say) once more. So the thread takes the identity of its caller: else a call
    from inside a callback would wait for the end of that callback, and every later call for the
    end of a late one. librdkafka itself may be called by any number of threads.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._late: _Outcome[T] | None = None

    def run(self, call: Callable[[], T], timeout_s: float) -> T:
        """Return the result of ``call``, or raise what it raised.

        :raises TimeoutError: if it did not end in time, or if a late one stands in front of it
            (then it was not begun). What a late call gives in the end is dropped.
        """
        if self._late is not None and not self._late.done.wait(timeout_s):
            raise TimeoutError(f"an earlier {self._name} has not ended")
        self._late = None
        outcome: _Outcome[T] = _Outcome()
        caller = threading.get_ident()

        def work() -> None:
            cimpl._reentry_identity_var.set(caller)  # noqa: SLF001 - there is no public way
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
