"""Sinks: partitions, and when a repartition sink says how far time has come."""

from collections.abc import Sequence

import pytest

from streamcore import (
    INT64,
    STR,
    Consumed,
    Grouped,
    Materialized,
    Produced,
    StreamsBuilder,
    tumbling,
    windowed_serde,
)
from streamcore.model import NO_TIME_MS, Rows, Send
from streamcore.operators.marker import Marker, add_clock, marker_send, read_marker, take_clocks
from streamcore.operators.sink import Downstream, MarkerPlan, RepartitionSink, Target
from streamcore.operators.watermark import Mark
from streamcore.task import TaskConfig
from streamcore.testing.driver import TopologyTestDriver
from streamcore.topology.nodes import Sink
from streamcore.topology.partitioning import partition_of

WINDOWS = tumbling(size_ms=10, grace_ms=5)
NODE = Sink(name="sink", topic="t", key=STR, value=STR, internal=True)


class Speaking:
    """A repartition sink and what it has sent."""

    def __init__(self, *, in_cut: bool = True, interval_ms: int = 0, other: bool = False) -> None:
        self.outbox: list[Send] = []
        self.sink = RepartitionSink(
            NODE,
            Target("t", 2, 0),
            self.outbox,
            Downstream(() if other else ((WINDOWS, 1_000),), other),
            MarkerPlan(1, 3, interval_ms, in_cut, renew_ms=500),
        )
        self.sink.start(7)

    def said(self) -> list[tuple[int, bool] | str]:
        """Return marks and row keys since the last call, in order."""
        found: list[tuple[int, bool] | str] = []
        for send in self.outbox:
            if send.keys[0] is not None:
                found += [str(key, "utf8") for key in send.keys if key is not None]
                continue
            assert send.headers is not None
            markers = {read_marker(headers) for headers in send.headers}
            (marker,) = markers
            assert marker is not None
            assert (marker.task, marker.tasks) == (1, 3)
            assert send.partition == [0, 1]
            found.append((marker.mark.ms, marker.mark.idle))
        self.outbox.clear()
        return found

    def rows(self, *stamps_ms: int, clocks_ms: Sequence[int] | None = None) -> None:
        stamps = list(stamps_ms)
        clocks = stamps if clocks_ms is None else list(clocks_ms)
        keys = [str(at_ms) for at_ms in stamps_ms]
        self.sink.process(Rows(keys, keys, stamps, clocks))


def test_the_first_rows_after_a_start_follow_a_marker_with_the_committed_mark() -> None:
    speaking = Speaking()
    speaking.sink.restore_time(40)
    speaking.rows(41)
    assert speaking.outbox[0].stamps_ms == [7, 7], "a marker carries the wall clock"
    assert speaking.said() == [(40, False), "41"]


def test_once_after_a_start_a_task_speaks_even_without_rows() -> None:
    speaking = Speaking()
    speaking.sink.advance(Mark(NO_TIME_MS, False), 8)
    assert speaking.said() == [(NO_TIME_MS, False)]
    speaking.sink.advance(Mark(NO_TIME_MS, False), 9)
    assert speaking.said() == []


def test_a_mark_is_told_when_a_window_can_close_or_be_forgotten() -> None:
    speaking = Speaking()
    told = []
    for ms in (5_000, 5_004, 5_005, 5_006, 5_009, 5_010, 5_014, 5_015):
        speaking.sink.advance(Mark(ms, False), 8)
        told += speaking.said()
    # Windows close at ..5 (10 ms and 5 ms of grace) and are forgotten at ..0 (1,000 ms).
    assert told == [(5_000, False), (5_005, False), (5_010, False), (5_015, False)]


def test_for_a_processor_each_step_counts() -> None:
    speaking = Speaking(other=True)
    for ms in (0, 1, 1, 2):
        speaking.sink.advance(Mark(ms, False), 8)
    assert speaking.said() == [(0, False), (1, False), (2, False)]


def test_at_most_one_round_an_interval() -> None:
    speaking = Speaking(interval_ms=100)
    for now_ms, ms in ((0, 0), (50, 15), (99, 25), (100, 35), (150, 45), (200, 45)):
        speaking.sink.advance(Mark(ms, False), now_ms)
    assert speaking.said() == [(0, False), (35, False), (45, False)]


def test_a_mark_does_not_go_back() -> None:
    speaking = Speaking()
    speaking.sink.advance(Mark(100, True), 8)
    speaking.sink.advance(Mark(20, False), 9)
    assert speaking.said() == [(100, True), (100, False)]


def test_the_first_rows_of_an_idle_task_follow_a_marker_that_says_awake() -> None:
    speaking = Speaking()
    speaking.sink.advance(Mark(20, True), 8)
    speaking.sink.committed()
    speaking.rows(3)
    speaking.rows(4)
    assert speaking.said() == [(20, True), (20, False), "3", "4"]


def test_an_idle_mark_is_renewed_while_nothing_changes() -> None:
    speaking = Speaking(interval_ms=100)
    for now_ms in range(0, 1_600, 100):
        speaking.sink.advance(Mark(20, True), now_ms)
    assert speaking.said() == [(20, True)] * 4


def test_an_awake_mark_is_not_renewed() -> None:
    speaking = Speaking()
    for now_ms in range(0, 5_000, 100):
        speaking.sink.advance(Mark(20, False), now_ms)
    assert speaking.said() == [(20, False)]


def test_under_at_least_once_a_marker_waits_until_its_rows_are_acknowledged() -> None:
    speaking = Speaking(in_cut=False)
    speaking.rows(1)
    assert speaking.said() == [(NO_TIME_MS, False), "1"]
    speaking.sink.advance(Mark(30, False), 8)
    assert (speaking.said(), speaking.sink.owes_marker) == ([], True)
    speaking.sink.committed()
    assert (speaking.said(), speaking.sink.owes_marker) == ([(30, False)], False)
    speaking.sink.committed()
    assert speaking.said() == []


def test_a_commit_that_failed_and_came_later_tells_the_newest_mark() -> None:
    """Idle when it was cut, awake when it was durable: saying idle now would close too much."""
    speaking = Speaking(in_cut=False, interval_ms=100)
    speaking.sink.advance(Mark(30, True), 1_000)
    speaking.rows(31)
    speaking.sink.advance(Mark(31, False), 1_001)
    speaking.sink.committed()
    assert speaking.said() == [(NO_TIME_MS, False), "31", (31, False)]


def test_nobody_who_looks_at_time_no_markers_in_a_cut() -> None:
    speaking = Speaking()
    speaking.sink._downstream = Downstream((), False)
    for ms in (0, 100):
        speaking.sink.advance(Mark(ms, False), 8)
    assert speaking.said() == []


def test_clocks_travel_with_rows_that_they_could_decide() -> None:
    speaking = Speaking()
    speaking.rows(30, 16, 14, clocks_ms=[30, 30, 30])
    (send,) = [send for send in speaking.outbox if send.keys[0] is not None]
    assert send.headers is not None
    clocks_ms, rest = take_clocks(list(send.headers), list(send.stamps_ms))
    # [10, 20) closes at 25, [30, 40) at 45: both rows of the first carry their clock.
    assert clocks_ms == [30, 30, 30]
    assert [bool(headers) for headers in send.headers] == [False, True, True]
    assert rest is None


def test_a_clock_goes_and_comes_between_other_headers() -> None:
    own = (("a", b"1"), ("a", None))
    with_clock = add_clock(own, 99)
    assert take_clocks([with_clock, ()], [5, 6]) == ([99, 6], [own, ()])
    assert take_clocks([(("sc-clock", b"short"),)], [5]) == ([5], [(("sc-clock", b"short"),)])


def test_a_marker_reads_back_and_nothing_else_does() -> None:
    marker = Marker(2, 5, Mark(NO_TIME_MS, True))
    send = marker_send("t", 3, marker, 77)
    assert send.headers is not None
    assert [read_marker(headers) for headers in send.headers] == [marker] * 3
    assert send.stamps_ms == [77] * 3
    assert (list(send.keys), list(send.values)) == ([None] * 3, [None] * 3)
    for other in ((), None, (("sc-mark", None),), (("sc-mark", b"x"),), (("x", b"y" * 17),)):
        assert read_marker(other) is None


# --- partitions -------------------------------------------------------------------------------

P10 = {"cat": 5, "to": 0, "a": 4, "b": 2, "word-7": 3, "naïve": 3, "\U0001f4a5": 2}


def test_words_go_where_javas_client_sends_them_also_inside_windows() -> None:
    """P10: source, repartition, changelog and output, of six partitions each."""
    builder = StreamsBuilder()
    (
        builder.stream("words", Consumed(key=STR, value=STR))
        .group_by(lambda _key, word: word, Grouped(key=STR, value=STR))
        .windowed_by(tumbling(size_ms=10))
        .count(Materialized("counts"))
        .to_stream()
        .to("out", Produced(key=windowed_serde(STR, size_ms=10), value=INT64))
    )
    with TopologyTestDriver(builder.build(), partitions=6) as driver:
        for word in P10:
            driver.input("words").pipe(word, word, at_ms=1)
        driver.commit()
        for topic, tail in (
            ("words", 0),
            ("app-counts-repartition", 0),
            ("app-counts-changelog", 12),
            ("out", 8),
        ):
            where = {
                entry.key[: len(entry.key) - tail].decode(): partition
                for partition, entries in driver.log(topic).items()
                for entry in entries
                if entry.key is not None
            }
            assert where == P10, topic


def test_an_empty_key_has_a_partition_like_any_other() -> None:
    builder = StreamsBuilder()
    builder.stream("in", Consumed(key=STR, value=STR)).to("out")
    with TopologyTestDriver(builder.build(), partitions=6) as driver:
        driver.input("in").pipe("", "x", at_ms=1)
        partition = partition_of(b"", 6)
        assert partition != 0
        assert [p for p, log in driver.log("in").items() if log] == [partition]
        assert [r.partition for r in driver.output("out").read()] == [partition]


@pytest.mark.parametrize("partition", [0, 1, 2])
def test_same_partition_keeps_the_number(partition: int) -> None:
    builder = StreamsBuilder()
    to = Produced(key=STR, value=STR, same_partition=True)
    builder.stream("in", Consumed(key=STR, value=STR)).to("out", to)
    with TopologyTestDriver(builder.build(), partitions=3) as driver:
        driver.input("in").pipe(None, "x", at_ms=1, partition=partition)
        driver.input("in").pipe("k", "y", at_ms=1, partition=partition)
        assert [r.partition for r in driver.output("out").read()] == [partition] * 2


def test_a_partitioner_of_the_users_chooses() -> None:
    def by_length(topic: str, key: str, value: str, partitions: int) -> int:
        assert (topic, partitions) == ("out", 4)
        return len(key + value) % partitions

    builder = StreamsBuilder()
    stream = builder.stream("in", Consumed(key=STR, value=STR))
    stream.to("out", Produced(key=STR, value=STR, partitioner=by_length))
    with TopologyTestDriver(builder.build(), partitions={"in": 1, "out": 4}) as driver:
        driver.input("in").pipe("ab", "c", at_ms=1)
        driver.input("in").pipe("ab", "cde", at_ms=1)
        assert [r.partition for r in driver.output("out").read()] == [1, 3]


@pytest.mark.parametrize("chosen", [-1, 4, 1.0, None, True])
def test_what_is_no_partition_is_a_fault_of_that_record(chosen: object) -> None:
    def partitioner(_topic: str, _key: str, value: str, _partitions: int) -> int:
        return chosen if value == "bad" else 2  # type: ignore[return-value]

    builder = StreamsBuilder()
    stream = builder.stream("in", Consumed(key=STR, value=STR))
    stream.to("out", Produced(key=STR, value=STR, partitioner=partitioner))
    config = TaskConfig(processing_error="continue")
    with TopologyTestDriver(
        builder.build(), config=config, partitions={"in": 1, "out": 4}
    ) as driver:
        for value in ("a", "bad", "b"):
            driver.input("in").pipe("k", value, at_ms=1)
        assert [(r.value, r.partition) for r in driver.output("out").read()] == [("a", 2), ("b", 2)]
        assert driver.dropped() == {"processing": 1}
