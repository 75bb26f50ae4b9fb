"""The last commit: tried again and again within one budget, without a word for each try."""

from collections.abc import Callable

import structlog

from streamcore.clock import Clock
from streamcore.errors import Recovery, StreamsError
from streamcore.runtime.backoff import Backoff
from streamcore.runtime.deadline import Deadline

_log = structlog.get_logger("streamcore.commit")


def commit_at_last(
    attempt: Callable[[Deadline], bool], wait: Callable[[], None], clock: Clock, budget_ms: int
) -> bool:
    """Return True when an attempt has succeeded, False if none did in time or may be tried again.

    Between attempts ``wait`` polls, so that the group does not give us up meanwhile.
    """
    deadline, backoff = Deadline(clock, budget_ms), Backoff()
    while True:
        try:
            if not backoff.holds(clock.now_ms()) and attempt(deadline):
                return True
            if deadline.over:
                _log.warning("the last commit did not end in time; what it held is done again")
                return False
            wait()
        except StreamsError as error:
            if error.recovery is not Recovery.RETRY:
                _log.warning("the last commit failed", reason=str(error))
                return False
            backoff.failed(f"the last commit: {error}", clock.now_ms())
