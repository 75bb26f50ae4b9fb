"""count, reduce, aggregate; with and without windows; results that vanish, objects that change."""

from typing import Any

import pytest

from streamcore import (
    BYTES,
    INT64,
    JSON,
    STR,
    Consumed,
    Materialized,
    Produced,
    StreamsBuilder,
    Topology,
    tumbling,
    windowed_serde,
)
from streamcore.task import TaskConfig
from streamcore.testing.driver import TopologyTestDriver

TEXT = Consumed(key=STR, value=STR)
NUMBERS = Consumed(key=STR, value=INT64)


def rows(driver: TopologyTestDriver) -> list[tuple[Any, Any, int]]:
    return [(r.key, r.value, r.stamp_ms) for r in driver.output("out").read()]


# --- reduce -----------------------------------------------------------------------------------


def newest_sum() -> Topology:
    builder = StreamsBuilder()
    grouped = builder.stream("in", NUMBERS).group_by_key()
    table = grouped.reduce(lambda old, new: old + new if new else None, Materialized("sums"))
    table.to_stream().to("out", Produced(key=STR, value=INT64))
    return builder.build()


def test_reduce_begins_with_the_first_value_and_takes_the_highest_stamp() -> None:
    with TopologyTestDriver(newest_sum(), commit="each") as driver:
        for value, at_ms in [(5, 10), (7, 4), (1, 12)]:
            driver.input("in").pipe("a", value, at_ms=at_ms)
        assert rows(driver) == [("a", 5, 10), ("a", 12, 10), ("a", 13, 12)]


@pytest.mark.parametrize("commit", ["each", "manual"])
def test_a_reducer_that_gives_none_deletes_and_the_next_value_begins_anew(commit: Any) -> None:
    with TopologyTestDriver(newest_sum(), commit=commit) as driver:
        for value, at_ms in [(5, 10), (0, 11)]:
            driver.input("in").pipe("a", value, at_ms=at_ms)
        driver.commit()
        assert driver.stored("sums") == {}
        assert rows(driver)[-1] == ("a", None, 11)
        assert driver.log("app-sums-changelog")[0][-1].value is None
        driver.input("in").pipe("a", 3, at_ms=2)
        driver.commit()
        assert rows(driver) == [("a", 3, 2)]


def test_within_one_commit_a_deleted_aggregate_leaves_no_stamp_behind() -> None:
    with TopologyTestDriver(newest_sum()) as driver:
        driver.auto_run = False
        for value, at_ms in [(5, 10), (0, 11), (3, 2)]:
            driver.input("in").pipe("a", value, at_ms=at_ms)
        driver.run()
        driver.commit()
        assert rows(driver) == [("a", 3, 2)]


# --- aggregate --------------------------------------------------------------------------------


def collected(windowed: bool, *, cached: bool = True) -> Topology:
    def add(_key: str, value: str, words: list[str]) -> list[str]:
        words.append(value)  # the very object that was given: nothing else may share it
        return words

    builder = StreamsBuilder()
    grouped = builder.stream("in", TEXT).group_by_key()
    store = Materialized("words", value=JSON, cached=cached)
    if windowed:
        table = grouped.windowed_by(tumbling(size_ms=10)).aggregate(list, add, store)
        table.to_stream().to("out", Produced(key=windowed_serde(STR, size_ms=10), value=JSON))
    else:
        grouped.aggregate(list, add, store).to_stream().to("out", Produced(key=STR, value=JSON))
    return builder.build()


@pytest.mark.parametrize("cached", [True, False])
@pytest.mark.parametrize("windowed", [True, False])
@pytest.mark.parametrize("wipe", [True, False])
def test_aggregates_that_are_changed_in_place_are_each_keys_own(
    windowed: bool, cached: bool, wipe: bool
) -> None:
    with TopologyTestDriver(collected(windowed, cached=cached)) as driver:
        for number in range(3):
            for key in ("a", "b"):
                driver.input("in").pipe(key, f"{key}{number}", at_ms=number)
            if number == 1:
                driver.commit()
                driver.crash(wipe=wipe)
                driver.restart()
        driver.commit()
        found = {getattr(key, "key", key): words for key, words in driver.stored("words").items()}
        assert found == {"a": ["a0", "a1", "a2"], "b": ["b0", "b1", "b2"]}
        assert [value for _, value, _ in rows(driver)][-2:] == [found["a"], found["b"]]


def test_results_that_were_sent_do_not_change_with_later_records() -> None:
    config = TaskConfig(forward_each_update=True)
    with TopologyTestDriver(collected(windowed=False), config=config) as driver:
        for number in range(3):
            driver.input("in").pipe("a", str(number), at_ms=number)
        assert [value for _, value, _ in rows(driver)] == [["0"], ["0", "1"], ["0", "1", "2"]]


def test_an_initializer_is_asked_once_for_each_new_key() -> None:
    asked: list[int] = []

    def initial() -> int:
        asked.append(1)
        return 100

    builder = StreamsBuilder()
    builder.stream("in", NUMBERS).group_by_key().aggregate(
        initial, lambda _key, value, old: old + value, Materialized("sums", value=INT64)
    )
    with TopologyTestDriver(builder.build()) as driver:
        for key, value in [("a", 1), ("b", 2), ("a", 3)]:
            driver.input("in").pipe(key, value, at_ms=1)
        driver.commit()
        assert (driver.stored("sums"), len(asked)) == ({"a": 104, "b": 102}, 2)


def test_a_windowed_aggregate_that_vanishes_has_no_final_result() -> None:
    builder = StreamsBuilder()
    (
        builder.stream("in", NUMBERS)
        .group_by_key()
        .windowed_by(tumbling(size_ms=10))
        .aggregate(
            lambda: 0,
            lambda _key, value, old: old + value if value else None,
            Materialized("sums", value=INT64),
        )
        .suppress()
        .to_stream()
        .to("out", Produced(key=windowed_serde(STR, size_ms=10), value=INT64))
    )
    with TopologyTestDriver(builder.build(), commit="each") as driver:
        for key, value in [("a", 1), ("b", 2), ("a", 0)]:
            driver.input("in").pipe(key, value, at_ms=1)
        driver.input("in").pipe("c", 1, at_ms=10)
        assert [(key.key, value) for key, value, _ in rows(driver)] == [("b", 2)]


# --- updates and finals beside each other -----------------------------------------------------


def test_a_table_may_send_updates_and_finals() -> None:
    builder = StreamsBuilder()
    table = (
        builder.stream("in", TEXT)
        .group_by_key()
        .windowed_by(tumbling(size_ms=10))
        .count(Materialized("counts"))
    )
    serde = windowed_serde(STR, size_ms=10)
    table.to_stream().to("updates", Produced(key=serde, value=INT64))
    table.filter(lambda _key, count: count > 1).suppress().to_stream().to(
        "finals", Produced(key=serde, value=INT64)
    )
    with TopologyTestDriver(builder.build(), commit="each") as driver:
        for key, at_ms in [("a", 1), ("a", 2), ("b", 3), ("c", 10)]:
            driver.input("in").pipe(key, "x", at_ms=at_ms)
        updates = [(r.key.key, r.value) for r in driver.output("updates").read()]
        finals = [(r.key.key, r.value) for r in driver.output("finals").read()]
        assert updates == [("a", 1), ("a", 2), ("b", 1), ("c", 1)]
        assert [pair for pair in finals if pair[1] is not None] == [("a", 2)]


# --- keys -------------------------------------------------------------------------------------


@pytest.mark.parametrize("wipe", [False, True])
def test_no_key_touches_the_windows_of_another_of_which_it_is_a_prefix(wipe: bool) -> None:
    """P13, through the whole engine: counting, expiry, restore."""
    keys = [b"a", b"ab", b"a\x00", b"a" + bytes(8), b"a" + bytes(16)]
    builder = StreamsBuilder()
    stream = builder.stream("in", Consumed(key=BYTES, value=BYTES))
    windows = tumbling(size_ms=10_000)
    store = Materialized("counts", retention_ms=20_000)
    stream.group_by_key().windowed_by(windows).count(store)
    with TopologyTestDriver(builder.build()) as driver:
        expected = {}
        number = 0
        for start_ms in (0, 10_000):
            for key in keys:
                number += 1
                expected[key, start_ms] = number
                for _ in range(number):
                    driver.input("in").pipe(key, b"", at_ms=start_ms, partition=0)
        driver.commit()

        def found() -> dict[tuple[bytes, int], int]:
            counted = driver.stored("counts").items()
            return {(key.key, key.window.start_ms): count for key, count in counted}

        assert found() == expected
        driver.crash(wipe=wipe)
        driver.restart()
        assert found() == expected
        driver.input("in").pipe(b"z", b"", at_ms=20_000, partition=0)
        for _ in range(2):  # closed by one commit, forgotten by the next
            driver.commit()
            driver.input("in").pipe(b"z", b"", at_ms=20_001, partition=0)
        live = {cell: count for cell, count in expected.items() if cell[1] == 10_000}
        assert {cell: n for cell, n in found().items() if cell[0] != b"z"} == live
        driver.commit()
        driver.crash(wipe=True)
        driver.restart()
        assert {cell: n for cell, n in found().items() if cell[0] != b"z"} == live


# --- what waits for a commit ------------------------------------------------------------------


def test_the_overlay_is_measured_and_emptied_by_the_commit() -> None:
    with TopologyTestDriver(collected(windowed=True)) as driver:
        (task,) = driver.tasks.values()
        assert task.dirty_bytes == 0
        driver.input("in").pipe("a", "x", at_ms=1)
        one = task.dirty_bytes
        driver.input("in").pipe("b", "x", at_ms=1)
        assert task.dirty_bytes > one > 0
        driver.commit()
        assert task.dirty_bytes == 0
