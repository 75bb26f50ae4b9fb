"""Records that cannot go on: undecodable (P11), with no usable timestamp (P02), or failing."""

from typing import Any

import pytest

from streamcore import (
    BYTES,
    JSON,
    STR,
    Consumed,
    Grouped,
    Materialized,
    Produced,
    StreamsBuilder,
    Topology,
    tumbling,
)
from streamcore.errors import (
    DeserializationError,
    ProcessingError,
    RecordError,
    TimestampError,
)
from streamcore.model import Fetched, OffsetAndMetadata, TaskId, TopicPartition
from streamcore.task import Task, TaskConfig
from streamcore.testing.driver import FAR_FUTURE_MS, TopologyTestDriver

HOUR_MS = 3_600_000
BAD = b"\xff\xfe{"
AT = TopicPartition("in", 0)


def json_counts(timestamp: Any = None) -> Topology:
    builder = StreamsBuilder()
    stream = builder.stream("in", Consumed(key=STR, value=JSON, timestamp=timestamp))
    stream.group_by_key().windowed_by(tumbling(size_ms=10_000)).count(Materialized("counts"))
    return builder.build()


def driver_with(topology: Topology, **settings: Any) -> TopologyTestDriver:
    driver = TopologyTestDriver(topology, config=TaskConfig(**settings))
    driver.auto_run = False
    return driver


def the_task(driver: TopologyTestDriver) -> Task:
    return driver.tasks[TaskId(0, 0)]


def pipe_three_good_and_one_bad(driver: TopologyTestDriver) -> None:
    for value in (b"1", BAD, b"2", b"3"):
        headers = (("h", b"1"),)
        driver.input("in").pipe_bytes(b"k", value, at_ms=5, headers=headers)
    driver.run()
    driver.commit()


# --- undecodable records ----------------------------------------------------------------------


@pytest.mark.parametrize("batch_rows", [1, 2, 100])
def test_continue_skips_the_record_counts_it_and_commits_behind_it(batch_rows: int) -> None:
    with driver_with(json_counts(), deserialization_error="continue") as driver:
        driver.batch_rows = batch_rows
        pipe_three_good_and_one_bad(driver)
        assert list(driver.stored("counts").values()) == [3]
        assert driver.dropped() == {"deserialization": 1}
        assert driver.committed("in", 0).offset == 4


def test_the_dead_letter_is_the_record_byte_for_byte_with_its_origin() -> None:
    settings = {"deserialization_error": "dead-letter", "dead_letter_topic": "dead"}
    with driver_with(json_counts(), **settings) as driver:
        pipe_three_good_and_one_bad(driver)
        (entry,) = driver.log("dead")[0]
        assert (entry.key, entry.value, entry.stamp_ms) == (b"k", BAD, 5)
        assert entry.headers == (
            ("h", b"1"),
            ("sc-dead-topic", b"in"),
            ("sc-dead-partition", b"0"),
            ("sc-dead-offset", b"1"),
            ("sc-dead-timestamp", b"5"),
            ("sc-dead-reason", b"DeserializationError: value as json: invalid utf-8 at byte 0"),
        )
        assert list(driver.stored("counts").values()) == [3]
        assert driver.dropped() == {"deserialization": 1}
        assert driver.committed("in", 0).offset == 4


@pytest.mark.parametrize("batch_rows", [1, 2, 100])
def test_stop_commits_what_is_in_front_and_the_restart_stops_there_again(batch_rows: int) -> None:
    with driver_with(json_counts()) as driver:
        driver.batch_rows = batch_rows
        pipe_three_good_and_one_bad(driver)
        for _ in range(2):
            error = the_task(driver).stopped_at
            assert isinstance(error, DeserializationError)
            assert "record in partition 0 offset 1 cannot be decoded" in str(error)
            assert "deserialization_error" in str(error)
            assert driver.committed("in", 0).offset == 1
            assert list(driver.stored("counts").values()) == [1]
            driver.crash()
            driver.restart()
            driver.run()
            driver.commit()


def test_an_error_tells_the_place_and_not_the_record() -> None:
    secret = b'\xff{"password": "hunter2"}'
    with driver_with(json_counts()) as driver:
        driver.input("in").pipe_bytes(b"k", secret, at_ms=5)
        driver.run()
        assert "hunter2" not in str(the_task(driver).stopped_at)


def test_several_bad_records_in_a_row_and_at_both_ends() -> None:
    with driver_with(json_counts(), deserialization_error="continue") as driver:
        for value in (BAD, BAD, b"1", BAD, BAD, b"2", BAD):
            driver.input("in").pipe_bytes(b"k", value, at_ms=5)
        driver.run()
        driver.commit()
        assert list(driver.stored("counts").values()) == [2]
        assert driver.dropped() == {"deserialization": 5}
        assert driver.committed("in", 0).offset == 7


def test_an_undecodable_key_is_a_fault_like_an_undecodable_value() -> None:
    with driver_with(json_counts(), deserialization_error="continue") as driver:
        driver.input("in").pipe_bytes(b"\xff", b"1", at_ms=5)
        driver.run()
        assert driver.dropped() == {"deserialization": 1}


# --- timestamps -------------------------------------------------------------------------------


def test_records_without_a_usable_timestamp_are_skipped_also_at_the_end() -> None:
    with driver_with(json_counts(), timestamp_error="continue") as driver:
        driver.input("in").pipe("x", 1, at_ms=12_000)
        for _ in range(3):
            driver.input("in").pipe("x", 1, at_ms=-1)
        driver.run()
        driver.commit()
        windows = [key.window.start_ms for key in driver.stored("counts")]
        assert windows == [10_000]
        assert driver.dropped() == {"timestamp": 3}
        assert driver.committed("in", 0).offset == 4
        driver.crash()
        driver.restart()
        driver.run()
        assert driver.dropped() == {}
        assert list(driver.stored("counts").values()) == [1]


def test_the_offset_moves_behind_a_skipped_record_with_that_record() -> None:
    with driver_with(json_counts(), timestamp_error="continue") as driver:
        task = the_task(driver)
        stamps_ms = [12_000, -1, -1]
        task.accept(Fetched(AT, [5, 6, 9], [b"x"] * 3, [b"1"] * 3, stamps_ms, None, 10))
        moved = []
        for _ in range(3):
            task.process(driver.now_ms, 1)
            point = task.cut(driver.now_ms)
            assert point is not None
            moved.append(point.offsets[AT].offset)
        assert moved == [6, 7, 10]


@pytest.mark.parametrize("at_ms", [-1, FAR_FUTURE_MS + HOUR_MS + 1])
def test_by_default_a_bad_timestamp_stops_the_task_in_front_of_it(at_ms: int) -> None:
    with driver_with(json_counts()) as driver:
        driver.input("in").pipe("x", 1, at_ms=0)
        driver.input("in").pipe("x", 1, at_ms=at_ms)
        driver.run()
        driver.commit()
        error = the_task(driver).stopped_at
        assert isinstance(error, TimestampError)
        assert "record in partition 0 offset 1 has no usable timestamp" in str(error)
        assert driver.committed("in", 0).offset == 1


def test_a_timestamp_far_ahead_moves_no_clock() -> None:
    with driver_with(json_counts(), timestamp_error="continue") as driver:
        far_ms = FAR_FUTURE_MS + HOUR_MS
        for at_ms in (1, far_ms + 1, 2):
            driver.input("in").pipe("x", 1, at_ms=at_ms)
        driver.run()
        driver.commit()
        assert list(driver.stored("counts").values()) == [2]
        assert driver.dropped() == {"timestamp": 1}
        driver.input("in").pipe("x", 1, at_ms=far_ms)
        driver.run()
        driver.commit()
        driver.commit()  # the window of before is so old that it is forgotten
        assert len(driver.stored("counts")) == 1


def test_a_dead_letter_with_a_bad_timestamp_gets_one_that_the_broker_takes() -> None:
    settings = {"timestamp_error": "dead-letter", "dead_letter_topic": "dead"}
    with driver_with(json_counts(), **settings) as driver:
        driver.input("in").pipe("x", 1, at_ms=-1)
        driver.run()
        (entry,) = driver.log("dead")[0]
        assert (entry.value, entry.stamp_ms) == (b"1", 0)


def value_of(_key: Any, value: Any, _stamp_ms: int) -> Any:
    return value["at"]


def test_an_extractor_gives_the_time_and_the_clock() -> None:
    with driver_with(json_counts(value_of)) as driver:
        for at in (5_000, 25_000, 6_000):
            driver.input("in").pipe("x", {"at": at}, at_ms=1)
        driver.run()
        driver.commit()
        assert [key.window.start_ms for key in driver.stored("counts")] == [0, 20_000]
        assert driver.dropped() == {"late": 1}


@pytest.mark.parametrize(
    "bad", [{"at": None}, {"at": 1.5}, {"at": "12"}, {"at": True}, {"at": -3}, {}, {"at": 1 << 63}]
)
def test_an_extractor_that_fails_or_gives_no_time_is_a_timestamp_error(bad: Any) -> None:
    with driver_with(json_counts(value_of), timestamp_error="continue") as driver:
        for value in ({"at": 1}, bad, {"at": 2}):
            driver.input("in").pipe("x", value, at_ms=1)
        driver.run()
        driver.commit()
        assert list(driver.stored("counts").values()) == [2]
        assert driver.dropped() == {"timestamp": 1}


# --- user code that fails ------------------------------------------------------------------------


def strict_upper() -> Topology:
    def upper(value: bytes) -> bytes:
        if value == b"bad":
            raise RuntimeError("cannot")
        return value.upper()

    builder = StreamsBuilder()
    stream = builder.stream("in", Consumed(key=BYTES, value=BYTES))
    stream.map_values(upper).to("out", Produced(key=BYTES, value=BYTES))
    return builder.build()


def the_error(driver: TopologyTestDriver) -> ProcessingError:
    """As the worker does: rebuilt from the last commit, one row at a time, it is the very row."""
    with pytest.raises(ProcessingError):
        driver.run()
    driver.crash()
    driver.restart()
    driver.batch_rows = 1
    with pytest.raises(ProcessingError) as caught:
        driver.run()
    driver.crash()
    return caught.value


def test_a_failing_row_is_named_by_processing_row_by_row() -> None:
    with driver_with(strict_upper()) as driver:
        for value in (b"a", b"b", b"bad", b"c"):
            driver.input("in").pipe(b"k", value, at_ms=1)
        error = the_error(driver)
        assert (error.partition, error.offset) == (AT, 2)
        assert isinstance(error.__cause__, RuntimeError)
        assert "processing_error" in str(error)


@pytest.mark.parametrize("policy", ["stop", "continue", "dead-letter"])
def test_a_poisoned_row_is_handled_as_the_policy_says(policy: str) -> None:
    settings = {"processing_error": policy, "dead_letter_topic": "dead"}
    with driver_with(strict_upper(), **settings) as driver:
        driver.batch_rows = 100
        driver.poison(ProcessingError(AT, 2, "RuntimeError: cannot"))
        driver.crash()
        driver.restart()
        for value in (b"a", b"b", b"bad", b"c"):
            driver.input("in").pipe(b"k", value, at_ms=1)
        driver.run()
        driver.commit()
        written = [record.value for record in driver.output("out").read()]
        stopped: RecordError | None = the_task(driver).stopped_at
        if policy == "stop":
            assert (written, driver.committed("in", 0).offset) == ([b"A", b"B"], 2)
            assert isinstance(stopped, ProcessingError)
            assert stopped.offset == 2
        else:
            assert (written, driver.committed("in", 0).offset) == ([b"A", b"B", b"C"], 4)
            assert stopped is None
            assert driver.dropped() == {"processing": 1}
        dead = [entry.value for entry in driver.log("dead").get(0, [])]
        assert dead == ([b"bad"] if policy == "dead-letter" else [])


def test_nothing_is_committed_for_a_task_that_has_done_nothing() -> None:
    with driver_with(json_counts()) as driver:
        driver.run()
        driver.commit()
        assert the_task(driver).cut(driver.now_ms) is None
        assert driver.committed("in", 0) == OffsetAndMetadata(0, driver.committed("in", 0).metadata)


@pytest.mark.parametrize("batch_rows", [1, 3, 100])
@pytest.mark.parametrize("policy", ["continue", "dead-letter"])
def test_a_row_that_fails_before_anything_was_sent_needs_no_rebuild(
    policy: str, batch_rows: int
) -> None:
    settings = {"processing_error": policy, "dead_letter_topic": "dead"}
    with driver_with(strict_upper(), **settings) as driver:
        driver.batch_rows = batch_rows
        for value in (b"bad", b"a", b"b", b"bad", b"c", b"bad"):
            driver.input("in").pipe(b"k", value, at_ms=1)
        driver.run()
        driver.commit()
        assert [record.value for record in driver.output("out").read()] == [b"A", b"B", b"C"]
        assert driver.dropped() == {"processing": 3}
        assert driver.committed("in", 0).offset == 6
        if policy == "dead-letter":
            assert [entry.value for entry in driver.log("dead")[0]] == [b"bad"] * 3


def test_rows_that_are_tried_again_are_counted_once_and_those_that_fail_move_no_clock() -> None:
    keys: dict[bytes, Any] = {b"bad": 5, b"none": None}  # 5 is refused by the serde of the sink
    builder = StreamsBuilder()
    (
        builder.stream("in", Consumed(key=BYTES, value=BYTES))
        .group_by(lambda _key, value: keys.get(value, "a"), Grouped(key=STR, value=BYTES))
        .windowed_by(tumbling(size_ms=10))
        .count(Materialized("counts"))
    )
    with driver_with(builder.build(), processing_error="continue") as driver:
        for value, at_ms in ((b"a", 1), (b"none", 1), (b"bad", 100), (b"a", 2)):
            driver.input("in").pipe(b"k", value, at_ms=at_ms)
        driver.run()
        driver.commit()
        assert list(driver.stored("counts").values()) == [2]
        assert driver.dropped() == {"processing": 1, "null_key": 1}


def test_a_dead_letter_from_the_future_has_a_stamp_that_a_broker_takes() -> None:
    settings = {"timestamp_error": "dead-letter", "dead_letter_topic": "dead"}
    with driver_with(json_counts(), **settings) as driver:
        ahead_ms = driver.now_ms + 365 * 24 * 3_600_000
        driver.input("in").pipe_bytes(b"k", b"1", at_ms=ahead_ms)
        driver.run()
        (entry,) = driver.log("dead")[0]
        assert entry.stamp_ms == driver.now_ms
        assert ("sc-dead-timestamp", str(ahead_ms).encode()) in entry.headers
