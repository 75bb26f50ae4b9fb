"""KafkaGroups: who is in a consumer group, asked of its coordinator without ever waiting for it.

A request to a coordinator that times out before the connection is up ends the whole process
(confluentinc/librdkafka#4605): seen with a broker that was frozen or down while a client asked for
the first time. So requests get the longest time-out there is, callers wait for their future as long
as they like, and what is not answered in time is dropped together with its client, which is safe.
"""

import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any, NamedTuple

from confluent_kafka import ConsumerGroupState, KafkaError, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined] # its __init__ has no __all__
    AdminClient,
    ConsumerGroupDescription,
)

from streamcore.adapters.kafka_errors import error_of, made, translate
from streamcore.adapters.kafka_settings import Settings
from streamcore.adapters.rare_log import RareLog
from streamcore.errors import GroupRefusedError, RetriableError, StreamsError
from streamcore.model import TopicPartition
from streamcore.runtime.ports import GroupMember, GroupView

# The most that librdkafka takes. A worker that was frozen (SIGSTOP, a suspended machine) for longer
# than a time-out would meet it when it goes on, and end.
REQUEST_TIMEOUT_S = 3_600.0
GIVE_UP_S = 2.0
"""How long a client may go without an answer; a new one finds the coordinator anew.

One that lived through an outage was seen to stay silent for 10 to 84 s. Each new one gets twice as
long as the one before, up to ``PATIENCE_MAX_S``, so that a slow coordinator is heard in the end.
"""
PATIENCE_MAX_S = 10.0

_SETTLED = frozenset({ConsumerGroupState.STABLE, ConsumerGroupState.EMPTY, ConsumerGroupState.DEAD})


class _Question(NamedTuple):
    name: str
    answer: "Future[ConsumerGroupDescription]"


class KafkaGroups:
    """Describes a group, with a client of its own: throwing it away disturbs no other question.

    One question is under way at a time; asking about another group drops it.
    """

    def __init__(
        self,
        settings: Settings,
        log: RareLog,
        give_up_s: float = GIVE_UP_S,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._log = log
        self._give_up_s = self._patience_s = give_up_s
        self._monotonic_s = monotonic_s
        self._client: AdminClient | None = None
        self._question: _Question | None = None
        self._silent_since_s: float | None = None
        self._reason = ""

    def describe(self, name: str, timeout_ms: int) -> GroupView | None:
        """Return who is in the group, None while that is not known; the question goes on.

        :raises GroupRefusedError: if this client may not ask.
        """
        now_s = self._monotonic_s()
        if self._silent_since_s is not None and now_s - self._silent_since_s >= self._patience_s:
            self._log.tell("no answer about a group", f"{name}: {self._reason}; connecting anew")
            self.close()
            self._patience_s = min(2 * self._patience_s, PATIENCE_MAX_S)
        if self._silent_since_s is None:
            self._silent_since_s, self._reason = now_s, "the coordinator is silent"
        question = self._question
        if question is None or question.name != name:
            question = self._question = _Question(name, self._ask(name))
        done, _late = wait([question.answer], timeout_ms / 1_000)
        if not done:
            return None
        self._question = None
        try:
            view = view_of(name, question.answer)
        except RetriableError as error:
            self._reason = str(error)
            return None
        except StreamsError:  # a refusal is an answer, too: whoever gives it is not silent
            self._heard()
            raise
        self._heard()
        return view

    def forget(self) -> None:
        """Let no question that was asked before now be answered: the group may have changed.

        A member that has got its share must decide on what is so from then on, and an answer on
        its way may tell of the generation before. If there was none yet, the coordinator has just
        answered this member and not that client, which has lost it.
        """
        if self._question is not None and not self._question.answer.done():
            self.close()
        self._question = None

    def serve(self) -> None:
        """Take away events that have piled up."""
        if self._client is not None:
            self._client.poll(0)

    def close(self) -> None:
        """Let go of the connection, and of what was asked."""
        self._question = None
        self._silent_since_s = None
        self._client = None

    def _heard(self) -> None:
        self._silent_since_s = None
        self._patience_s = self._give_up_s

    def _ask(self, name: str) -> "Future[ConsumerGroupDescription]":
        if self._client is None:
            callbacks: dict[str, Any] = {"error_cb": self._log.on_error}
            settings = {**self._settings, **callbacks}
            self._client = made(lambda: AdminClient(settings))
        futures = self._client.describe_consumer_groups([name], request_timeout=REQUEST_TIMEOUT_S)
        return futures[name]


def view_of(name: str, answer: "Future[ConsumerGroupDescription]") -> GroupView:
    """Return what an answer says.

    :raises RetriableError: if it says that somebody else must be asked, or later.
    :raises GroupRefusedError: if this client may not ask.
    """
    failure = answer.exception()
    if failure is None:
        return _described(answer.result())
    if not isinstance(failure, KafkaException):
        raise failure
    error = error_of(failure)
    if error.code() == KafkaError.GROUP_ID_NOT_FOUND:  # older versions of the request say DEAD
        return GroupView(stable=True, members=())
    if error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
        raise GroupRefusedError(
            f"the broker does not tell who is in the consumer group {name} "
            f"({error.name()}); grant this client DESCRIBE and READ on it"
        ) from failure
    raise translate(error, f"asking about group {name}") from failure


def _described(description: ConsumerGroupDescription) -> GroupView:
    members = tuple(
        GroupMember(
            member.member_id,
            member.client_id,
            tuple(
                sorted(
                    TopicPartition(place.topic, place.partition)
                    for place in member.assignment.topic_partitions
                )
            ),
        )
        for member in sorted(description.members, key=lambda member: member.member_id)
    )
    return GroupView(description.state in _SETTLED, members)
