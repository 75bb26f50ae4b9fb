"""Tables: the newest value by offset; the source topic as changelog; derived tables."""

from typing import Any

import pytest

from streamcore import (
    INT64,
    STR,
    Consumed,
    Grouped,
    Materialized,
    Produced,
    StreamsBuilder,
    Topology,
    tumbling,
)
from streamcore.testing.driver import TopologyTestDriver

NUMBERS = Consumed(key=STR, value=INT64)
TO_NUMBERS = Produced(key=STR, value=INT64)


def read_from_topic() -> Topology:
    builder = StreamsBuilder()
    table = builder.table("in", NUMBERS, Materialized("newest"))
    table.to_stream().to("out", TO_NUMBERS)
    return builder.build()


def made_of_a_stream() -> Topology:
    builder = StreamsBuilder()
    table = builder.stream("in", NUMBERS).to_table(Materialized("newest"))
    table.to_stream().to("out", TO_NUMBERS)
    return builder.build()


BOTH = pytest.mark.parametrize("build", [read_from_topic, made_of_a_stream])


def pairs(driver: TopologyTestDriver) -> list[tuple[Any, Any]]:
    return [(r.key, r.value) for r in driver.output("out").read()]


@BOTH
def test_the_newest_is_the_one_with_the_highest_offset(build: Any) -> None:
    with TopologyTestDriver(build()) as driver:
        for value, at_ms in [(1, 100), (2, 5)]:
            driver.input("in").pipe("a", value, at_ms=at_ms)
        driver.commit()
        assert driver.stored("newest") == {"a": 2}
        assert [(r.value, r.stamp_ms) for r in driver.output("out").read()] == [(2, 5)]


@BOTH
def test_a_commit_sends_the_last_value_of_each_key_in_the_order_of_the_changes(
    build: Any,
) -> None:
    with TopologyTestDriver(build()) as driver:
        for key, value in [("a", 1), ("b", 2), ("a", 3), ("c", None)]:
            driver.input("in").pipe(key, value, at_ms=1)
        driver.commit()
        assert pairs(driver) == [("b", 2), ("a", 3), ("c", None)]


@BOTH
@pytest.mark.parametrize("wipe", [False, True])
@pytest.mark.parametrize("exactly_once", [False, True])
def test_a_table_comes_back_as_it_was_committed(build: Any, wipe: bool, exactly_once: bool) -> None:
    with TopologyTestDriver(build(), partitions=2, exactly_once=exactly_once) as driver:
        for key, value in [("a", 1), ("b", 2), ("c", 3), ("b", None), (None, 4)]:
            driver.input("in").pipe(key, value, at_ms=1)
        driver.commit()
        pairs(driver)
        driver.input("in").pipe("a", 5, at_ms=2)  # processed, not committed
        driver.crash(wipe=wipe)
        driver.restart()
        assert driver.stored("newest") == {"a": 1, "c": 3}
        driver.run()
        driver.commit()
        assert driver.stored("newest") == {"a": 5, "c": 3}
        assert pairs(driver) == [("a", 5)]


def test_a_table_read_from_a_topic_has_no_changelog_of_its_own() -> None:
    with TopologyTestDriver(read_from_topic()) as driver:
        driver.input("in").pipe("a", 1, at_ms=1)
        driver.commit()
        assert driver.log("app-newest-changelog") == {}
        (task,) = driver.tasks.values()
        ((at, changelog),) = task.changelogs().items()
        assert (at.topic, changelog.until_committed) == ("in", True)
        assert changelog.position is not None
        assert changelog.position.offset == 1


def test_derived_tables_turn_what_they_leave_out_into_deletions() -> None:
    builder = StreamsBuilder()
    table = builder.table("in", NUMBERS, Materialized("newest"))
    asked: list[Any] = []

    def even(_key: str, value: int) -> bool:
        asked.append(value)
        return value % 2 == 0

    table.filter(even).to_stream().to("even", TO_NUMBERS)
    table.filter_not(even).to_stream().to("odd", TO_NUMBERS)
    table.map_values(lambda value: value * 10).to_stream().to("tens", TO_NUMBERS)
    with TopologyTestDriver(builder.build(), commit="each") as driver:
        for value in (1, 2, None):
            driver.input("in").pipe("a", value, at_ms=1)

        def values(topic: str) -> list[Any]:
            return [record.value for record in driver.output(topic).read()]

        assert values("even") == [None, 2, None]
        assert values("odd") == [1, None, None]
        assert values("tens") == [10, 20, None]
        assert None not in asked


def test_an_unlogged_store_is_lost_with_its_disk_only() -> None:
    builder = StreamsBuilder()
    builder.stream("in", NUMBERS).to_table(Materialized("newest", logged=False))
    with TopologyTestDriver(builder.build()) as driver:
        driver.input("in").pipe("a", 1, at_ms=1)
        driver.commit()
        driver.crash()
        driver.restart()
        assert driver.stored("newest") == {"a": 1}
        driver.crash(wipe=True)
        driver.restart()
        assert driver.stored("newest") == {}


def test_a_store_without_a_cache_forwards_each_update() -> None:
    builder = StreamsBuilder()
    table = builder.stream("in", NUMBERS).to_table(Materialized("newest", cached=False))
    table.to_stream().to("out", TO_NUMBERS)
    with TopologyTestDriver(builder.build()) as driver:
        driver.auto_run = False
        for value in (1, 2, 3):
            driver.input("in").pipe("a", value, at_ms=1)
        driver.run()
        assert pairs(driver) == [("a", 1), ("a", 2), ("a", 3)]


@pytest.mark.parametrize("kind", ["table", "count"])
def test_what_stands_for_several_records_is_late_only_if_all_of_them_are(kind: str) -> None:
    """The first record of x is in order, the second late: the result stands for both."""
    builder = StreamsBuilder()
    stream = builder.stream("in", NUMBERS)
    if kind == "table":
        results = stream.to_table(Materialized("newest")).to_stream()
    else:
        results = stream.group_by_key().count(Materialized("counted")).to_stream()
    windowed = results.group_by(lambda key, _n: key, Grouped(key=STR, value=INT64)).windowed_by(
        tumbling(size_ms=10)
    )
    windowed.count(Materialized("windowed"))
    with TopologyTestDriver(builder.build()) as driver:
        for key, at_ms in [("x", 5), ("y", 100), ("x", 4), ("z", 3)]:
            driver.input("in").pipe(key, 1, at_ms=at_ms)
        driver.commit()
        found = {key.key: key.window.start_ms for key in driver.stored("windowed")}
        assert found == {"x": 0, "y": 100}
        assert driver.dropped() == {"late": 1}
