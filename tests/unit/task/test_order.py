"""Which record comes next: across inputs, across batches, across branches that meet again."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamcore import STR, Consumed, Materialized, Produced, StreamsBuilder, Topology
from streamcore.model import TaskId
from streamcore.task import TaskConfig
from streamcore.task.meetings import ways_meet
from streamcore.testing.driver import TopologyTestDriver

TEXT = Consumed(key=STR, value=STR)
TO_TEXT = Produced(key=STR, value=STR)


def merged(topics_in_one_stream: bool) -> Topology:
    builder = StreamsBuilder()
    if topics_in_one_stream:
        stream = builder.stream(["one", "two"], TEXT)
    else:
        stream = builder.stream("one", TEXT).merge(builder.stream("two", TEXT))
    stream.to("out", TO_TEXT)
    return builder.build()


def one_by_one(one: list[int], two: list[int]) -> list[str]:
    """Kafka Streams' order: the lower head goes first, of equal heads that of the first topic."""
    ones = [f"1:{n}@{at_ms}" for n, at_ms in enumerate(one)]
    twos = [f"2:{n}@{at_ms}" for n, at_ms in enumerate(two)]
    order = []
    while ones or twos:
        first = not twos or (bool(ones) and one[-len(ones)] <= two[-len(twos)])
        order.append((ones if first else twos).pop(0))
    return order


def drive(topology: Topology, batch_rows: int, one: list[int], two: list[int]) -> list[str]:
    with TopologyTestDriver(topology, batch_rows=batch_rows) as driver:
        driver.auto_run = False
        for n, at_ms in enumerate(one):
            driver.input("one").pipe("k", f"1:{n}@{at_ms}", at_ms=at_ms)
        for n, at_ms in enumerate(two):
            driver.input("two").pipe("k", f"2:{n}@{at_ms}", at_ms=at_ms)
        driver.run()
        return [record.value for record in driver.output("out").read()]


stamps = st.lists(st.integers(0, 12), max_size=12)


@pytest.mark.parametrize("together", [True, False])
@settings(deadline=None, database=None)
@given(one=stamps, two=stamps, batch_rows=st.sampled_from([1, 2, 5, 100]))
def test_two_topics_are_merged_by_time_whatever_the_batches(
    together: bool, one: list[int], two: list[int], batch_rows: int
) -> None:
    assert drive(merged(together), batch_rows, one, two) == one_by_one(one, two)


def test_an_input_that_was_not_read_to_its_end_is_waited_for() -> None:
    with TopologyTestDriver(merged(False), batch_rows=1) as driver:
        driver.auto_run = False
        driver.input("two").pipe("k", "second", at_ms=9)
        for value, at_ms in [("first", 5), ("third", 10)]:
            driver.input("one").pipe("k", value, at_ms=at_ms)
        task = driver.tasks[TaskId(0, 0)]
        one, two = task.inputs
        driver._feed(task, two)
        assert task.process(driver.now_ms, 100) == 0, "nobody knows what waits in the other"
        driver._feed(task, one)
        assert task.process(driver.now_ms, 100) == 1, "there is more, and it may be older"
        driver._feed(task, one)
        assert task.process(driver.now_ms, 100) == 2
        driver.commit()
        written = [record.value for record in driver.output("out").read()]
        assert written == ["first", "second", "third"]


def test_a_source_with_fewer_partitions_holds_nobody_up() -> None:
    topology = merged(False)
    counts = {"one": 3, "two": 1, "out": 1}
    with TopologyTestDriver(topology, partitions=counts) as driver:
        for partition in range(3):
            driver.input("one").pipe("k", f"one-{partition}", at_ms=1, partition=partition)
        driver.input("two").pipe("k", "two", at_ms=1)
        driver.commit()
        assert len(driver.output("out").read()) == 4


# --- ways that meet -----------------------------------------------------------------------------


def parts(stream: Any) -> Any:
    return stream.filter(lambda _key, value: value < "m"), stream.filter_not(
        lambda _key, value: value < "m"
    )


def meets(build: Any) -> bool:
    builder = StreamsBuilder()
    build(builder.stream("in", TEXT), builder)
    return any(ways_meet(sub) for sub in builder.build().sub_topologies)


def by_merge(stream: Any, _builder: StreamsBuilder) -> None:
    low, high = parts(stream)
    low.merge(high).to("out", TO_TEXT)


def by_topic(stream: Any, _builder: StreamsBuilder) -> None:
    for part in parts(stream):
        part.to("out", TO_TEXT)


def by_merge_of_the_whole(stream: Any, _builder: StreamsBuilder) -> None:
    stream.merge(stream.map_values(str.upper)).to("out", TO_TEXT)


def two_ends(stream: Any, _builder: StreamsBuilder) -> None:
    low, high = parts(stream)
    low.to("low", TO_TEXT)
    high.to("high", TO_TEXT)


def two_inputs(stream: Any, builder: StreamsBuilder) -> None:
    stream.merge(builder.stream("other", TEXT)).to("out", TO_TEXT)


def a_chain(stream: Any, _builder: StreamsBuilder) -> None:
    stream.map_values(str.upper).to_table(Materialized("t", value=STR)).to_stream().to(
        "out", TO_TEXT
    )


@pytest.mark.parametrize("build", [by_merge, by_topic, by_merge_of_the_whole])
def test_ways_that_meet_again_are_seen(build: Any) -> None:
    assert meets(build)


@pytest.mark.parametrize("build", [two_ends, two_inputs, a_chain])
def test_ways_that_do_not_meet_keep_their_batches(build: Any) -> None:
    assert not meets(build)


@pytest.mark.parametrize("build", [by_merge, by_topic, by_merge_of_the_whole])
def test_rows_on_ways_that_meet_keep_their_order(build: Any) -> None:
    def values(batch_rows: int) -> list[str]:
        builder = StreamsBuilder()
        build(builder.stream("in", TEXT), builder)
        with TopologyTestDriver(builder.build(), batch_rows=batch_rows) as driver:
            driver.auto_run = False
            for value in ("a", "z", "b", "y", "c"):
                driver.input("in").pipe("k", value, at_ms=1)
            driver.run()
            return [record.value for record in driver.output("out").read()]

    assert values(100) == values(1)
    assert [value for value in values(100) if value.islower()] == ["a", "z", "b", "y", "c"]


# --- back-pressure ------------------------------------------------------------------------------


def test_inputs_with_many_buffered_rows_ask_for_a_pause() -> None:
    builder = StreamsBuilder()
    builder.stream("in", TEXT).to("out", TO_TEXT)
    config = TaskConfig(buffered_rows_max=3)
    with TopologyTestDriver(builder.build(), batch_rows=2, config=config) as driver:
        driver.auto_run = False
        for number in range(6):
            driver.input("in").pipe("k", str(number), at_ms=1)
        task = driver.tasks[TaskId(0, 0)]
        fed = []
        for _ in range(3):
            driver._feed(task, task.inputs[0])
            fed.append(task.full)
        assert fed == [(), task.inputs, task.inputs]
        assert task.process(driver.now_ms, 4) == 4
        assert task.full == ()
