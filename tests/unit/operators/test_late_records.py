"""Late is decided by window end + grace and the clock of the record's partition (P01)."""

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
    Windowed,
    hopping,
    tumbling,
    windowed_serde,
)
from streamcore.model import TopicPartition
from streamcore.operators.marker import Marker, marker_send
from streamcore.operators.watermark import Mark
from streamcore.task import TaskConfig
from streamcore.testing.driver import TopologyTestDriver
from streamcore.testing.log import Entry
from streamcore.topology.windows import Windows

P01 = [
    ("a", 1_000),
    ("a", 9_999),
    ("a", 10_000),
    ("a", 14_999),
    ("a", 3_000),
    ("a", 15_000),
    ("a", 9_999),
    ("b", 9_999),
    ("a", 10_001),
]


def word_count(windows: Windows, retention_ms: int | None = None) -> Topology:
    builder = StreamsBuilder()
    (
        builder.stream("words", Consumed(key=STR, value=STR))
        .group_by(lambda _key, word: word, Grouped(key=STR, value=STR))
        .windowed_by(windows)
        .count(Materialized("counts", retention_ms=retention_ms))
        .to_stream()
        .to("out", Produced(key=windowed_serde(STR, size_ms=windows.size_ms), value=INT64))
    )
    return builder.build()


def counts(driver: TopologyTestDriver) -> dict[tuple[str, int], int]:
    found = driver.stored("counts")
    assert all(isinstance(key, Windowed) for key in found)
    return {(key.key, key.window.start_ms): count for key, count in found.items()}


@pytest.mark.parametrize("event_time", ["source", "operator"])
@pytest.mark.parametrize("batch_rows", [1, 4, 100])
def test_a_late_record_is_dropped_and_counted_and_opens_no_closed_window(
    batch_rows: int, event_time: str
) -> None:
    windows = tumbling(size_ms=10_000, grace_ms=5_000)
    config = TaskConfig(event_time=event_time)
    with TopologyTestDriver(word_count(windows), batch_rows=batch_rows, config=config) as driver:
        driver.auto_run = False
        for word, at_ms in P01:
            driver.input("words").pipe(None, word, at_ms=at_ms)
        driver.run()
        driver.commit()
        assert counts(driver) == {("a", 0): 3, ("a", 10_000): 4}
        assert driver.dropped() == {"late": 2}
        assert driver.committed("words", 0).offset == len(P01)


def test_a_record_may_be_late_for_some_of_its_windows_only() -> None:
    """[0, 10) closes at 12: a record at 8 that follows it counts in [5, 15) alone."""
    with TopologyTestDriver(word_count(hopping(size_ms=10, advance_ms=5, grace_ms=2))) as driver:
        for word, at_ms in [("a", 7), ("b", 12), ("a", 8)]:
            driver.input("words").pipe(None, word, at_ms=at_ms)
        driver.commit()
        assert counts(driver) == {("a", 0): 1, ("a", 5): 2, ("b", 5): 1, ("b", 10): 1}
        assert driver.dropped() == {"late": 1}


def test_a_record_that_is_late_by_one_and_one_that_is_not() -> None:
    with TopologyTestDriver(word_count(tumbling(size_ms=10, grace_ms=5))) as driver:
        for word, at_ms in [("x", 14), ("a", 9), ("x", 15), ("a", 9)]:
            driver.input("words").pipe(None, word, at_ms=at_ms)
        driver.commit()
        assert counts(driver) == {("a", 0): 1, ("x", 10): 2}
        assert driver.dropped() == {"late": 1}


def test_a_record_in_order_of_its_own_partition_is_never_late() -> None:
    """Partition 1 lies a day behind, is read last, and has a late record of its own."""
    day_ms = 86_400_000
    with TopologyTestDriver(word_count(tumbling(size_ms=10)), partitions=2) as driver:
        for at_ms in (day_ms, day_ms + 1):
            driver.input("words").pipe(None, "a", at_ms=at_ms, partition=0)
        for at_ms in (1, 2, 30, 3):
            driver.input("words").pipe(None, "a", at_ms=at_ms, partition=1)
        driver.commit()
        assert counts(driver) == {("a", 0): 2, ("a", 30): 1, ("a", day_ms): 2}
        assert driver.dropped() == {"late": 1}


def test_after_two_hundred_windows_a_store_knows_the_live_ones_only() -> None:
    topology = word_count(tumbling(size_ms=10), retention_ms=30)
    with TopologyTestDriver(topology, commit="each") as driver:
        for number in range(200):
            driver.input("words").pipe(None, "a", at_ms=10 * number)
        task = next(task for task in driver.tasks.values() if task.changelogs())
        store = task.store("counts")
        assert store.starts() == [1_970, 1_980, 1_990]  # type: ignore[union-attr]
        live: dict[bytes, bytes | None] = {}
        for entry in driver.log("app-counts-changelog")[0]:
            assert entry.key is not None
            live[entry.key] = entry.value
        assert sum(value is not None for value in live.values()) == 3
        driver.crash(wipe=True)
        driver.restart()
        assert len(driver.stored("counts")) == 3


def test_update_stores_keep_windows_a_day_longer_than_size_and_grace() -> None:
    topology = word_count(tumbling(size_ms=10, grace_ms=5))
    (spec,) = [spec for sub in topology.sub_topologies for spec in sub.stores]
    assert spec.retention_ms == 15 + 24 * 3_600_000


def test_markers_from_before_a_change_of_the_rule_are_passed_over() -> None:
    config = TaskConfig(event_time="operator")
    with TopologyTestDriver(word_count(tumbling(size_ms=10)), config=config) as driver:
        send = marker_send("app-counts-repartition", 1, Marker(0, 1, Mark(99, False)), 5)
        (headers,) = send.headers or ()
        at = TopicPartition(send.topic, 0)
        driver.write(at, Entry(None, None, 5, headers))
        driver.input("words").pipe(None, "a", at_ms=1)
        driver.commit()
        assert counts(driver) == {("a", 0): 1}
        assert driver.committed(send.topic, 0).offset == 2
        assert driver.dropped() == {}
