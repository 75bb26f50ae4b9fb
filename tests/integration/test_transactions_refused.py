"""Exactly-once where the broker grants no transactions: said once, clearly, and no way round it."""

import time
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # not in its __all__
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from tests.integration.conftest import MakeStack
from tests.integration.harness import AGGREGATOR, COUNTS, WORDS, Stack, line, wait_until

from devstack.kafka import Broker
from devstack.pytest_plugin import TEST_SETTINGS, Names
from streamcore.adapters.kafka_cluster import KafkaCluster
from streamcore.config import StreamsConfig
from streamcore.errors import AuthorizationError, Recovery, StreamsError
from streamcore.runtime.ports import GroupView
from streamcore.testing.contracts.group import ask

pytestmark = pytest.mark.broker

EVERYBODY = "User:ANONYMOUS"
PREFIX = "t-refused-"
SAID_WITHIN_S = 15
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker that lets everybody do everything, but use the transactional ids of our stacks."""
    folder = tmp_path_factory.mktemp("strict")
    settings = {**TEST_SETTINGS, **AUTHORIZER, "transaction.max.timeout.ms": "60000"}
    with Broker(folder, settings=settings) as broker:
        deny(broker, ResourceType.TRANSACTIONAL_ID, AclOperation.WRITE, PREFIX)
        yield broker


def deny(broker: Broker, resource: ResourceType, operation: AclOperation, prefix: str) -> None:
    """Take a right from everybody, for names that begin like this."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    acl = AclBinding(
        resource, prefix, ResourcePatternType.PREFIXED,
        EVERYBODY, "*", operation, AclPermissionType.DENY,
    )  # fmt: skip
    for future in admin.create_acls([acl]).values():
        future.result(timeout=20)


def cluster_of(broker: Broker, group: str, **settings: int) -> KafkaCluster:
    config = StreamsConfig(
        application_id=group,
        kafka_url=broker.url,
        processing_guarantee="exactly_once_v2",
        **settings,  # type: ignore[arg-type]
    )
    return KafkaCluster(config, group)


@pytest.fixture
def stack(strict: Broker, stacks: MakeStack, names: Names) -> Stack:
    made = stacks(strict, prefix=f"{PREFIX}{names.prefix}")
    made.create(WORDS, COUNTS, partitions=2)
    made.produce(WORDS, [line(number % 2, 1_000 + number, "word") for number in range(100)])
    return made


def test_exactly_once_ends_with_one_line_that_names_the_right_and_the_remedy(stack: Stack) -> None:
    began_s = time.monotonic()
    aggregator = stack.start("aggregator", STREAMCORE_PROCESSING_GUARANTEE="exactly_once_v2")
    assert aggregator.wait(SAID_WITHIN_S), f"it goes on:\n{aggregator.tail(40)}"
    assert time.monotonic() - began_s < SAID_WITHIN_S
    assert aggregator.returncode == 1
    said = [row for row in aggregator.tail(100).splitlines() if "transactional id" in row.lower()]
    assert len(said) == 1, aggregator.tail(100)
    assert said[0].startswith("aggregator: ")
    assert f"as {stack.name(AGGREGATOR)}." in said[0]
    assert "TRANSACTIONAL_ID_AUTHORIZATION_FAILED" in said[0]
    assert "WRITE and DESCRIBE" in said[0]
    assert "at_least_once" in said[0]
    # Not one record was processed with a weaker promise.
    assert stack.ends(COUNTS) == {(COUNTS, 0): 0, (COUNTS, 1): 0}
    assert not any(stack.committed(AGGREGATOR, WORDS).values())


def test_at_least_once_needs_no_such_right(stack: Stack) -> None:
    aggregator = stack.start("aggregator", STREAMCORE_PROCESSING_GUARANTEE="at_least_once")
    wait_until(lambda: sum(stack.ends(COUNTS).values()) > 0, "a count", alive=[aggregator])
    stack.stop(aggregator)


def test_a_transaction_timeout_that_the_broker_does_not_take_is_no_matter_of_trying_again(
    strict: Broker,
) -> None:
    cluster = cluster_of(strict, "app", transaction_timeout_ms=61_000)
    producer = cluster.producer("app.slot.run")
    with pytest.raises(StreamsError, match="transaction_timeout_ms") as caught:
        producer.init_transactions(20_000)
    assert caught.value.recovery is Recovery.STOP
    cluster.close()


def test_a_refusal_to_describe_the_group_names_it_and_the_remedy(strict: Broker) -> None:
    deny(strict, ResourceType.GROUP, AclOperation.DESCRIBE, "secret")
    admin = cluster_of(strict, "app").admin()
    refusals: list[AuthorizationError] = []

    def asked() -> bool:
        try:
            admin.group("secret", 1_000)
        except AuthorizationError as refusal:
            refusals.append(refusal)
        return bool(refusals)

    wait_until(asked, "a refusal")
    assert "secret" in str(refusals[0])
    assert "DESCRIBE" in str(refusals[0])
    assert ask(admin, "another") == GroupView(stable=True, members=())
    admin.close()
