"""Lines for the word count, without a pause whatever happens to the broker."""

import math
import random
import threading
import time
from collections.abc import Iterator
from typing import Final

from confluent_kafka import KafkaError, Producer

from devstack.chaos.recount import Line

WORDS_A_LINE: Final = 8
VOCABULARY: Final = 400
EVENT_TIME_FACTOR: Final = 4  # windows of 10 s close four times as often as they would
_SYLLABLES: Final = ("ka", "lo", "mi", "ne", "ru", "sa", "te", "vo", "xi", "zu", "d'a", "é")
_LATE_EVERY: Final = 40  # one line of so many is out of order, some so much that they are late
_LATE_MS: Final = 20_000
_HEADROOM: Final = 1.01  # so that the rate asked for is reached in spite of the clock's grain
_TICK_S: Final = 0.02
_FLUSH_S: Final = 60.0


def make_lines(seed: int, partitions: int, first_ms: int, step_ms: float) -> Iterator[Line]:
    """Return lines without end, the same for a seed; event time goes on by a step a line."""
    chance = random.Random(seed)  # noqa: S311 - words, not secrets
    words = [_word(number) for number in range(VOCABULARY)]
    # As in any language: the second word half as often as the first, the third a third.
    weights = [1 / (rank + 1) for rank in range(VOCABULARY)]
    number = 0
    while True:
        stamp_ms = first_ms + int(number * step_ms)
        if chance.randrange(_LATE_EVERY) == 0:
            stamp_ms -= chance.randrange(_LATE_MS)
        chosen = chance.choices(words, weights, k=WORDS_A_LINE)
        chosen[0] = chosen[0].capitalize()
        chosen[chance.randrange(WORDS_A_LINE)] += chance.choice((",", ".", "!", ""))
        yield Line(chance.randrange(partitions), stamp_ms, " ".join(chosen))
        number += 1


def _word(number: int) -> str:
    base = len(_SYLLABLES)
    one, two, three = number % base, number // base % base, number // base // base
    return f"k{_SYLLABLES[three]}{_SYLLABLES[two]}{_SYLLABLES[one]}n"


class Feeder:
    """Writes lines from a thread of its own, at a rate of words a second or somewhat above.

    The producer is idempotent and waits for a broker that is away, so each line is there once.
    """

    def __init__(self, bootstrap: str, topic: str, lines: Iterator[Line], rate: int) -> None:
        self.lines = 0
        self.seconds = 0.0
        self.errors: list[str] = []
        self._topic = topic
        self._source = lines
        self._lines_a_second = rate * _HEADROOM / WORDS_A_LINE
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="feed", daemon=True)
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 20,
                "message.timeout.ms": 600_000,
                "queue.buffering.max.messages": 1_000_000,
                "log_level": 0,
            }
        )

    @property
    def words(self) -> int:
        """How many words were handed over so far."""
        return self.lines * WORDS_A_LINE

    @property
    def words_a_second(self) -> float:
        """The rate over the whole time."""
        return self.words / self.seconds if self.seconds else 0.0

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def stop(self) -> None:
        """Write no more, and return when all is acknowledged; `errors` says what is not."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()
        left = self._producer.flush(_FLUSH_S)
        if left:
            self.errors.append(f"{left} lines were not acknowledged within {_FLUSH_S:.0f} s")

    def abandon(self) -> None:
        """Write no more, and wait for nothing."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()
        self._producer.purge()

    def _run(self) -> None:
        try:
            self._write()
        except Exception as problem:  # whoever watches `errors` tells it
            self.errors.append(repr(problem))

    def _write(self) -> None:
        began_s = time.monotonic()
        while not self._stopped.wait(_TICK_S):
            elapsed_s = time.monotonic() - began_s
            for _ in range(math.ceil(elapsed_s * self._lines_a_second) - self.lines):
                self._send(next(self._source))
            self.seconds = elapsed_s
            self._producer.poll(0)

    def _send(self, line: Line) -> None:
        while True:
            try:
                self._producer.produce(
                    self._topic,
                    value=line.text.encode(),
                    partition=line.partition,
                    timestamp=line.stamp_ms,
                    on_delivery=self._delivered,
                )
            except BufferError:
                self._producer.poll(0.1)
            else:
                self.lines += 1
                return

    def _delivered(self, error: KafkaError | None, _message: object) -> None:
        if error is not None:
            self.errors.append(error.str())
