"""What a coordinator's answer about a group means."""

from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupState, KafkaError, KafkaException, Node, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # not in its __all__
    ConsumerGroupDescription,
    MemberAssignment,
    MemberDescription,
)
from structlog.testing import capture_logs

from streamcore.adapters.kafka_groups import KafkaGroups, view_of
from streamcore.adapters.rare_log import RareLog
from streamcore.errors import AuthorizationError, GroupRefusedError, RetriableError, StreamsError
from streamcore.model import TopicPartition as Source
from streamcore.runtime.ports import GroupMember, GroupView


def answer(result: Any) -> "Future[Any]":
    future: Future[Any] = Future()
    if isinstance(result, ConsumerGroupDescription):
        future.set_result(result)
    else:
        future.set_exception(KafkaException(KafkaError(result)))
    return future


def description(state: ConsumerGroupState, *members: MemberDescription) -> ConsumerGroupDescription:
    return ConsumerGroupDescription("g", False, list(members), "roundrobin", state, Node(1, "h", 1))


@pytest.mark.parametrize(
    ("state", "stable"),
    [
        (ConsumerGroupState.STABLE, True),
        (ConsumerGroupState.EMPTY, True),
        (ConsumerGroupState.DEAD, True),
        (ConsumerGroupState.PREPARING_REBALANCING, False),
        (ConsumerGroupState.COMPLETING_REBALANCING, False),
        (ConsumerGroupState.UNKNOWN, False),
    ],
)
def test_a_list_is_stable_when_nobody_has_to_join(state: ConsumerGroupState, stable: bool) -> None:
    assert view_of("g", answer(description(state))) == GroupView(stable, ())


def test_members_come_in_order_and_so_do_their_shares() -> None:
    places = [TopicPartition("t", 1), TopicPartition("s", 2), TopicPartition("t", 0)]
    members = (
        MemberDescription("b", "tag", "h", MemberAssignment(places)),
        MemberDescription("a", "tag", "h", MemberAssignment([])),
    )
    view = view_of("g", answer(description(ConsumerGroupState.STABLE, *members)))
    assert view.members == (
        GroupMember("a", "tag", ()),
        GroupMember("b", "tag", (Source("s", 2), Source("t", 0), Source("t", 1))),
    )


def test_a_group_that_does_not_exist_is_empty() -> None:
    assert view_of("g", answer(KafkaError.GROUP_ID_NOT_FOUND)) == GroupView(True, ())


@pytest.mark.parametrize(
    "code",
    [
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError._TRANSPORT,
        KafkaError._TIMED_OUT,
    ],
)
def test_a_coordinator_that_is_elsewhere_or_not_ready_is_asked_again(code: int) -> None:
    with pytest.raises(RetriableError):
        view_of("g", answer(code))


def test_a_refusal_names_the_group_and_what_to_grant() -> None:
    with pytest.raises(AuthorizationError, match=r"group secret .*grant .*DESCRIBE"):
        view_of("secret", answer(KafkaError.GROUP_AUTHORIZATION_FAILED))


def test_what_nobody_knows_is_not_asked_again() -> None:
    with pytest.raises(StreamsError) as caught:
        view_of("g", answer(KafkaError.INVALID_GROUP_ID))
    assert not isinstance(caught.value, RetriableError)


class Answered(KafkaGroups):
    """Groups whose coordinator answers at once; ``now_s`` is the time."""

    now_s = 0.0

    def __init__(self, *answers: Any) -> None:
        super().__init__({}, RareLog(), monotonic_s=lambda: self.now_s)
        self._left = list(answers)

    def _ask(self, name: str) -> "Future[ConsumerGroupDescription]":
        del name
        return answer(self._left.pop(0))


def test_a_coordinator_that_refuses_is_not_silent_however_often_it_is_asked() -> None:
    groups = Answered(*[KafkaError.GROUP_AUTHORIZATION_FAILED] * 4)
    with capture_logs() as logs:
        for groups.now_s in (0.0, 5.0, 20.0, 40.0):
            with pytest.raises(GroupRefusedError):
                groups.describe("g", 100)
    assert logs == []


def test_one_that_says_nothing_of_use_for_long_is_asked_by_another_client() -> None:
    groups = Answered(*[KafkaError.NOT_COORDINATOR] * 2, description(ConsumerGroupState.STABLE))
    with capture_logs() as logs:
        for groups.now_s in (0.0, 5.0):
            assert groups.describe("g", 100) is None
        assert groups.describe("g", 100) == GroupView(True, ())
    assert [entry["event"] for entry in logs] == ["no answer about a group"]
