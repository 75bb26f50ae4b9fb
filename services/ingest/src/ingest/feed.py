"""Writes lines into a topic: round-robin over its partitions, at a rate, acknowledged."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from threading import Event
from typing import Protocol

from ingest.errors import FeedError
from streamcore.model import Send

ROWS_MAX = 1_000
_TICK_S = 0.05  # at a rate, one batch a tick: smooth enough, and cheap
_FLUSH_MS = 100
_LAST_FLUSH_MS = 30_000


class Producer(Protocol):
    """What a feed needs of ``streamcore.app.open_producer``; topics by their bare names."""

    def partitions(self, topic: str) -> int: ...

    def send(self, send: Send) -> Send | None: ...

    def flush(self, timeout_ms: int) -> bool: ...


@dataclass(slots=True)
class Pacer:
    """When the next batch is due, so that ``rate`` lines go out each second (None: at once)."""

    rate: float | None
    _due_ms: float | None = None

    @property
    def rows(self) -> int:
        """How many lines a batch may hold."""
        return ROWS_MAX if self.rate is None else max(1, min(ROWS_MAX, int(self.rate * _TICK_S)))

    def wait_s(self, rows: int, now_ms: int) -> float:
        """Return how long to wait after a batch of so many rows.

        What a slow broker made us miss is caught up for a second at most; and a wait is never
        longer than one for these rows, whatever the wall clock does.
        """
        if self.rate is None:
            return 0.0
        step_ms = rows * 1000 / self.rate
        due_ms = now_ms if self._due_ms is None else max(self._due_ms, now_ms - 1000)
        self._due_ms = min(due_ms, now_ms + step_ms) + step_ms
        return max(0.0, min(self._due_ms - now_ms, step_ms)) / 1000


@dataclass(slots=True)
class Feed:
    """Sends batches of lines until they end, or until ``stopped`` is set."""

    producer: Producer
    topic: str
    pacer: Pacer
    now_ms: Callable[[], int]
    stopped: Event
    told: Callable[[int], None] = lambda _sent: None
    sent: int = 0
    _partitions: int = field(init=False)

    def __post_init__(self) -> None:
        self._partitions = self.producer.partitions(self.topic)

    def run(self, source: Iterable[Sequence[str]]) -> int:
        """Send everything and return how many lines were sent, all of them acknowledged.

        :raises FeedError: if the source is faulty (what came before is sent and acknowledged), or
            if the broker does not acknowledge.
        :raises ProductionError: if the broker refused a record.
        """
        try:
            for lines in source:
                self._send_all(lines)
                if self.stopped.is_set():
                    break
        except FeedError:
            self._acknowledged()
            raise
        self._acknowledged()
        return self.sent

    def _send_all(self, lines: Sequence[str]) -> None:
        rest = iter(lines)
        while not self.stopped.is_set() and (batch := list(islice(rest, self.pacer.rows))):
            self._send(batch)
            wait_s = self.pacer.wait_s(len(batch), self.now_ms())
            if wait_s > 0:
                self.stopped.wait(wait_s)
        self.producer.flush(0)  # serves what the broker has answered, also while the source rests
        self.told(self.sent)

    def _send(self, batch: list[str]) -> None:
        rows, first = len(batch), self.sent
        left = Send(
            topic=self.topic,
            keys=[None] * rows,
            values=[line.encode() for line in batch],
            stamps_ms=[self.now_ms()] * rows,
            partition=[(first + row) % self._partitions for row in range(rows)],
        )
        while (rest := self.producer.send(left)) is not None:
            left = rest
            self.producer.flush(_FLUSH_MS)  # acknowledgements make room
        self.sent += rows

    def _acknowledged(self) -> None:
        if not self.producer.flush(_LAST_FLUSH_MS):
            raise FeedError(
                f"of {self.sent} lines the broker has not acknowledged all within "
                f"{_LAST_FLUSH_MS // 1000} s; the last ones may be missing"
            )
