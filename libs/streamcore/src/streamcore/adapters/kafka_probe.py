"""Looking at a cluster: what it has and what this client may do, with bounded waits, read-only.

No record is written and no topic made; whether one could be made is asked without doing it. Two
questions leave a trace, as every client does that asks them: a producer id is handed out for the
idempotence, and one transactional id, always the same, is known to the broker for a week.
"""

import json
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined] # its __init__ has no __all__
    ClusterMetadata,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from streamcore.adapters.kafka_errors import PASSING, REFUSED, TOPIC_MISSING, error_of
from streamcore.adapters.kafka_reach import (
    Faults,
    Until,
    admin_client,
    advertised_only,
    call_all,
    plain_words,
    probing_producer,
)
from streamcore.adapters.kafka_settings import admin_settings, producer_settings
from streamcore.cluster import NOT_ASKED, Answer, ClusterFacts, TopicFacts
from streamcore.config import StreamsConfig

# A request that times out before the connection is up can end the whole process (librdkafka #4605),
# so the time-out that counts is ours, on the futures.
_REQUEST_TIMEOUT_S: Final = 3_600.0
_FOR_NOBODY: Final = frozenset(
    {
        KafkaError.INVALID_TRANSACTION_TIMEOUT,
        KafkaError.UNSUPPORTED_VERSION,
        KafkaError._UNSUPPORTED_FEATURE,  # noqa: SLF001 - how the binding spells local codes
    }
)
"""What the cluster does not do, whoever asks."""


def look_at_cluster(
    config: StreamsConfig,
    topics: Iterable[str],
    groups: Iterable[str],
    *,
    timeout_s: float = 15.0,
    probes: bool = True,
) -> ClusterFacts:
    """Return what the cluster tells about these topics and groups, named as on the broker.

    Takes ``timeout_s`` at most and raises nothing for a cluster that is away. ``probes``: whether
    idempotence and transactions are asked for, too; the latter in the name of the first group.

    :raises ConfigError: if librdkafka takes the settings for wrong.
    """
    until = Until(timeout_s)
    wanted, names = sorted(set(topics)), list(dict.fromkeys(groups))
    calls = call_all(config, config.brokers.servers.split(","), until)
    metadata = next((call.metadata for call in calls if call.metadata is not None), None)
    if metadata is None:
        return ClusterFacts(tuple(call.facts for call in calls))
    others = advertised_only(metadata, calls)
    with ThreadPoolExecutor(max_workers=5 + len(names)) as pool:
        advertised = pool.submit(call_all, config, others, until, advertised=True)
        described = pool.submit(_topics, config, metadata, wanted, until)
        shown = {name for name, found in metadata.topics.items() if found.error is None}
        missing = [name for name in wanted if name not in shown]
        creatable = pool.submit(_creatable, config, missing, until) if probes else None
        rights = [pool.submit(_group, config, name, until) for name in names]
        group = names[0] if names else "streamcore"
        idempotence = pool.submit(_idempotence, config, until) if probes else None
        transactions = pool.submit(_transactions, config, until, group) if probes else None
    seen, hidden = described.result()
    return ClusterFacts(
        brokers=tuple(call.facts for call in (*calls, *advertised.result())),
        topics=seen,
        hidden=hidden,
        creatable=creatable.result() if creatable else frozenset(),
        groups={name: right.result() for name, right in zip(names, rights, strict=True)},
        idempotence=idempotence.result() if idempotence else NOT_ASKED,
        transactions=transactions.result() if transactions else NOT_ASKED,
    )


# --- topics and groups ------------------------------------------------------------------------


def _topics(
    config: StreamsConfig, metadata: ClusterMetadata, wanted: list[str], until: Until
) -> tuple[dict[str, TopicFacts], frozenset[str]]:
    client = admin_client(admin_settings(config), Faults())
    shapes = {
        name: (len(found.partitions), _replication(found))
        for name, found in metadata.topics.items()
        if found.error is None
    }
    there = [name for name in wanted if name in shapes]
    described: Mapping[str, Any] = {}
    settings: Mapping[Any, Any] = {}
    if wanted:
        described = client.describe_topics(
            TopicCollection(wanted),
            include_authorized_operations=True,
            request_timeout=_REQUEST_TIMEOUT_S,
        )
    if there:
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in there]
        settings = client.describe_configs(resources, request_timeout=_REQUEST_TIMEOUT_S)
    wait([*described.values(), *settings.values()], until.left_s)
    found = {name: _outcome(answer) for name, answer in described.items()}
    told = {resource.name: _outcome(answer) for resource, answer in settings.items()}
    facts = {
        name: TopicFacts(
            name,
            *shape,
            settings=_values(told.get(name)),
            rights=_rights(found.get(name)),
        )
        for name, shape in shapes.items()
    }
    hidden = {
        name
        for name, answer in found.items()
        if isinstance(answer, KafkaError) and answer.code() in REFUSED - TOPIC_MISSING
    }
    return facts, frozenset(hidden)


def _creatable(config: StreamsConfig, topics: list[str], until: Until) -> frozenset[str]:
    """Return which of these this client may create: the broker tells, and makes none."""
    if not topics:
        return frozenset()
    client = admin_client(admin_settings(config), Faults())
    answers = client.create_topics(
        [NewTopic(name, 1) for name in topics],
        request_timeout=_REQUEST_TIMEOUT_S,
        validate_only=True,
    )
    wait(answers.values(), until.left_s)
    return frozenset(
        name
        for name, answer in answers.items()
        if answer.done() and not isinstance(_outcome(answer), KafkaError)
    )


def _replication(topic: Any) -> int:
    return max((len(partition.replicas) for partition in topic.partitions.values()), default=0)


def _values(answer: Any) -> dict[str, str] | None:
    if answer is None or isinstance(answer, KafkaError):
        return None
    return {name: str(entry.value) for name, entry in answer.items()}


def _rights(answer: Any) -> frozenset[str] | None:
    operations = getattr(answer, "authorized_operations", None)
    # Whoever may describe a thing has that right at least: none at all is an old broker's answer.
    return frozenset(one.name for one in operations) if operations else None


def _group(config: StreamsConfig, name: str, until: Until) -> Answer:
    """Return whether this client may be a member of the group."""
    said = "no answer in time"
    while until.left_s > 0:
        client = admin_client(admin_settings(config), Faults())
        futures = client.describe_consumer_groups(
            [name], include_authorized_operations=True, request_timeout=_REQUEST_TIMEOUT_S
        )
        # A client that meets a coordinator in its first second may wait for it for long.
        wait(futures.values(), min(2.0, until.left_s))
        answer = _outcome(futures[name])
        if answer is None:
            continue
        if not isinstance(answer, KafkaError):
            rights = _rights(answer)
            if rights is not None and "READ" not in rights:
                return Answer(False, f"only {', '.join(sorted(rights))} is granted")
            return Answer(True)
        if answer.code() == KafkaError.GROUP_ID_NOT_FOUND:
            return Answer(True)
        said = plain_words(answer.str())
        if answer.code() in REFUSED:
            return Answer(False, answer.name())
        if answer.code() not in PASSING:
            break
        time.sleep(min(0.2, until.left_s))
    return Answer(None, said)


def _outcome(answer: "Future[Any]") -> Any:
    """Return a result, a KafkaError, or None for what was not answered in time."""
    if not answer.done():
        return None
    failure = answer.exception()
    if failure is None:
        return answer.result()
    if isinstance(failure, KafkaException):
        return error_of(failure)
    raise failure


# --- producers --------------------------------------------------------------------------------


def _idempotence(config: StreamsConfig, until: Until) -> Answer:
    """Return whether a producer gets an id, which it asks for before it has any record."""
    states: list[str] = []
    faults = Faults()
    settings = {
        **producer_settings(config, None),
        "statistics.interval.ms": 100,
        "stats_cb": lambda text: states.append(json.loads(text)["eos"]["idemp_state"]),
    }
    producer = probing_producer(settings, faults)
    try:
        while until.left_s > 0:
            producer.poll(min(0.1, until.left_s))
            if faults.last is not None and faults.last.code() in REFUSED:
                return Answer(False, faults.last.name())
            if "Assigned" in states[-1:]:
                return Answer(True)
    except KafkaException as failure:
        return _refusal(failure)
    return Answer(None, "no answer in time")


def _transactions(config: StreamsConfig, until: Until, group: str) -> Answer:
    """Return whether a producer may begin transactions, under an id of the group's."""
    producer = probing_producer(producer_settings(config, f"{group}.doctor"), Faults())
    said = "no answer in time"
    while until.left_s > 0:
        try:
            producer.init_transactions(min(5.0, max(0.05, until.left_s)))
        except KafkaException as failure:
            answer = _refusal(failure)
            if answer.allowed is False or not error_of(failure).retriable():
                return answer
            said = answer.said
        else:
            return Answer(True)
    return Answer(None, said)


def _refusal(failure: KafkaException) -> Answer:
    error = error_of(failure)
    if error.code() in REFUSED | _FOR_NOBODY:
        return Answer(False, error.name())
    return Answer(None, plain_words(error.str()))
