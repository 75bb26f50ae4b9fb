"""The feed: partitions, timestamps, the rate, room in the producer, faults, the end."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from threading import Event

import pytest

from ingest.errors import FeedError
from ingest.feed import ROWS_MAX, Feed, Pacer
from streamcore.model import Send


@dataclass
class Topic:
    """A producer and its topic in memory: takes ``room`` rows between two flushes."""

    count: int = 4
    room: int = 1_000_000
    acknowledges: bool = True
    records: list[tuple[int, str, int]] = field(default_factory=list)
    waiting: int = 0

    def partitions(self, topic: str) -> int:
        return self.count

    def send(self, send: Send) -> Send | None:
        assert not isinstance(send.partition, int)
        assert send.partition is not None
        assert set(send.keys) == {None}
        take = min(self.room - self.waiting, len(send.values))
        for value, stamp, partition in zip(
            send.values[:take], send.stamps_ms, send.partition, strict=False
        ):
            assert value is not None
            self.records.append((partition, value.decode(), stamp))
        self.waiting += take
        if take == len(send.values):
            return None
        return Send(
            send.topic,
            send.keys[take:],
            send.values[take:],
            send.stamps_ms[take:],
            partition=send.partition[take:],
        )

    def flush(self, timeout_ms: int) -> bool:
        self.waiting = 0
        return self.acknowledges


def feed_into(
    topic: Topic, source: Iterator[Sequence[str]] | list[list[str]], stopped: Event | None = None
) -> int:
    clock = iter(range(1_000, 1_000_000))
    return Feed(topic, "textlines", Pacer(None), lambda: next(clock), stopped or Event()).run(
        source
    )


def test_lines_go_round_the_partitions_in_order() -> None:
    topic = Topic(count=3)
    assert feed_into(topic, [["a", "b"], [], ["c", "d"]]) == 4
    assert [(at, line) for at, line, _ in topic.records] == [(0, "a"), (1, "b"), (2, "c"), (0, "d")]


def test_a_line_has_the_time_of_its_sending() -> None:
    topic = Topic()
    feed_into(topic, [["a"], ["b"]])
    stamps = [stamp for _, _, stamp in topic.records]
    assert stamps[0] >= 1_000
    assert all(earlier < later for earlier, later in pairwise(stamps))


def test_no_line_is_lost_or_moved_where_the_producer_is_full() -> None:
    topic = Topic(room=7)
    lines = [str(number) for number in range(2 * ROWS_MAX + 1)]
    assert feed_into(topic, [lines]) == len(lines)
    assert [line for _, line, _ in topic.records] == lines
    assert [at for at, _, _ in topic.records] == [number % 4 for number in range(len(lines))]


def test_a_stop_ends_the_feed_behind_the_batch_in_hand() -> None:
    topic, stopped = Topic(), Event()

    def source() -> Iterator[list[str]]:
        yield ["a", "b"]
        stopped.set()
        yield ["c"]
        raise AssertionError("nobody reads on after a stop")

    assert feed_into(topic, source(), stopped) == 2


def test_what_came_before_a_fault_of_the_text_is_acknowledged() -> None:
    topic = Topic()

    def source() -> Iterator[list[str]]:
        yield ["good"]
        raise FeedError("book.txt, line 2: not utf-8")

    with pytest.raises(FeedError, match="line 2"):
        feed_into(topic, source())
    assert [line for _, line, _ in topic.records] == ["good"]
    assert topic.waiting == 0


def test_lines_that_are_never_acknowledged_are_an_error() -> None:
    with pytest.raises(FeedError, match="of 1 lines the broker has not acknowledged all"):
        feed_into(Topic(acknowledges=False), [["a"]])


@pytest.mark.parametrize("rate", [0.5, 3, 100, 2_000, 50_000])
def test_the_pacer_keeps_the_rate(rate: float) -> None:
    pacer, now_ms, rows = Pacer(rate), 1_000_000.0, 0
    while now_ms < 1_000_000 + 20_000:
        rows += pacer.rows
        now_ms += pacer.wait_s(pacer.rows, int(now_ms)) * 1000
    assert rows == pytest.approx(rate * 20, rel=0.1, abs=pacer.rows + 1)


def test_without_a_rate_nothing_waits() -> None:
    assert Pacer(None).wait_s(ROWS_MAX, 5) == 0


def test_the_pacer_catches_up_a_second_and_no_more() -> None:
    pacer = Pacer(1_000)
    pacer.wait_s(50, 1_000_000)
    caught_up = 0
    while pacer.wait_s(50, 1_060_000) == 0:  # a minute without a broker
        caught_up += 50
    assert caught_up <= 1_000


@pytest.mark.parametrize("jump_ms", [-3_600_000, 3_600_000])
def test_a_jump_of_the_wall_clock_does_not_stall_the_feed(jump_ms: int) -> None:
    pacer = Pacer(100)
    pacer.wait_s(5, 10_000_000)
    waits = [pacer.wait_s(5, 10_000_000 + jump_ms + 50 * turn) for turn in range(5)]
    assert max(waits) <= 0.05
