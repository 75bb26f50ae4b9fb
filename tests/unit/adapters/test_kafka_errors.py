"""What error codes mean to us."""

from collections.abc import Callable

import pytest
from confluent_kafka import KafkaError, KafkaException

from streamcore.adapters.kafka_errors import made, translate
from streamcore.errors import (
    AuthorizationError,
    ConfigError,
    GroupRefusedError,
    MemberFencedError,
    ProducerFencedError,
    Recovery,
    RetriableError,
    StreamsError,
    TopicError,
    TransactionAbortedError,
)


@pytest.mark.parametrize(
    ("error", "meaning"),
    [
        (KafkaError(KafkaError.UNKNOWN_MEMBER_ID), MemberFencedError),
        (KafkaError(KafkaError.ILLEGAL_GENERATION, txn_requires_abort=True), MemberFencedError),
        (KafkaError(KafkaError.REBALANCE_IN_PROGRESS), RetriableError),
        (KafkaError(KafkaError._FENCED, fatal=True), ProducerFencedError),
        (KafkaError(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, fatal=True), ProducerFencedError),
        (
            KafkaError(KafkaError.INVALID_TXN_STATE, txn_requires_abort=True),
            TransactionAbortedError,
        ),
        (KafkaError(KafkaError._MSG_TIMED_OUT, txn_requires_abort=True), TransactionAbortedError),
        (KafkaError(KafkaError._TIMED_OUT, retriable=True), RetriableError),
        (KafkaError(KafkaError._TRANSPORT), RetriableError),
        (KafkaError(KafkaError.UNSTABLE_OFFSET_COMMIT), RetriableError),
        (KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED), GroupRefusedError),
        (KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED), AuthorizationError),
        (KafkaError(KafkaError.CLUSTER_AUTHORIZATION_FAILED, fatal=True), AuthorizationError),
        (KafkaError(KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, fatal=True), StreamsError),
        (KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART), TopicError),
        (KafkaError(KafkaError.OFFSET_METADATA_TOO_LARGE), StreamsError),
    ],
)
def test_a_code_means(error: KafkaError, meaning: type[StreamsError]) -> None:
    for failure in (error, KafkaException(error)):
        translated = translate(failure, "doing something")
        assert isinstance(translated, meaning)
        assert str(translated).startswith("doing something: ")
        assert error.name() in str(translated)


def test_what_nobody_knows_stops() -> None:
    translated = translate(KafkaError(KafkaError.UNKNOWN), "doing something")
    assert type(translated) is StreamsError
    assert translated.recovery is Recovery.STOP


def test_a_refused_right_stops_even_where_the_client_calls_it_fatal() -> None:
    error = KafkaError(KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, fatal=True)
    assert translate(error, "starting").recovery is Recovery.STOP


def failing(code: int) -> Callable[[], None]:
    def make() -> None:
        raise KafkaException(KafkaError(code, "ssl.ca.pem failed: not in PEM format?"))

    return make


def test_a_client_that_cannot_be_made_of_its_settings_is_a_matter_of_settings() -> None:
    with pytest.raises(ConfigError, match=r"cannot be set up: ssl\.ca\.pem \(kafka_trusted_cert\)"):
        made(failing(KafkaError._INVALID_ARG))
    with pytest.raises(StreamsError, match="making a client") as caught:
        made(failing(KafkaError._CRIT_SYS_RESOURCE))
    assert not isinstance(caught.value, ConfigError)
