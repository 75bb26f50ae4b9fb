"""Users' processors: context, forward, stores, timers, and the event time of their output."""

from collections.abc import Callable
from typing import Any

import pytest

from streamcore import (
    INT64,
    STR,
    Consumed,
    Grouped,
    KStream,
    Materialized,
    Processor,
    Produced,
    StreamsBuilder,
    Topology,
    key_value_store,
    tumbling,
    window_store,
    windowed_serde,
)
from streamcore.errors import ProcessingError, UserCodeError
from streamcore.model import NO_TIME_MS
from streamcore.task import TaskConfig
from streamcore.testing.driver import TopologyTestDriver
from streamcore.testing.topics import Record

TEXT = Consumed(key=STR, value=STR)
TO_TEXT = Produced(key=STR, value=STR)


class Function(Processor):
    """Calls a function with itself for each record, and another one once for the set-up."""

    def __init__(
        self, each: Callable[..., None], set_up: Callable[["Function"], None] | None
    ) -> None:
        self.each = each
        self.set_up = set_up
        self.seen: list[Any] = []

    def init(self, context: Any) -> None:
        super().init(context)
        if self.set_up is not None:
            self.set_up(self)

    def process(self, key: Any, value: Any) -> None:
        self.each(self, key, value)


def nothing(_self: Function, _key: Any, _value: Any) -> None:
    return None


def echo(self: Function, key: Any, value: Any) -> None:
    self.context.forward(key, value)


def processed(
    each: Callable[..., None],
    set_up: Callable[[Function], None] | None = None,
    then: Callable[[KStream], None] = lambda stream: stream.to("out", TO_TEXT),
    **how: Any,
) -> Topology:
    builder = StreamsBuilder()
    then(builder.stream("in", TEXT).process(lambda: Function(each, set_up), **how))
    return builder.build()


def out(driver: TopologyTestDriver) -> list[Record]:
    return driver.output("out").read()


# --- context ----------------------------------------------------------------------------------


def test_the_context_knows_the_record() -> None:
    def tell(self: Function, key: Any, value: Any) -> None:
        c = self.context
        facts = f"{c.task_id} {c.topic} {c.partition} {c.offset} {c.stamp_ms} {c.headers}"
        c.forward(key, facts)

    with TopologyTestDriver(processed(tell), partitions=2) as driver:
        driver.auto_run = False
        pipe = driver.input("in").pipe
        pipe("a", "x", at_ms=5, partition=1)
        pipe("b", "x", at_ms=3, partition=1, headers=(("h", b"1"),))
        driver.run()
        assert sorted(record.value for record in out(driver)) == [
            "0_1 in 1 0 5 ()",
            "0_1 in 1 1 3 (('h', b'1'),)",
        ]


def test_forward_keeps_time_and_headers_unless_told_otherwise() -> None:
    def twice(self: Function, key: Any, value: Any) -> None:
        self.context.forward(key, value)
        self.context.forward(key, value, stamp_ms=77, headers=(("own", None),))

    with TopologyTestDriver(processed(twice)) as driver:
        driver.input("in").pipe("k", "v", at_ms=5, headers=(("h", b"1"),))
        assert [(r.stamp_ms, r.headers) for r in out(driver)] == [
            (5, (("h", b"1"),)),
            (77, (("own", None),)),
        ]


def test_forward_to_one_child() -> None:
    def by_value(self: Function, key: Any, value: Any) -> None:
        self.context.forward(key, value, child=value)

    def two_children(stream: KStream) -> None:
        stream.map_values(str.upper, name="left").to("lefts", TO_TEXT)
        stream.map_values(str.lower, name="right").to("rights", TO_TEXT)

    with TopologyTestDriver(processed(by_value, then=two_children)) as driver:
        for value in ("left", "right", "left"):
            driver.input("in").pipe("k", value, at_ms=1)
        assert len(driver.output("lefts").read()) == 2
        assert [r.value for r in driver.output("rights").read()] == ["right"]
        with pytest.raises(ProcessingError, match="has no child 'middle'"):
            driver.input("in").pipe("k", "middle", at_ms=1)


def test_a_processor_forwards_none_one_or_many() -> None:
    def as_often(self: Function, key: Any, value: Any) -> None:
        for number in range(int(value)):
            self.context.forward(key, str(number))

    with TopologyTestDriver(processed(as_often)) as driver:
        driver.auto_run = False
        for value in ("0", "2", "1"):
            driver.input("in").pipe("k", value, at_ms=1)
        driver.run()
        assert [r.value for r in out(driver)] == ["0", "1", "0"]


# --- stores -----------------------------------------------------------------------------------


def number(self: Function, key: Any, _value: Any) -> None:
    store = self.context.store("numbers")
    store.put(key, (store.get(key) or 0) + 1)
    self.context.forward(key, ",".join(f"{k}={n}" for k, n in store.items()))


NUMBERS = key_value_store("numbers", key=STR, value=INT64)


@pytest.mark.parametrize("wipe", [False, True])
def test_a_processors_store_survives_with_its_changelog(wipe: bool) -> None:
    with TopologyTestDriver(processed(number, stores=[NUMBERS])) as driver:
        for key in ("a", "b", "a"):
            driver.input("in").pipe(key, "x", at_ms=7)
        assert [r.value for r in out(driver)] == ["a=1", "a=1,b=1", "a=2,b=1"]
        driver.commit()
        driver.crash(wipe=wipe)
        driver.restart()
        assert driver.stored("numbers") == {"a": 2, "b": 1}
        driver.input("in").pipe("a", "x", at_ms=8)
        assert [r.value for r in out(driver)] == ["a=3,b=1"]
        stamps = [entry.stamp_ms for entry in driver.log("app-numbers-changelog")[0]]
        assert stamps == [7, 7]


def test_a_processors_window_store_forgets_by_the_watermark() -> None:
    spec = window_store("seen", key=STR, value=INT64, retention_ms=20)

    def note(self: Function, key: Any, value: Any) -> None:
        store, start_ms = self.context.store("seen"), self.context.stamp_ms
        store.put(key, start_ms, 1)
        self.context.forward(key, str([at for at, _ in store.fetch(key, 0, 1_000)]))

    with TopologyTestDriver(processed(note, stores=[spec])) as driver:
        for at_ms in (0, 25, 26):
            driver.input("in").pipe("a", "x", at_ms=at_ms)
            driver.commit_once()
        # What the commit at 25 has closed may be needed again until that commit is durable.
        assert [r.value for r in out(driver)] == ["[0]", "[0, 25]", "[0, 25, 26]"]
    with TopologyTestDriver(processed(note, stores=[spec]), commit="each") as driver:
        for at_ms in (0, 10, 19, 25, 40):
            driver.input("in").pipe("a", "x", at_ms=at_ms)
        # 0 goes when the commit at 25 is durable, 10 and 19 when that at 40 is.
        assert [r.value for r in out(driver)][-1] == "[10, 19, 25, 40]"
        driver.input("in").pipe("a", "x", at_ms=41)
        driver.input("in").pipe("a", "x", at_ms=42)
        assert [r.value for r in out(driver)][-1] == "[25, 40, 41, 42]"


def test_a_store_that_is_not_connected_is_refused_by_name() -> None:
    with (
        TopologyTestDriver(processed(number, then=lambda s: s.to("out", TO_TEXT))) as driver,
        pytest.raises(ProcessingError, match="store 'numbers' is not connected"),
    ):
        driver.input("in").pipe("a", "x", at_ms=1)


def test_two_processors_may_share_a_store() -> None:
    builder = StreamsBuilder()
    builder.add_store(NUMBERS)

    def put(self: Function, key: Any, value: Any) -> None:
        self.context.store("numbers").put(key, int(value))
        self.context.forward(key, value)

    def get(self: Function, key: Any, _value: Any) -> None:
        self.context.forward(key, str(self.context.store("numbers").get(key)))

    (
        builder.stream("in", TEXT)
        .process(lambda: Function(put, None), stores=["numbers"])
        .process(lambda: Function(get, None), stores=["numbers"])
        .to("out", TO_TEXT)
    )
    with TopologyTestDriver(builder.build()) as driver:
        driver.auto_run = False
        for value in ("1", "2", "3"):
            driver.input("in").pipe("k", value, at_ms=1)
        driver.run()
        assert [r.value for r in out(driver)] == ["1", "2", "3"]


def test_processors_are_closed_and_made_anew_with_their_task() -> None:
    made: list[Function] = []
    closed: list[Function] = []

    class Noted(Function):
        def close(self) -> None:
            closed.append(self)

    def supplier() -> Function:
        made.append(Noted(echo, None))
        return made[-1]

    builder = StreamsBuilder()
    builder.stream("in", TEXT).process(supplier).to("out", TO_TEXT)
    with TopologyTestDriver(builder.build(), partitions=2) as driver:
        assert (len(made), closed) == (2, [])
        driver.crash()
        driver.restart()
        assert (len(made), closed) == (4, made[:2])
    assert closed == made


# --- timers -----------------------------------------------------------------------------------


def every(interval_ms: int, clock: Any) -> Callable[[Function], None]:
    def set_up(self: Function) -> None:
        def tell(time_ms: int) -> None:
            c = self.context
            facts = f"{time_ms} {c.partition} {c.offset} {c.topic!r} {c.headers}"
            c.forward("timer", facts)

        self.context.schedule(interval_ms, clock, tell)

    return set_up


def test_a_stream_time_timer_is_aligned_to_zero_and_fires_once_after_a_gap() -> None:
    with TopologyTestDriver(processed(nothing, every(10, "stream")), commit="each") as driver:
        for at_ms in (3, 9, 10, 14, 47, 49, 50, 51):
            driver.input("in").pipe("a", "x", at_ms=at_ms)
        fired = [r.value.split()[0] for r in out(driver)]
        assert fired == ["3", "10", "47", "50"]


def test_a_stream_time_timer_waits_for_all_partitions() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", TEXT).group_by(lambda _k, v: v, Grouped(key=STR))
    table = stream.windowed_by(tumbling(size_ms=10)).count(Materialized("counts"))
    (
        table.to_stream()
        .map(lambda key, count: (key.key, str(count)))
        .process(lambda: Function(nothing, every(10, "stream")))
        .to("out", TO_TEXT)
    )
    with TopologyTestDriver(builder.build(), partitions=2) as driver:
        driver.input("in").pipe("a", "a", at_ms=100, partition=0)
        driver.commit()
        assert out(driver) == []
        driver.input("in").pipe("a", "a", at_ms=45, partition=1)
        driver.commit()
        # Behind windows of 10 ms time stands at the oldest open one.
        assert {r.value.split()[0] for r in out(driver)} == {"40"}


def test_a_stream_time_timer_runs_in_kafka_streams_time_too() -> None:
    """There stream time is the highest that the task has seen, behind a repartition topic too."""
    builder = StreamsBuilder()
    stream = builder.stream("in", TEXT).select_key(lambda _k, v: v)
    table = stream.to_table(Materialized("newest", key=STR, value=STR))
    table.to_stream().process(lambda: Function(nothing, every(10, "stream"))).to("out", TO_TEXT)
    config = TaskConfig(event_time="operator")
    with TopologyTestDriver(builder.build(), config=config, commit="each") as driver:
        for at_ms in (5, 25, 7):
            driver.input("in").pipe("a", "a", at_ms=at_ms)
        assert [r.value.split()[0] for r in out(driver)] == ["5", "25"]


def test_kafka_streams_time_is_that_of_the_input_that_is_furthest() -> None:
    builder = StreamsBuilder()
    stream = builder.stream(["in", "silent"], TEXT)
    stream.process(lambda: Function(nothing, every(10, "stream"))).to("out", TO_TEXT)
    for event_time, fired in (("operator", ["5", "25"]), ("source", [])):
        config = TaskConfig(event_time=event_time)
        with TopologyTestDriver(builder.build(), config=config, commit="each") as driver:
            for at_ms in (5, 25):
                driver.input("in").pipe("a", "a", at_ms=at_ms)
            assert [r.value.split()[0] for r in out(driver)] == fired


def test_a_wall_clock_timer_fires_without_records_and_once_after_a_gap() -> None:
    with TopologyTestDriver(processed(nothing, every(100, "wall"))) as driver:
        start_ms = driver.now_ms
        for step_ms in (99, 1, 50, 350):
            driver.advance_time(step_ms)
        fired = [int(r.value.split()[0]) - start_ms for r in out(driver)]
        assert fired == [100, 500]
        driver.advance_time(99)
        assert out(driver) == []


def test_a_timer_speaks_for_no_record() -> None:
    with TopologyTestDriver(processed(echo, every(10, "stream")), commit="each") as driver:
        driver.input("in").pipe("a", "x", at_ms=12, headers=(("h", b"1"),))
        record, from_timer = out(driver)
        assert (record.value, record.headers) == ("x", (("h", b"1"),))
        assert from_timer.value == "12 -1 -1 '' ()"
        assert (from_timer.stamp_ms, from_timer.headers) == (12, ())


def test_a_cancelled_timer_is_silent_even_if_cancelled_by_itself() -> None:
    def set_up(self: Function) -> None:
        def once(time_ms: int) -> None:
            self.context.forward("timer", str(time_ms))
            schedule.cancel()
            schedule.cancel()

        schedule = self.context.schedule(10, "stream", once)

    with TopologyTestDriver(processed(nothing, set_up), commit="each") as driver:
        for at_ms in (10, 20, 30):
            driver.input("in").pipe("a", "x", at_ms=at_ms)
        assert [r.value for r in out(driver)] == ["10"]


def test_a_timer_may_set_another_one() -> None:
    def set_up(self: Function) -> None:
        def outer(_time_ms: int) -> None:
            self.context.schedule(10, "stream", lambda ms: self.context.forward("inner", str(ms)))

        self.context.schedule(1_000, "stream", outer)

    with TopologyTestDriver(processed(nothing, set_up), commit="each") as driver:
        for at_ms in (5, 9, 10, 11, 20):
            driver.input("in").pipe("a", "x", at_ms=at_ms)
        assert [r.value for r in out(driver)] == ["10", "20"]


@pytest.mark.parametrize("interval_ms", [0, -1])
def test_a_schedule_needs_an_interval(interval_ms: int) -> None:
    with pytest.raises(UserCodeError, match="processor's init: ValueError: interval_ms"):
        TopologyTestDriver(processed(nothing, every(interval_ms, "wall")))


@pytest.mark.parametrize("clock", ["stream", "wall"])
def test_a_timer_that_fails_stops_the_task_and_blames_no_record(clock: Any) -> None:
    def set_up(self: Function) -> None:
        def fail(_time_ms: int) -> None:
            raise RuntimeError("no more")

        self.context.schedule(10, clock, fail)

    with TopologyTestDriver(processed(nothing, set_up)) as driver:
        driver.input("in").pipe("a", "x", at_ms=12)
        fires = driver.commit if clock == "stream" else lambda: driver.advance_time(10)
        with pytest.raises(UserCodeError, match=r"task 0_0: .* RuntimeError: no more"):
            fires()


def test_the_watermark_of_the_context_survives_a_restart() -> None:
    def tell(self: Function, key: Any, _value: Any) -> None:
        self.context.forward(key, str(self.context.watermark_ms))

    with TopologyTestDriver(processed(tell), commit="each") as driver:
        driver.input("in").pipe("a", "x", at_ms=12)
        driver.input("in").pipe("a", "x", at_ms=5)
        driver.crash()
        driver.restart()
        driver.input("in").pipe("a", "x", at_ms=6)
        assert [r.value for r in out(driver)] == [str(NO_TIME_MS), "12", "12"]


# --- event time behind a processor ------------------------------------------------------------


def finals_behind(each: Callable[..., None], **how: Any) -> Topology:
    def count(stream: KStream) -> None:
        (
            stream.group_by(lambda key, _value: key, Grouped(key=STR, value=STR))
            .windowed_by(tumbling(size_ms=10))
            .count(Materialized("counts"))
            .suppress()
            .to_stream()
            .to("out", Produced(key=windowed_serde(STR, size_ms=10), value=INT64))
        )

    return processed(each, then=count, **how)


def finals(driver: TopologyTestDriver) -> dict[int, int]:
    return {r.key.window.start_ms: r.value for r in out(driver)}


def delayed(self: Function, key: Any, value: Any) -> None:
    self.context.forward(key, value, stamp_ms=max(0, self.context.stamp_ms - 15))


def test_what_lies_behind_by_no_more_than_hold_ms_is_neither_late_nor_lost() -> None:
    with TopologyTestDriver(finals_behind(delayed, hold_ms=15), commit="each") as driver:
        for at_ms in (15, 20, 29, 30, 39):
            driver.input("in").pipe("a", "x", at_ms=at_ms)
            driver.commit()
        assert driver.dropped() == {}
        assert finals(driver) == {0: 2, 10: 2}
        driver.input("in").pipe("a", "x", at_ms=45)
        assert finals(driver) == {20: 1}


def test_without_hold_ms_such_a_record_may_come_late() -> None:
    with TopologyTestDriver(finals_behind(delayed), commit="each") as driver:
        for at_ms in (15, 26):
            driver.input("in").pipe("a", "x", at_ms=at_ms)
        assert driver.dropped() == {"late": 2}


def year_ago(self: Function, key: Any, value: Any) -> None:
    self.context.forward(key, value, stamp_ms=int(value))


def test_a_processor_with_its_own_time_starts_a_new_clock() -> None:
    """Its records lie far behind those it was given, and are late only by its own clock."""
    topology = finals_behind(year_ago, own_time=True)
    with TopologyTestDriver(topology, commit="each") as driver:
        pipe = driver.input("in").pipe
        for number, value in enumerate(("1", "9", "12", "25", "3")):
            pipe("a", value, at_ms=1_000_000 + number)
        assert finals(driver) == {0: 2, 10: 1}
        assert driver.dropped() == {"late": 1}


@pytest.mark.parametrize("wipe", [False, True])
def test_the_clock_of_a_processor_with_its_own_time_survives_a_restart(wipe: bool) -> None:
    topology = finals_behind(year_ago, own_time=True)
    with TopologyTestDriver(topology, commit="each", exactly_once=True) as driver:
        pipe = driver.input("in").pipe
        for number, value in enumerate(("1", "15")):
            pipe("a", value, at_ms=1_000_000 + number)
        driver.crash(wipe=wipe)
        driver.restart()
        pipe("a", "3", at_ms=1_000_002)
        pipe("a", "21", at_ms=1_000_003)
        assert finals(driver) == {0: 1, 10: 1}
        assert driver.dropped() == {"late": 1}


def test_a_processor_with_its_own_time_holds_windows_until_it_has_spoken() -> None:
    def mute(self: Function, key: Any, value: Any) -> None:
        if value != "-":
            year_ago(self, key, value)

    topology = finals_behind(mute, own_time=True)
    with TopologyTestDriver(topology, partitions=2, commit="each") as driver:
        pipe = driver.input("in").pipe
        pipe("a", "5", at_ms=1_000_000, partition=0)
        pipe("a", "-", at_ms=1_000_000, partition=1)
        pipe("a", "30", at_ms=1_000_001, partition=0)
        assert finals(driver) == {}
        pipe("a", "29", at_ms=1_000_001, partition=1)
        assert finals(driver) == {0: 1}
