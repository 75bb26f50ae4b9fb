"""What librdkafka's error codes mean to us: translated here, once, into ``streamcore.errors``."""

from collections.abc import Callable
from typing import TypeVar

from confluent_kafka import KafkaError, KafkaException

from streamcore.errors import (
    AuthorizationError,
    ConfigError,
    GroupRefusedError,
    MemberFencedError,
    ProducerFencedError,
    RetriableError,
    StreamsError,
    TopicError,
    TransactionAbortedError,
)

# The group has gone on without us. REBALANCE_IN_PROGRESS is none of them: we are still in.
MEMBER_GONE = frozenset(
    {
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.FENCED_INSTANCE_ID,
        KafkaError.STALE_MEMBER_EPOCH,
        KafkaError.FENCED_MEMBER_EPOCH,
        KafkaError._ASSIGNMENT_LOST,  # noqa: SLF001 - how the binding spells local codes
    }
)
PRODUCER_GONE = frozenset(
    {
        KafkaError._FENCED,  # noqa: SLF001
        KafkaError._FATAL,  # noqa: SLF001
        KafkaError.PRODUCER_FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.TRANSACTION_COORDINATOR_FENCED,
    }
)
_PEM_SETTINGS = {
    "ssl.ca.pem": "kafka_trusted_cert",
    "ssl.certificate.pem": "kafka_client_cert",
    "ssl.key.pem": "kafka_client_cert_key",
}
REFUSED = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError._AUTHENTICATION,  # noqa: SLF001
    }
)
TOPIC_MISSING = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.UNKNOWN_TOPIC_ID,
        KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001
        KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001
    }
)
# The broker will never take these of ours: no member can join with them.
SETTING_REFUSED = frozenset({KafkaError.INVALID_SESSION_TIMEOUT, KafkaError.INVALID_GROUP_ID})
POSITION_GONE = frozenset(
    {
        KafkaError.OFFSET_OUT_OF_RANGE,
        KafkaError._AUTO_OFFSET_RESET,  # noqa: SLF001
        KafkaError._LOG_TRUNCATION,  # noqa: SLF001
    }
)
# No or not yet an answer. The binding's own flag covers calls of a transaction only.
PASSING = frozenset(
    {
        KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001
        KafkaError._CONFLICT,  # noqa: SLF001
        KafkaError._IN_PROGRESS,  # noqa: SLF001
        KafkaError._MSG_TIMED_OUT,  # noqa: SLF001
        KafkaError._NOENT,  # noqa: SLF001 - no leader is known, as when offsets are asked for
        KafkaError._PREV_IN_PROGRESS,  # noqa: SLF001
        KafkaError._PURGE_INFLIGHT,  # noqa: SLF001
        KafkaError._PURGE_QUEUE,  # noqa: SLF001
        KafkaError._QUEUE_FULL,  # noqa: SLF001
        KafkaError._RESOLVE,  # noqa: SLF001
        KafkaError._RETRY,  # noqa: SLF001
        KafkaError._SSL,  # noqa: SLF001
        KafkaError._TIMED_OUT,  # noqa: SLF001
        KafkaError._TIMED_OUT_QUEUE,  # noqa: SLF001
        KafkaError._TRANSPORT,  # noqa: SLF001
        KafkaError._WAIT_CACHE,  # noqa: SLF001
        KafkaError._WAIT_COORD,  # noqa: SLF001
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError.CONCURRENT_TRANSACTIONS,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.KAFKA_STORAGE_ERROR,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.LISTENER_NOT_FOUND,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.NOT_CONTROLLER,
        KafkaError.NOT_COORDINATOR,
        KafkaError.NOT_ENOUGH_REPLICAS,
        KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.PREFERRED_LEADER_NOT_AVAILABLE,
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError.REBOOTSTRAP_REQUIRED,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.THROTTLING_QUOTA_EXCEEDED,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.UNSTABLE_OFFSET_COMMIT,
    }
)
# The cluster does transactions, or these transactions, for nobody. librdkafka calls that fatal for
# the producer, but a new producer helps no more.
_NO_TRANSACTIONS = frozenset(
    {
        KafkaError.INVALID_TRANSACTION_TIMEOUT,
        KafkaError.UNSUPPORTED_VERSION,
        KafkaError._UNSUPPORTED_FEATURE,  # noqa: SLF001
    }
)
_OTHER_GUARANTEE = "or set processing_guarantee to at_least_once"
_REMEDIES = {
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: (
        "exactly-once needs the rights WRITE and DESCRIBE on the transactional ids that begin with "
        f"the name of the consumer group: grant them, {_OTHER_GUARANTEE}"
    ),
    KafkaError.INVALID_TRANSACTION_TIMEOUT: (
        "transaction_timeout_ms must not be above the broker's transaction.max.timeout.ms"
    ),
    KafkaError.INVALID_SESSION_TIMEOUT: (
        "session_timeout_ms must lie between the broker's group.min.session.timeout.ms and "
        "group.max.session.timeout.ms"
    ),
    KafkaError.UNSUPPORTED_VERSION: "the broker is too old for this; use a newer one",
    KafkaError._UNSUPPORTED_FEATURE: "the broker is too old for this; use a newer one",  # noqa: SLF001
    KafkaError.GROUP_AUTHORIZATION_FAILED: "grant this client READ on the consumer group",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: (
        "grant this client READ, WRITE and DESCRIBE on that topic"
    ),
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: (
        "writing needs IDEMPOTENT_WRITE on the cluster, or on brokers since 2.8 WRITE on any topic"
    ),
}
# A record that the broker did not take in time, as opposed to one that it refuses.
NOT_DELIVERED = PASSING | {KafkaError._INVALID_DIFFERENT_RECORD}  # noqa: SLF001


def error_of(exception: KafkaException) -> KafkaError:
    """Return the KafkaError inside; the binding always puts one there."""
    error = exception.args[0]
    assert isinstance(error, KafkaError)
    return error


C = TypeVar("C")


def made(make: Callable[[], C]) -> C:
    """Return the client that ``make`` makes.

    :raises ConfigError: if librdkafka takes its settings for wrong: a broken certificate, say.
    """
    try:
        return make()
    except KafkaException as failure:
        error = error_of(failure)
        if error.code() != KafkaError._INVALID_ARG:  # noqa: SLF001
            raise translate(error, "making a client") from failure
        why = error.str()
        for theirs, ours in _PEM_SETTINGS.items():
            why = why.replace(theirs, f"{theirs} ({ours})")
        raise ConfigError([f"the Kafka client cannot be set up: {why}"]) from failure


def translate(failure: KafkaException | KafkaError, doing: str) -> StreamsError:
    """Return what the failure means; ``doing`` begins the message, as in "committing offsets".

    The group counts before the transaction, and the transaction before a mere retry: an error of a
    fenced member also says that its transaction must be aborted.
    """
    error = error_of(failure) if isinstance(failure, KafkaException) else failure
    code = error.code()
    text = f"{doing}: {error.str()} ({error.name()})"
    if code in _REMEDIES:
        text = f"{text}; {_REMEDIES[code]}"
    meanings: tuple[tuple[bool, type[StreamsError]], ...] = (
        (code in MEMBER_GONE, MemberFencedError),
        (code == KafkaError.GROUP_AUTHORIZATION_FAILED, GroupRefusedError),
        (code in REFUSED, AuthorizationError),  # fatal, some of them: a new producer helps nobody
        (code in _NO_TRANSACTIONS, StreamsError),
        (code in PRODUCER_GONE or error.fatal(), ProducerFencedError),
        (error.txn_requires_abort(), TransactionAbortedError),
        (error.retriable() or code in PASSING, RetriableError),
        (code in TOPIC_MISSING, TopicError),
    )
    return next((meaning for holds, meaning in meanings if holds), StreamsError)(text)
