"""Refusals: certificates and passwords that are not taken are told from an outage in time."""

import pytest
from confluent_kafka import KafkaError

from streamcore.adapters.kafka_refusals import (
    AT_START_S,
    COUNT_MIN,
    FRESH_S,
    IN_MID_RUN_S,
    Refusals,
)
from streamcore.errors import AuthorizationError

# As librdkafka said them, to a server with a foreign certificate, and to one that refused ours.
FOREIGN = KafkaError(
    KafkaError._SSL,
    "ssl://127.0.0.1:48499/bootstrap: SSL handshake failed: error:0A000086:SSL routines::"
    "certificate verify failed: broker certificate could not be verified (after 2ms in state "
    "SSL_HANDSHAKE)",
)
REFUSED = KafkaError(
    KafkaError._TRANSPORT,
    "ssl://127.0.0.1:43279/bootstrap: Receive failed: error:0A000418:SSL routines::tlsv1 alert "
    "unknown ca: SSL alert number 48 (after 0ms in state APIVERSION_QUERY)",
)
PASSWORD = KafkaError(KafkaError._AUTHENTICATION, "SASL authentication error")
BROKEN_OFF = KafkaError(
    KafkaError._TRANSPORT,
    "ssl://127.0.0.1:33895/bootstrap: SSL handshake failed: Disconnected: connection reset by "
    "peer: connecting to a PLAINTEXT broker listener? (after 0ms in state SSL_HANDSHAKE)",
)
NO_TLS = KafkaError(
    KafkaError._SSL,
    "ssl://127.0.0.1:57175/bootstrap: SSL handshake failed: error:0A00010B:SSL routines::wrong "
    "version number (after 0ms in state SSL_HANDSHAKE)",
)
UNRESOLVED = KafkaError(KafkaError._RESOLVE, "Failed to resolve 'broker:9096'")


class Clock:
    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


def last(refusals: Refusals, clock: Clock, error: KafkaError, seconds: float) -> None:
    """Let nothing but this be heard for so long, every second."""
    for _ in range(int(seconds)):
        refusals.hear(error)
        refusals.raise_if_lasting()
        clock.now_s += 1
    refusals.hear(error)


@pytest.mark.parametrize("error", [FOREIGN, REFUSED, PASSWORD])
def test_a_refusal_that_lasts_is_an_error_with_its_reason(clock: Clock, error: KafkaError) -> None:
    refusals = Refusals(clock)
    last(refusals, clock, error, AT_START_S)
    with pytest.raises(AuthorizationError) as caught:
        refusals.raise_if_lasting()
    assert error.str() in str(caught.value)
    assert "kafka_trusted_cert" in str(caught.value)  # a service says its variable


@pytest.mark.parametrize("error", [BROKEN_OFF, NO_TLS, UNRESOLVED])
def test_an_outage_is_never_one(clock: Clock, error: KafkaError) -> None:
    refusals = Refusals(clock)
    last(refusals, clock, error, 1_000)
    refusals.raise_if_lasting()


def test_a_broker_that_answers_makes_it_a_matter_of_the_others(clock: Clock) -> None:
    refusals = Refusals(clock)
    for _ in range(10):
        last(refusals, clock, FOREIGN, AT_START_S - 1)
        refusals.answered()
    last(refusals, clock, FOREIGN, IN_MID_RUN_S)
    with pytest.raises(AuthorizationError):
        refusals.raise_if_lasting()


def test_a_refusal_that_has_ended_says_nothing_of_now(clock: Clock) -> None:
    refusals = Refusals(clock)
    last(refusals, clock, REFUSED, AT_START_S - 1)
    clock.now_s += FRESH_S + 1
    refusals.raise_if_lasting()


def test_a_client_that_hears_of_it_behind_its_question_counts_from_the_question_on(
    clock: Clock,
) -> None:
    refusals = Refusals(clock)
    for _ in range(2):  # the first of them met an outage
        refusals.asked()
        refusals.hear(BROKEN_OFF)
        clock.now_s += AT_START_S
    for _ in range(COUNT_MIN - 1):
        refusals.hear(FOREIGN)
        refusals.raise_if_lasting()
    refusals.hear(FOREIGN)
    with pytest.raises(AuthorizationError):
        refusals.raise_if_lasting()


def test_an_outage_before_the_first_refusal_does_not_count(clock: Clock) -> None:
    refusals = Refusals(clock)
    refusals.asked()
    clock.now_s += 1_000
    refusals.asked()
    for _ in range(COUNT_MIN):
        refusals.hear(FOREIGN)
    refusals.raise_if_lasting()
