"""A transactional producer whose librdkafka does not come back, as after a broker's restart."""

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Producer

from streamcore.adapters import kafka_producer
from streamcore.adapters.kafka_producer import KafkaProducer
from streamcore.adapters.rare_log import RareLog
from streamcore.errors import ProducerFencedError
from streamcore.model import OffsetAndMetadata, Send, TopicPartition

OFFSETS = {TopicPartition("t", 0): OffsetAndMetadata(1)}
PATIENCE_S = 5
CALLS: dict[str, Callable[[KafkaProducer], None]] = {
    "init_transactions": lambda p: p.init_transactions(50),
    "send_offsets_to_transaction": lambda p: p.commit_transaction(OFFSETS, object(), 50),
    "commit_transaction": lambda p: p.commit_transaction({}, None, 50),
    "abort_transaction": lambda p: p.abort_transaction(50),
}


class Stuck(Producer):
    """librdkafka's own producer, but one of its calls takes no notice of its time-out."""

    release = threading.Event()
    stuck_in = ""

    def _answer(self, call: str) -> None:
        if call == self.stuck_in:
            self.release.wait(60)

    def init_transactions(self, *_: Any) -> None:
        self._answer("init_transactions")

    def begin_transaction(self, *_: Any) -> None: ...

    def send_offsets_to_transaction(self, *_: Any) -> None:
        self._answer("send_offsets_to_transaction")

    def commit_transaction(self, *_: Any) -> None:
        self._answer("commit_transaction")

    def abort_transaction(self, *_: Any) -> None:
        self._answer("abort_transaction")


@pytest.fixture
def producer(monkeypatch: pytest.MonkeyPatch) -> Iterator[KafkaProducer]:
    monkeypatch.setattr(kafka_producer, "Producer", Stuck)
    monkeypatch.setattr(kafka_producer, "OVERDUE_S", 0.05)
    monkeypatch.setattr(kafka_producer, "ABORT_TIMEOUT_MS", 50)
    Stuck.release.clear()
    yield KafkaProducer({"bootstrap.servers": "", "transactional.id": "id"}, RareLog())
    Stuck.release.set()


@pytest.mark.parametrize("call", CALLS)
def test_a_call_that_ignores_its_time_out_is_the_end_of_the_producer(
    producer: KafkaProducer, call: str
) -> None:
    Stuck.stuck_in = call
    if call != "init_transactions":
        producer.begin_transaction()
    began_s = time.monotonic()
    with pytest.raises(ProducerFencedError, match="does not come back"):
        CALLS[call](producer)
    with pytest.raises(ProducerFencedError):
        producer.send(Send("t", [b"k"], [b"v"], [1], partition=0))
    producer.close()
    assert time.monotonic() - began_s < PATIENCE_S


def test_closing_waits_for_no_abort_that_does_not_come_back(producer: KafkaProducer) -> None:
    Stuck.stuck_in = "abort_transaction"
    producer.begin_transaction()
    began_s = time.monotonic()
    producer.close()
    assert time.monotonic() - began_s < PATIENCE_S
