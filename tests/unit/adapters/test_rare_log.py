"""A fault that comes by the hundred is a line now and then."""

from confluent_kafka import KafkaError, ThrottleEvent
from structlog.testing import capture_logs

from streamcore.adapters.rare_log import RareLog


def test_the_same_fault_is_told_once_an_interval_with_a_count() -> None:
    now_s = [100.0]
    log = RareLog(interval_s=10, monotonic_s=lambda: now_s[0])
    with capture_logs() as lines:
        for _ in range(50):
            log.tell("broker trouble", "refused")
            now_s[0] += 0.5
    told = [(line["event"], line.get("left_out", 0)) for line in lines]
    assert told == [("broker trouble", 0), ("broker trouble", 19), ("broker trouble", 19)]


def test_another_fault_is_told_at_once() -> None:
    log = RareLog(monotonic_s=lambda: 0.0)
    with capture_logs() as lines:
        for kind in ("one", "two", "one"):
            log.tell(kind, "why")
    assert [line["event"] for line in lines] == ["one", "two"]


def test_a_broker_that_is_away_is_one_fault_in_whatever_words() -> None:
    log = RareLog(monotonic_s=lambda: 0.0)
    with capture_logs() as lines:
        log.on_error(KafkaError(KafkaError._TRANSPORT, "connection refused"))
        log.on_error(KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down"))
        log.on_error(KafkaError(KafkaError._SSL, "certificate verify failed"))
    assert [line["reason"] for line in lines] == [
        "connection refused (_TRANSPORT)",
        "certificate verify failed",
    ]


def test_throttling_is_summed_up_and_told_rarely_with_the_broker() -> None:
    log = RareLog(monotonic_s=lambda: 0.0)
    with capture_logs() as lines:
        for held_s in (0.5, 0.0, 1.25):  # 0: it is over
            log.on_throttle(ThrottleEvent("broker-1:9092", 1, held_s))
    assert log.throttled_ms == 1_750
    assert [(line["event"], line["reason"]) for line in lines] == [
        ("throttled by a quota", "broker-1:9092 held back an answer for 500 ms; 500 ms in all")
    ]
