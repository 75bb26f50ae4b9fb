"""What the app may do on the Heroku-like broker, and that it may do nothing else.

Each refusal stands beside the same request by somebody who may: a request that fails for another
reason would prove nothing.
"""

import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # not in its __all__
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    ResourcePatternType,
    ResourceType,
)
from confluent_kafka.cimpl import NewTopic

from devstack.heroku.sandbox import Sandbox

TIMEOUT_S = 20.0
TOPIC_REFUSED = "TOPIC_AUTHORIZATION_FAILED"
GROUP_REFUSED = "GROUP_AUTHORIZATION_FAILED"
CLUSTER_REFUSED = "CLUSTER_AUTHORIZATION_FAILED"
ID_REFUSED = "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"


def outcome(request: Callable[[], Any]) -> str:
    """Return how a request ended: `ok`, or the name of the broker's refusal."""
    try:
        request()
    except KafkaException as problem:
        return str(problem.args[0].name())
    return "ok"


def asked(clients: dict[str, str], request: Callable[[AdminClient], dict[Any, Any]]) -> str:
    """Return how a request with a single answer ended."""
    admin = AdminClient(dict(clients))  # answers to a client that is gone never come
    (future,) = request(admin).values()
    return outcome(lambda: future.result(timeout=TIMEOUT_S))


def topics_seen(clients: dict[str, str]) -> set[str]:
    return set(AdminClient(dict(clients)).list_topics(timeout=TIMEOUT_S).topics)


def producing(clients: dict[str, str], topic: str, **settings: Any) -> str:
    """Return how writing one record ended."""
    ends: list[str] = []
    # A topic that the broker does not know is by default believed in for half a minute.
    patience = {"message.timeout.ms": 20_000, "topic.metadata.propagation.max.ms": 500}
    producer = Producer({**clients, **patience, **settings})

    def note(error: KafkaError | None, _message: object) -> None:
        ends.append("ok" if error is None else error.name())

    producer.produce(topic, b"value", on_delivery=note)
    producer.flush(TIMEOUT_S)
    return ends[0] if ends else "no answer"


def consuming(clients: dict[str, str], topic: str, group: str, *, join: bool) -> str:
    """Return how reading the first record ended, as a member of the group or without joining."""
    consumer = Consumer(
        {
            **clients,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    try:
        if join:
            consumer.subscribe([topic])
        else:
            consumer.assign([TopicPartition(topic, 0, 0)])
        deadline, answer = time.monotonic() + TIMEOUT_S, "no answer"
        while time.monotonic() < deadline:
            message = consumer.poll(0.2)
            if message is not None:
                error = message.error()
                answer = "ok" if error is None else str(error.name())
                if error is None or join:  # the group's coordinator may refuse it, and rows come
                    break
        return answer
    finally:
        consumer.close()


@pytest.fixture
def foreign(heroku: Sandbox) -> str:
    """A topic of another app, with a record in it."""
    name = f"not-{heroku.prefix}words"
    new = NewTopic(name, 1, 1)
    assert asked(heroku.administrators, lambda admin: admin.create_topics([new])) == "ok"
    assert producing(heroku.administrators, name) == "ok"
    return name


@pytest.fixture
def words(heroku: Sandbox) -> str:
    heroku.run("kafka:topics:create words --partitions 1")
    return f"{heroku.prefix}words"


def test_what_an_app_lives_on_is_granted(heroku: Sandbox, words: str) -> None:
    heroku.run("kafka:consumer-groups:create readers")
    group = f"{heroku.prefix}readers"
    assert producing(heroku.clients, words, **{"enable.idempotence": True}) == "ok"
    assert consuming(heroku.clients, words, group, join=True) == "ok"

    consumer = Consumer({**heroku.clients, "group.id": group})
    committed = [TopicPartition(words, 0, 1)]
    assert outcome(lambda: consumer.commit(offsets=committed, asynchronous=False)) == "ok"
    (found,) = consumer.committed([TopicPartition(words, 0)], timeout=TIMEOUT_S)
    assert found.offset == 1
    consumer.close()

    assert topics_seen(heroku.clients) == {words}
    assert asked(heroku.clients, lambda admin: admin.describe_consumer_groups([group])) == "ok"
    admin = AdminClient(dict(heroku.clients))
    listed = admin.list_consumer_groups().result(timeout=TIMEOUT_S)
    assert [each.group_id for each in listed.valid] == [group]
    assert asked(heroku.clients, lambda admin: admin.delete_consumer_groups([group])) == "ok"


def test_a_topic_outside_of_the_prefix_cannot_be_read_written_or_seen(
    heroku: Sandbox, foreign: str
) -> None:
    heroku.run("kafka:consumer-groups:create readers")
    group = f"{heroku.prefix}readers"
    assert producing(heroku.clients, foreign) == TOPIC_REFUSED
    assert consuming(heroku.clients, foreign, group, join=True) == TOPIC_REFUSED
    assert foreign not in topics_seen(heroku.clients)
    described = AdminClient(dict(heroku.clients)).list_topics(foreign, timeout=TIMEOUT_S)
    error = described.topics[foreign].error
    assert error is not None
    assert error.name() == TOPIC_REFUSED
    assert consuming(heroku.administrators, foreign, "any", join=False) == "ok"


@pytest.mark.parametrize("bare", [True, False])
def test_a_group_that_was_not_granted_by_its_name_is_refused(
    heroku: Sandbox, words: str, bare: bool
) -> None:
    heroku.run("kafka:consumer-groups:create readers")
    assert producing(heroku.clients, words) == "ok"
    # One that begins like a granted one is another one, and so is one without the prefix.
    group = "readers" if bare else f"{heroku.prefix}readers2"
    assert consuming(heroku.clients, words, group, join=True) == GROUP_REFUSED
    described = asked(heroku.clients, lambda admin: admin.describe_consumer_groups([group]))
    assert described == GROUP_REFUSED
    commit = [ConsumerGroupTopicPartitions(group, [TopicPartition(words, 0, 1)])]
    committed = asked(heroku.clients, lambda admin: admin.alter_consumer_group_offsets(commit))
    assert committed == GROUP_REFUSED
    assert consuming(heroku.administrators, words, group, join=True) == "ok"


def test_reading_without_a_group_needs_no_group(heroku: Sandbox, words: str) -> None:
    assert producing(heroku.clients, words) == "ok"
    assert consuming(heroku.clients, words, f"{heroku.prefix}any", join=False) == "ok"


def test_no_topic_is_made_neither_by_asking_nor_by_writing(heroku: Sandbox) -> None:
    name = f"{heroku.prefix}mine"
    new = NewTopic(name, 1, 1)
    assert asked(heroku.clients, lambda admin: admin.create_topics([new])) == TOPIC_REFUSED
    assert producing(heroku.clients, name) == "UNKNOWN_TOPIC_OR_PART"
    assert producing(heroku.administrators, name) == "UNKNOWN_TOPIC_OR_PART"
    assert asked(heroku.administrators, lambda admin: admin.create_topics([new])) == "ok"


def test_no_transaction_begins(heroku: Sandbox, words: str) -> None:
    settings: dict[str, Any] = {"transactional.id": f"{heroku.prefix}readers"}
    refused = Producer({**heroku.clients, **settings})
    assert outcome(lambda: refused.init_transactions(TIMEOUT_S)) == ID_REFUSED
    allowed = Producer({**heroku.administrators, **settings})
    assert outcome(lambda: allowed.init_transactions(TIMEOUT_S)) == "ok"


def test_settings_cannot_be_read_or_changed(heroku: Sandbox, words: str) -> None:
    def read(clients: dict[str, str], resource: ConfigResource) -> str:
        return asked(clients, lambda admin: admin.describe_configs([resource]))

    def change(clients: dict[str, str]) -> str:
        entry = ConfigEntry("retention.ms", "1000", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.TOPIC, words, incremental_configs=[entry])
        return asked(clients, lambda admin: admin.incremental_alter_configs([resource]))

    topic = ConfigResource(ConfigResource.Type.TOPIC, words)
    broker = ConfigResource(ConfigResource.Type.BROKER, "1")
    assert read(heroku.clients, topic) == TOPIC_REFUSED
    assert read(heroku.clients, broker) == CLUSTER_REFUSED
    assert change(heroku.clients) == TOPIC_REFUSED
    assert read(heroku.administrators, topic) == "ok"
    assert read(heroku.administrators, broker) == "ok"
    assert change(heroku.administrators) == "ok"


def test_nothing_is_deleted_and_no_partition_added(heroku: Sandbox, words: str) -> None:
    assert producing(heroku.clients, words) == "ok"
    before = TopicPartition(words, 0, 1)

    def delete_records(clients: dict[str, str]) -> str:
        return asked(clients, lambda admin: admin.delete_records([before]))

    def widen(clients: dict[str, str]) -> str:
        return asked(clients, lambda admin: admin.create_partitions([NewPartitions(words, 2)]))

    def delete_topic(clients: dict[str, str]) -> str:
        return asked(clients, lambda admin: admin.delete_topics([words]))

    for request in (delete_records, widen, delete_topic):
        assert request(heroku.clients) == TOPIC_REFUSED, request
        assert request(heroku.administrators) == "ok", request


def test_an_app_gives_itself_no_rights(heroku: Sandbox) -> None:
    wish = AclBinding(
        ResourceType.TOPIC, "*", ResourcePatternType.LITERAL,
        heroku.principal, "*", AclOperation.ALL, AclPermissionType.ALLOW,
    )  # fmt: skip
    assert asked(heroku.clients, lambda admin: admin.create_acls([wish])) == CLUSTER_REFUSED


def test_quotas_are_those_of_the_plan_and_can_be_taken_away(heroku: Sandbox, words: str) -> None:
    slow = 64 * 1024
    plan = heroku.app.cluster().plan
    assert (plan.produce_bytes_per_s, plan.consume_bytes_per_s) == (slow, 4 * slow)
    assert writing_is_held_back(heroku, words) == 0
    heroku.throttle()
    assert writing_is_held_back(heroku, words) > 1000
    assert reading_is_held_back(heroku, words)
    heroku.throttle(on=False)
    assert writing_is_held_back(heroku, words) == 0
    assert not reading_is_held_back(heroku, words)


def writing_is_held_back(heroku: Sandbox, topic: str) -> float:
    """Write a megabyte and return for how long the broker has held back its answers, in ms."""
    held_s: list[float] = []
    settings: dict[str, Any] = {
        **heroku.clients,
        "compression.type": "none",
        "throttle_cb": lambda event: held_s.append(event.throttle_time),
    }
    producer = Producer(settings)
    for _ in range(1024):
        producer.produce(topic, b"x" * 1024)
    assert producer.flush(60) == 0
    producer.poll(0.1)
    return sum(held_s) * 1000


def reading_is_held_back(heroku: Sandbox, topic: str) -> bool:
    """Read three megabytes, and say whether the broker has held back an answer meanwhile."""
    held_s: list[float] = []
    settings: dict[str, Any] = {
        **heroku.clients,
        "group.id": f"{heroku.prefix}any",
        "enable.auto.commit": False,  # it is not granted, so a commit at the end would wait
        "throttle_cb": lambda event: held_s.append(event.throttle_time),
    }
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(topic, 0, 0)])
    rows, deadline = 0, time.monotonic() + 60
    while rows < 2048 and not any(held_s):
        assert time.monotonic() < deadline
        rows += len(consumer.consume(1000, 0.2))
    consumer.close()
    return any(held_s)
