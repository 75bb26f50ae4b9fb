"""Admin port over confluent-kafka: what topics there are, how far they reach, and new ones.

No request here goes to a group's coordinator but those of ``KafkaGroups``, which see to it that
none of them times out.
"""

import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, wait
from typing import Any, TypeVar

from confluent_kafka import (
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
)
from confluent_kafka import (
    TopicPartition as Place,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined] # its __init__ has no __all__
    AdminClient,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from streamcore.adapters.kafka_errors import REFUSED, TOPIC_MISSING, error_of, made, translate
from streamcore.adapters.kafka_groups import KafkaGroups
from streamcore.adapters.kafka_refusals import Refusals
from streamcore.adapters.kafka_settings import Settings
from streamcore.adapters.rare_log import RareLog
from streamcore.errors import RetriableError, TopicCreationRefusedError
from streamcore.model import TopicPartition
from streamcore.runtime.ports import GroupView, TopicSpec

# Longer than any caller waits: the time-out that counts is ours, on the futures.
REQUEST_TIMEOUT_S = 60.0
_SPECS = {
    "earliest": OffsetSpec.earliest(),  # type: ignore[no-untyped-call]
    "latest": OffsetSpec.latest(),  # type: ignore[no-untyped-call]
    "stable": OffsetSpec.latest(),  # type: ignore[no-untyped-call]
}
_NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"
_CREATION_REFUSED = REFUSED | {KafkaError.POLICY_VIOLATION}
_DELETION_REFUSED = REFUSED | {KafkaError.POLICY_VIOLATION}

K = TypeVar("K")
Answers = dict[K, Any]


class KafkaAdmin:
    """Questions and orders to the cluster.

    A client that has left a request without an answer is thrown away; the next call makes a new
    one (the old connection may be the reason). A question that nobody answers because brokers
    refuse who we are is an ``AuthorizationError`` after a while (``Refusals``).
    """

    def __init__(
        self,
        settings: Settings,
        log: RareLog,
        replication_factor: int = -1,
        refusals: Refusals | None = None,
    ) -> None:
        self._settings = settings
        self._replication_factor = replication_factor
        self._log = log
        self._refusals = Refusals() if refusals is None else refusals
        self._made: AdminClient | None = None
        self._told_refused: set[str] = set()
        self._groups = KafkaGroups(settings, log)

    def group(self, name: str, timeout_ms: int) -> GroupView | None:
        """Return who is in the group; None while that is not known, so ask again.

        :raises GroupRefusedError: if this client may not ask.
        """
        return self._groups.describe(name, timeout_ms)

    def on_new_generation(self) -> None:
        """Answer no question about a group any more that was asked before now."""
        self._groups.forget()

    def partitions(self, topics: Iterable[str], timeout_ms: int) -> dict[str, int | None]:
        """Return the partition count of each topic, None for one that does not exist."""
        # All topics in one request: asking by name may create the topic, where brokers do that.
        self._refusals.asked()
        try:
            known = self._client.list_topics(timeout=timeout_ms / 1_000).topics
        except KafkaException as failure:
            self._give_up()
            raise translate(failure, "listing topics") from failure
        self._refusals.answered()
        counts: dict[str, int | None] = {}
        for topic in topics:
            found = known.get(topic)
            if found is not None and found.error is not None:
                if found.error.code() not in TOPIC_MISSING:
                    raise translate(found.error, f"asking for the partitions of {topic}")
                found = None
            counts[topic] = None if found is None else len(found.partitions)
        return counts

    def topic_ids(self, topics: Iterable[str], timeout_ms: int) -> dict[str, str]:
        """Return the id of each topic ('' where the broker does not tell)."""
        names = list(topics)
        if not names:
            return {}
        futures = self._client.describe_topics(
            TopicCollection(names), request_timeout=REQUEST_TIMEOUT_S
        )
        ids = dict.fromkeys(names, "")
        for name, answer in self._answers(futures, timeout_ms, "describing topics").items():
            if isinstance(answer, KafkaError):
                if answer.code() not in TOPIC_MISSING | REFUSED:
                    raise translate(answer, f"describing {name}")
            elif str(answer.topic_id) != _NO_ID:
                ids[name] = str(answer.topic_id)
        return ids

    def settings(self, topics: Iterable[str], timeout_ms: int) -> dict[str, dict[str, str]]:
        """Return the settings of each topic; a topic whose settings we may not see is left out."""
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in topics]
        if not resources:
            return {}
        futures = self._client.describe_configs(resources, request_timeout=REQUEST_TIMEOUT_S)
        settings: dict[str, dict[str, str]] = {}
        answers = self._answers(futures, timeout_ms, "asking for the settings of topics")
        for resource, answer in answers.items():
            if not isinstance(answer, KafkaError):
                settings[resource.name] = {name: entry.value for name, entry in answer.items()}
            elif answer.code() not in TOPIC_MISSING | REFUSED:
                raise translate(answer, f"asking for the settings of {resource.name}")
        return settings

    def create(
        self, topics: Iterable[TopicSpec], timeout_ms: int, *, only_ask: bool = False
    ) -> None:
        """Create the topics and wait until the broker shows them; one that exists is fine.

        ``only_ask``: the broker tells what it would do, and does nothing. Why it refuses a topic is
        told in the log once.

        :raises TopicCreationRefusedError: names those that this client may not create.
        """
        wanted = {
            spec.name: NewTopic(
                spec.name, spec.partitions, self._replication_factor, config=dict(spec.settings)
            )
            for spec in topics
        }
        if not wanted:
            return
        futures = self._client.create_topics(
            list(wanted.values()),
            request_timeout=REQUEST_TIMEOUT_S,
            operation_timeout=timeout_ms / 1_000,
            validate_only=only_ask,
        )
        refused = []
        for name, answer in self._answers(futures, timeout_ms, "creating topics").items():
            if not isinstance(answer, KafkaError):
                continue
            if answer.code() in _CREATION_REFUSED:
                refused.append(name)
                if not only_ask and name not in self._told_refused:  # it is tried again and again
                    self._told_refused.add(name)
                    self._log.tell(f"creating {name}", answer.str())
            elif answer.code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise translate(answer, f"creating {name}")
        if not only_ask:
            self._wait_until_shown(wanted.keys() - refused, timeout_ms)
        if refused:
            raise TopicCreationRefusedError(refused)

    def _wait_until_shown(self, topics: Iterable[str], timeout_ms: int) -> None:
        """A topic that is made is not known to every broker at once."""
        deadline_s = time.monotonic() + timeout_ms / 1_000
        missing = list(topics)
        while missing:
            shown = self.partitions(missing, timeout_ms)
            missing = [name for name, count in shown.items() if count is None]
            if missing and time.monotonic() > deadline_s:
                raise RetriableError(f"made, but not shown yet: {', '.join(missing)}")
            time.sleep(0.02)

    def offsets(
        self, partitions: Iterable[TopicPartition], where: str, timeout_ms: int
    ) -> dict[TopicPartition, int]:
        """Return the ``"earliest"``, ``"latest"`` or ``"stable"`` offsets."""
        asked = {Place(*source): _SPECS[where] for source in partitions}
        if not asked:
            return {}
        futures = self._client.list_offsets(
            asked,
            isolation_level=(
                IsolationLevel.READ_COMMITTED
                if where == "stable"
                else IsolationLevel.READ_UNCOMMITTED
            ),
            request_timeout=REQUEST_TIMEOUT_S,
        )
        offsets = {}
        for place, answer in self._answers(futures, timeout_ms, "asking for offsets").items():
            source = TopicPartition(place.topic, place.partition)
            if isinstance(answer, KafkaError):
                # What it knows of leaders is old, perhaps, and it would not ask by itself.
                self._made = None
                raise translate(answer, f"asking for offsets of {source}")
            offsets[source] = answer.offset
        return offsets

    def delete_records(
        self, before: Mapping[TopicPartition, int], timeout_ms: int
    ) -> frozenset[str]:
        """Delete the records before these offsets; return the topics where we may not.

        Waits ``timeout_ms`` at most; what is not answered by then goes on by itself. Any other
        failure is told now and then, never raised.
        """
        if not before:
            return frozenset()
        futures = self._client.delete_records(
            [Place(*source, offset) for source, offset in before.items()],
            request_timeout=REQUEST_TIMEOUT_S,
        )
        done, _late = wait(futures.values(), timeout_ms / 1_000)
        refused = set()
        for place, future in futures.items():
            failure = future.exception() if future in done else None
            if isinstance(failure, KafkaException) and (
                error_of(failure).code() in _DELETION_REFUSED
            ):
                refused.add(place.topic)
            elif failure is not None:
                self._log.tell("records were not purged", f"{place.topic}: {failure}")
        return frozenset(refused)

    def serve(self) -> None:
        """Take away events that have piled up."""
        if self._made is not None:
            self._made.poll(0)
        self._groups.serve()

    def close(self) -> None:
        """Let go of the connections."""
        self._made = None
        self._groups.close()

    @property
    def _client(self) -> AdminClient:
        if self._made is None:
            settings: dict[str, Any] = {**self._settings, "error_cb": self._log.on_error}
            self._made = made(lambda: AdminClient(settings))
        return self._made

    def _give_up(self) -> None:
        """Throw the client away that got no answer, but for what it has heard.

        :raises AuthorizationError: if brokers have refused us for too long.
        """
        client, self._made = self._made, None
        if client is not None:
            client.poll(0)
        self._refusals.raise_if_lasting()

    def _answers(
        self, futures: Mapping[K, "Future[Any]"], timeout_ms: int, doing: str
    ) -> Answers[K]:
        """Return result or KafkaError of each; all of them, or RetriableError."""
        _done, late = wait(futures.values(), timeout_ms / 1_000)
        if late:
            self._give_up()
            raise RetriableError(f"{doing}: no answer within {timeout_ms} ms")
        answers: Answers[K] = {}
        for key, future in futures.items():
            failure = future.exception()
            if failure is None:
                answers[key] = future.result()
            elif isinstance(failure, KafkaException):
                answers[key] = error_of(failure)
            else:
                raise failure
        # Local errors have negative codes; any other answer is one of a broker.
        if any(not isinstance(a, KafkaError) or a.code() > 0 for a in answers.values()):
            self._refusals.answered()
        return answers
