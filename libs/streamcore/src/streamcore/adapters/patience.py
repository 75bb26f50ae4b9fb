"""Patience at the start: a cluster that is not ready yet is asked again until we are to stop.

One that does not answer, or not as it should, is always waited for. Topics and rights that are
missing are waited for only by a worker that was told to: then it says once what somebody must do,
and again rarely, for it is no news.
"""

import contextvars
import queue
import threading
from collections.abc import Callable
from typing import Final, TypeVar

import structlog
import tenacity

from streamcore.errors import (
    GroupRefusedError,
    MissingTopicsError,
    Recovery,
    RetriableError,
    StreamsError,
)

RETRY_MAX_S: Final = 5
MISSING_MAX_S: Final = 15
"""The longest wait before missing topics are looked for again; it begins with a second."""

LOOK_S: Final = 0.1
"""How often it is looked whether we are to stop, while a question is open."""

TELL_MISSING_S: Final = (60.0, 3_600.0)
"""When what is missing is told for the second time, and how rarely in the end."""

_MISSING: Final = (MissingTopicsError, GroupRefusedError)

_log = structlog.get_logger("streamcore.app")

T = TypeVar("T")


def until_answered(
    call: Callable[[], T],
    stop_requested: Callable[[], bool],
    commands: Callable[[StreamsError], tuple[str, ...]] | None = None,
) -> T | None:
    """Call until the cluster answers, with longer and longer waits; None once we are to stop.

    ``commands`` tells how to mend an error; where it is given, missing topics and group rights are
    waited for, and else they are raised.
    """

    def passes(error: BaseException) -> bool:
        if isinstance(error, _MISSING):
            return commands is not None
        return isinstance(error, StreamsError) and error.recovery is not Recovery.STOP

    teller = _Teller(commands)

    def pause(seconds: float) -> None:
        for _ in range(max(1, round(seconds * 10))):
            if not stop_requested():
                tenacity.nap.sleep(0.1)

    attempts = tenacity.Retrying(
        retry=tenacity.retry_if_exception(passes),
        wait=_wait_s,
        stop=lambda _state: stop_requested(),
        sleep=pause,
        before_sleep=teller.tell,
        reraise=True,
    )
    try:
        answer = attempts(call)
    except StreamsError as error:
        if passes(error):
            return None
        raise
    teller.over()
    return answer


def unless_stopped(call: Callable[[], T], stop_requested: Callable[[], bool]) -> T:
    """Return what ``call`` returns, or raise what it raises, in a thread of its own.

    A question to a cluster that is away takes its whole time-out, and whoever stops us may not wait
    so long. So the thread is left behind then; it must have nothing to lose.

    :raises RetriableError: if we are to stop.
    """
    answers: queue.SimpleQueue[tuple[T | None, BaseException | None]] = queue.SimpleQueue()

    def work() -> None:
        try:
            answers.put((call(), None))
        except BaseException as error:
            answers.put((None, error))

    context = contextvars.copy_context()  # what the log says of this process
    threading.Thread(target=context.run, args=(work,), name="question", daemon=True).start()
    while not stop_requested():
        try:
            answer, error = answers.get(timeout=LOOK_S)
        except queue.Empty:
            continue
        if error is not None:
            raise error
        return answer  # type: ignore[return-value]
    raise RetriableError("told to stop while a question to the cluster was open")


def _wait_s(state: tenacity.RetryCallState) -> float:
    error = state.outcome.exception() if state.outcome else None
    longest_s = MISSING_MAX_S if isinstance(error, _MISSING) else RETRY_MAX_S
    first_s = 1.0 if isinstance(error, _MISSING) else 0.5
    return float(min(longest_s, first_s * 2.0 ** min(state.attempt_number - 1, 10)))


class _Teller:
    """Says what is waited for: an outage now and then, missing topics once and then rarely."""

    def __init__(self, commands: Callable[[StreamsError], tuple[str, ...]] | None) -> None:
        self._commands = commands
        self._told: set[str] = set()
        self._again_s, self._interval_s = 0.0, TELL_MISSING_S[0]

    def tell(self, state: tenacity.RetryCallState) -> None:
        """Be tenacity's ``before_sleep``."""
        error = state.outcome.exception() if state.outcome else None
        if isinstance(error, _MISSING):
            self._tell_missing(error, float(state.idle_for))
        elif state.attempt_number in (1, 3) or state.attempt_number % 5 == 0:
            _log.warning("the cluster does not answer yet", reason=str(error))

    def over(self) -> None:
        """Say that the wait is over, if it was for something missing."""
        if self._told:
            _log.info("nothing is missing any more")

    def _tell_missing(self, error: StreamsError, waited_s: float) -> None:
        """Tell it if something new is in it; that somebody is at work already is no news."""
        assert self._commands is not None, "else it is not waited for"
        commands = self._commands(error)
        is_news = not self._told.issuperset(commands)
        if not is_news and waited_s < self._again_s:
            return
        if not is_news:
            self._interval_s = min(2 * self._interval_s, TELL_MISSING_S[1])
        self._told.update(commands)
        self._again_s = waited_s + self._interval_s
        _log.warning("waiting for what is missing", reason=str(error), commands=list(commands))
