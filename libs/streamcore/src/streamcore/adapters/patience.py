"""Patience at the start: a cluster that does not answer yet is asked again until we are to stop."""

from collections.abc import Callable
from typing import TypeVar

import structlog
import tenacity

from streamcore.errors import RetriableError

RETRY_MAX_S = 5

_log = structlog.get_logger("streamcore.app")

T = TypeVar("T")


def until_answered(call: Callable[[], T], stop_requested: Callable[[], bool]) -> T | None:
    """Call until the cluster answers, with longer and longer waits; None once we are to stop."""

    def pause(seconds: float) -> None:
        for _ in range(max(1, round(seconds * 10))):
            if not stop_requested():
                tenacity.nap.sleep(0.1)

    def tell(state: tenacity.RetryCallState) -> None:
        if state.attempt_number in (1, 3) or state.attempt_number % 5 == 0:
            reason = state.outcome.exception() if state.outcome else None
            _log.warning("the cluster does not answer yet", reason=str(reason))

    attempts = tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(RetriableError),
        wait=tenacity.wait_exponential(multiplier=0.5, max=RETRY_MAX_S),
        stop=lambda _state: stop_requested(),
        sleep=pause,
        before_sleep=tell,
        reraise=True,
    )
    try:
        return attempts(call)
    except RetriableError:
        return None
