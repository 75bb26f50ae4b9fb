"""Patience: what is waited for at the start, what is not, and what is said meanwhile."""

import threading
import time
from collections.abc import Callable, Iterator

import pytest
import structlog
import tenacity
from structlog.testing import capture_logs

from streamcore.adapters.patience import unless_stopped, until_answered
from streamcore.errors import (
    AuthorizationError,
    MissingGroupError,
    MissingTopic,
    MissingTopicsError,
    ProducerFencedError,
    RetriableError,
    StreamsError,
    TopicError,
)

AWAY = RetriableError("away")
TOPICS = MissingTopicsError([MissingTopic("words", 4)])
GROUP = MissingGroupError("app")
EVENT = "waiting for what is missing"


class Naps:
    """Stands in for sleeping: counts the seconds and asks to stop after so many."""

    def __init__(self) -> None:
        self.slept_s = 0.0
        self.stop_after_s = float("inf")

    def sleep(self, seconds: float) -> None:
        self.slept_s += seconds

    def stop_requested(self) -> bool:
        return self.slept_s >= self.stop_after_s


@pytest.fixture
def naps(monkeypatch: pytest.MonkeyPatch) -> Naps:
    made = Naps()
    monkeypatch.setattr(tenacity.nap, "sleep", made.sleep)
    return made


def answers(*outcomes: StreamsError | str) -> Callable[[], str]:
    left: Iterator[StreamsError | str] = iter(outcomes)

    def call() -> str:
        outcome = next(left)
        if isinstance(outcome, StreamsError):
            raise outcome
        return outcome

    return call


def commands(error: StreamsError) -> tuple[str, ...]:
    topics = error.topics if isinstance(error, MissingTopicsError) else ()
    return (*(f"make {topic.name}" for topic in topics), *(["grant"] if not topics else ()))


def never() -> bool:
    return False


@pytest.mark.parametrize("error", [AWAY, ProducerFencedError("of no use")])
def test_a_cluster_that_is_away_is_waited_for(naps: Naps, error: StreamsError) -> None:
    with capture_logs() as logs:
        assert until_answered(answers(*[error] * 10, "there"), never) == "there"
    events = [entry["event"] for entry in logs]
    assert events == ["the cluster does not answer yet"] * 4  # 1, 3, 5 and 10
    assert naps.slept_s < 10 * 5


@pytest.mark.parametrize("error", [TOPICS, GROUP])
def test_what_is_missing_is_an_error_unless_it_is_to_be_waited_for(
    naps: Naps, error: StreamsError
) -> None:
    with pytest.raises(type(error)):
        until_answered(answers(error, "there"), never)
    assert until_answered(answers(error, "there"), never, commands) == "there"
    assert 0 < naps.slept_s < 2


@pytest.mark.parametrize("error", [TopicError("does not fit"), AuthorizationError("no")])
def test_what_no_waiting_mends_is_an_error(naps: Naps, error: StreamsError) -> None:
    with pytest.raises(type(error)):
        until_answered(answers(error, "there"), never, commands)
    assert naps.slept_s == 0


def test_what_is_missing_is_told_once_with_its_commands_and_then_rarely(naps: Naps) -> None:
    with capture_logs() as logs:
        until_answered(answers(*[TOPICS] * 400, "there"), never, commands)
    assert naps.slept_s > 5_000
    told = [entry for entry in logs if entry["event"] == EVENT]
    assert 5 < len(told) < 10
    assert told[0]["commands"] == ["make words"]
    assert "words" in told[0]["reason"]
    assert logs[-1]["event"] == "nothing is missing any more"


def test_what_is_missing_is_told_again_only_when_something_new_is_in_it(naps: Naps) -> None:
    both = MissingTopicsError([MissingTopic("words", 4), MissingTopic("counts", 4)])
    with capture_logs() as logs:
        until_answered(answers(both, TOPICS, AWAY, GROUP, GROUP, "there"), never, commands)
    assert [(entry["event"], entry.get("commands")) for entry in logs] == [
        (EVENT, ["make words", "make counts"]),
        ("the cluster does not answer yet", None),
        (EVENT, ["grant"]),
        ("nothing is missing any more", None),
    ]
    assert naps.slept_s > 0


@pytest.mark.parametrize("error", [TOPICS, GROUP, AWAY])
def test_a_wait_ends_at_once_when_we_are_to_stop(naps: Naps, error: StreamsError) -> None:
    naps.stop_after_s = 30.0
    found = until_answered(answers(*[error] * 100, "there"), naps.stop_requested, commands)
    assert found is None
    assert naps.slept_s == pytest.approx(30.0, abs=0.2)


def test_a_question_that_is_open_holds_up_nobody_who_is_to_stop() -> None:
    never_set, asked = threading.Event(), threading.Event()

    def call() -> bool:
        asked.set()
        return never_set.wait(60)

    began_s = time.monotonic()
    assert until_answered(lambda: unless_stopped(call, asked.is_set), asked.is_set) is None
    assert time.monotonic() - began_s < 10
    never_set.set()


def test_a_question_is_asked_in_the_context_of_whoever_asks() -> None:
    structlog.contextvars.bind_contextvars(worker=3)
    try:
        found = unless_stopped(structlog.contextvars.get_contextvars, never)
    finally:
        structlog.contextvars.unbind_contextvars("worker")
    assert found["worker"] == 3
    with pytest.raises(TopicError):
        unless_stopped(answers(TopicError("does not fit")), never)
