"""What the words of a client that cannot connect say about the other end."""

from typing import Final

import pytest
from confluent_kafka import KafkaError

from streamcore.adapters.kafka_reach import Faults, plain_words, reach_of
from streamcore.cluster import Reach

TRANSPORT, SSL = KafkaError._TRANSPORT, KafkaError._SSL


# As librdkafka 2.16 was heard to say it.
HEARD: Final[tuple[tuple[Reach, int, str], ...]] = (
    ("nobody", TRANSPORT, "h:1/bootstrap: Connect to ipv4#127.0.0.1:1 failed: Connection refused"),
    ("unresolved", KafkaError._RESOLVE, "h:1/bootstrap: Failed to resolve 'h:1': Name or service"),
    (
        "foreign",
        SSL,
        (
            "ssl://h:1/bootstrap: SSL handshake failed: error:0A000086:SSL routines::certificate "
            "verify failed: broker certificate could not be verified, verify that ssl.ca.location"
        ),
    ),
    (
        "refuses us",
        SSL,
        (
            "ssl://h:1/bootstrap: SSL handshake failed: error:0A000412:SSL routines::sslv3 alert "
            "bad certificate: SSL alert number 42"
        ),
    ),
    (
        "plain",
        TRANSPORT,
        (
            "ssl://h:1/bootstrap: SSL handshake failed: Disconnected: SSL connection closed by "
            "peer: connecting to a PLAINTEXT broker listener? (after 4ms in state SSL_HANDSHAKE)"
        ),
    ),
    (
        "tls",
        TRANSPORT,
        (
            "h:1/bootstrap: Disconnected while requesting ApiVersion: might be caused by incorrect "
            "security.protocol configuration (after 3ms in state APIVERSION_QUERY)"
        ),
    ),
    ("silent", TRANSPORT, "h:1/bootstrap: Connection setup timed out in state CONNECT"),
    ("silent", KafkaError._TIMED_OUT, "Failed to get metadata: Local: Timed out"),
    ("trouble", KafkaError._BAD_MSG, "h:1/bootstrap: Receive failed: Invalid response size"),
)


@pytest.mark.parametrize(("reach", "code", "said"), HEARD)
def test_a_fault_says(reach: Reach, code: int, said: str) -> None:
    assert reach_of(KafkaError(code, said)) == reach


def test_of_several_words_for_one_fault_the_clearest_counts() -> None:
    faults = Faults()
    clearest = []
    for _, code, said in HEARD[::-1]:
        faults.on_error(KafkaError(code, said))
        clearest.append(faults.clearest[0] if faults.clearest else None)
    assert clearest == [
        "trouble", "trouble", "trouble", "tls", "plain", "plain", "foreign", "foreign", "foreign",
    ]  # fmt: skip
    faults.on_error(KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down"))
    assert faults.last is not None
    assert faults.last.code() != KafkaError._ALL_BROKERS_DOWN


def test_a_connection_that_librdkafka_only_writes_of_in_its_log_is_heard() -> None:
    faults = Faults()
    said = "h:1/bootstrap: Disconnected: connection closed by peer: receive 0 after POLLIN"
    for line in (
        f"FAIL [rdkafka#producer-1] [thrd:h:1/bootstrap]: {said}",
        "INIT [rdkafka#producer-1] [thrd:app]: librdkafka Disconnected",
    ):
        faults.logger.info(line)
    assert faults.clearest is not None
    assert faults.clearest[0] == "tls"
    assert faults.clearest[1].str() == said


def test_where_and_for_how_long_is_left_out() -> None:
    said = "ssl://h:1/bootstrap: Connect to\n ipv4#127.0.0.1:1 failed (after 0ms in state CONNECT)"
    assert plain_words(said) == "Connect to ipv4#127.0.0.1:1 failed"
    assert plain_words("Local: Timed out") == "Local: Timed out"
