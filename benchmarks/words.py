"""The input: seeded words by Zipf, with timestamps that rise within each partition."""

import random
from collections.abc import Iterable, Iterator
from itertools import accumulate

from confluent_kafka import KafkaException, Producer

VOCABULARY_SIZE = 50_000
ZIPF_EXPONENT = 1.0
RECORDS_PER_MS = 60
# 2023-11-14T22:13:20Z, a multiple of the window size: a replay of old records, as in a catch-up.
FIRST_TIMESTAMP_MS = 1_700_000_000_000
SEED = 20_221_128
Row = tuple[bytes, int]  # word, timestamp
_LETTERS = "etaoinshrdlucmfwypvbgkjqxz"


def vocabulary() -> list[bytes]:
    """Return the distinct words, the most frequent first."""
    chosen = random.Random(SEED)
    words: dict[bytes, None] = {}
    while len(words) < VOCABULARY_SIZE:
        length = chosen.randint(2, 10)
        words["".join(chosen.choices(_LETTERS, k=length)).encode()] = None
    return list(words)


def sample(records: int) -> Iterator[list[bytes]]:
    """Yield `records` words in lists, drawn by Zipf's law, the same in every run."""
    drawn = random.Random(SEED + 1)
    words = vocabulary()
    ranks = range(1, VOCABULARY_SIZE + 1)
    weights = list(accumulate(1.0 / rank**ZIPF_EXPONENT for rank in ranks))
    left = records
    while left:
        size = min(left, 10_000)
        yield drawn.choices(words, cum_weights=weights, k=size)
        left -= size


def stamped(records: int, per_ms: int) -> Iterator[Row]:
    """Yield the sample's words, `per_ms` of them to each millisecond."""
    number = 0
    for words in sample(records):
        for word in words:
            yield word, FIRST_TIMESTAMP_MS + number // per_ms
            number += 1


def feed(bootstrap: str, topic: str, partitions: int, rows: Iterable[Row]) -> None:
    """Write words without keys, in turn to each partition.

    Raises KafkaException when not every one was delivered.
    """
    refused: list[str] = []

    def delivered(error: object, _message: object) -> None:
        refused.append(str(error))

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "linger.ms": 50,
            "log_level": 2,  # a broker that has just started is not ready for a moment
            "queue.buffering.max.messages": 500_000,
            "delivery.report.only.error": True,
            "on_delivery": delivered,
        }
    )
    for number, (word, stamp_ms) in enumerate(rows):
        producer.produce(topic, value=word, partition=number % partitions, timestamp=stamp_ms)
        if number % 10_000 == 0:
            while len(producer) > 250_000:
                producer.poll(0.05)
    if producer.flush(120) or refused:
        raise KafkaException(f"{len(producer) + len(refused)} words not delivered")
