"""The aggregator in the test driver: counts per word and window, updates and finals."""

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aggregator.settings import Settings
from aggregator.topology import STORE, build
from streamcore import STR, windowed_serde
from streamcore.testing.driver import TopologyTestDriver

Words = Sequence[tuple[str, int]]
KEY = windowed_serde(STR, size_ms=10_000)


def driver_of(
    own: Settings | None = None, *, partitions: int = 1, batch_rows: int = 1_000
) -> TopologyTestDriver:
    return TopologyTestDriver(
        build(own or Settings()), partitions=partitions, batch_rows=batch_rows
    )


def pipe(driver: TopologyTestDriver, words: Words, partition: int = 0) -> None:
    for word, at_ms in words:
        driver.input("words").pipe(None, word, at_ms=at_ms, partition=partition)


def results(driver: TopologyTestDriver) -> list[tuple[str, int, int]]:
    """Return (word, start of the window, count) of each result not read yet."""
    records = driver.output("windowed-counts", key=KEY).read()
    return [(r.key.key, r.key.window.start_ms, r.value) for r in records]


def test_late_words_are_judged_by_the_end_of_their_window() -> None:
    # a@10000 belongs to the second window alone; b@9999 is late though no b came before.
    words = [
        *(("a", at) for at in (1_000, 9_999, 10_000, 14_999, 3_000, 15_000, 9_999)),
        ("b", 9_999),
        ("a", 10_001),
    ]
    with driver_of(Settings(grace_ms=5_000)) as driver:
        pipe(driver, words)
        driver.commit()
        assert {(word, at): n for word, at, n in results(driver)} == {
            ("a", 0): 3,
            ("a", 10_000): 4,
        }
        assert driver.dropped() == {"late": 2}


def test_updates_give_each_changed_count_once_a_commit() -> None:
    with driver_of() as driver:
        pipe(driver, [("to", 1), ("be", 2), ("to", 3)])
        driver.commit()
        assert sorted(results(driver)) == [("be", 0, 1), ("to", 0, 2)]
        pipe(driver, [("to", 4)])
        driver.commit()
        assert results(driver) == [("to", 0, 3)]
        driver.commit()
        assert results(driver) == []


def test_finals_come_once_and_only_when_their_window_has_closed() -> None:
    with driver_of(Settings(emit="final")) as driver:
        pipe(driver, [("to", 1), ("be", 2), ("to", 9_999)])
        for _ in range(3):
            driver.commit()
        assert results(driver) == []
        pipe(driver, [("to", 10_000)])
        for _ in range(3):
            driver.commit()
        assert sorted(results(driver)) == [("be", 0, 1), ("to", 0, 2)]


def test_an_empty_word_is_a_key_like_any_other() -> None:
    with driver_of() as driver:
        pipe(driver, [("", 1), ("", 2)])
        driver.commit()
        assert results(driver) == [("", 0, 2)]


def test_bytes_are_those_of_kafka_streams() -> None:
    with driver_of() as driver:
        pipe(driver, [("a", 10_000), ("a", 14_999)])
        driver.commit()
        (entry,) = driver.log("windowed-counts")[0]
        assert entry.key == bytes.fromhex("610000000000002710")
        assert entry.value == bytes.fromhex("0000000000000002")
        assert entry.stamp_ms == 14_999
        (change,) = driver.log("app-windowed-counts-changelog")[0]
        assert change.key == bytes.fromhex("61000000000000271000000000")
        assert change.value == entry.value


@pytest.mark.parametrize("wipe", [False, True])
def test_counts_survive_a_crash_with_the_disk_and_without(wipe: bool) -> None:
    with driver_of() as driver:
        pipe(driver, [("to", 1), ("to", 2)])
        driver.commit()
        driver.crash(wipe=wipe)
        driver.restart()
        pipe(driver, [("to", 3)])
        driver.commit()
        assert results(driver)[-1] == ("to", 0, 3)
        assert list(driver.stored(STORE).values()) == [3]


WORDS = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 40_000)), max_size=40)


@pytest.mark.parametrize("emit", ["updates", "final"])
@settings(max_examples=30, deadline=None)
@given(by_partition=st.lists(WORDS, min_size=2, max_size=2), batch_rows=st.integers(1, 50))
def test_words_in_order_are_all_counted_however_far_partitions_are_apart(
    emit: str, by_partition: list[list[tuple[str, int]]], batch_rows: int
) -> None:
    """One partition after the other: under Kafka Streams' own rule the second would be late."""
    own = Settings.model_validate({"emit": emit})
    expected: Counter[tuple[str, int]] = Counter()
    with driver_of(own, partitions=2, batch_rows=batch_rows) as driver:
        for partition, words in enumerate(by_partition):
            in_order = sorted(words, key=lambda pair: pair[1])
            pipe(driver, in_order, partition)
            expected.update((word, at_ms // 10_000 * 10_000) for word, at_ms in in_order)
            driver.commit()
        last: dict[tuple[str, int], int] = {}
        for partition in range(2):
            pipe(driver, [("end", 1_000_000)], partition)
        for _ in range(4):
            driver.commit()
        for word, start_ms, count in results(driver):
            assert emit == "updates" or (word, start_ms) not in last
            last[word, start_ms] = count
        last.pop(("end", 1_000_000), None)
        assert last == expected
        assert driver.dropped() == {}
