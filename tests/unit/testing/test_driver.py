"""The driver does not hide what production does: batches, commits, crashes, several partitions."""

from pathlib import Path
from typing import Any, Literal

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
)
from streamcore.adapters.leveldb import LevelDbEngine
from streamcore.errors import TopologyError
from streamcore.model import TaskId
from streamcore.testing.driver import TopologyTestDriver

Moment = Literal["sends", "offsets"]


def counting() -> Topology:
    builder = StreamsBuilder()
    (
        builder.stream("words", Consumed(key=STR, value=STR))
        .group_by(lambda _key, word: word, Grouped(key=STR, value=STR))
        .count(Materialized("counts"))
        .to_stream()
        .to("out", Produced(key=STR, value=INT64))
    )
    return builder.build()


def pairs(driver: TopologyTestDriver) -> list[tuple[Any, Any]]:
    return [(r.key, r.value) for r in driver.output("out").read()]


def pipe(driver: TopologyTestDriver, *words: str) -> None:
    for word in words:
        driver.input("words").pipe(None, word, at_ms=1)


def test_results_wait_for_the_commit_and_the_last_one_wins() -> None:
    with TopologyTestDriver(counting()) as driver:
        pipe(driver, "a", "b", "a")
        assert pairs(driver) == []
        driver.commit()
        assert pairs(driver) == [("a", 2), ("b", 1)]


def test_commit_each_answers_every_record() -> None:
    with TopologyTestDriver(counting(), commit="each") as driver:
        pipe(driver, "a", "a")
        assert pairs(driver) == [("a", 1), ("a", 2)]


def test_there_are_as_many_tasks_as_partitions() -> None:
    with TopologyTestDriver(counting(), partitions=3) as driver:
        assert list(driver.tasks) == [TaskId(sub, p) for sub in (0, 1) for p in range(3)]


def test_exactly_once_a_crash_takes_back_what_was_not_committed() -> None:
    with TopologyTestDriver(counting(), exactly_once=True) as driver:
        pipe(driver, "a")
        driver.commit()
        pipe(driver, "a")
        driver.crash()
        assert driver.tasks == {}
        driver.restart()
        driver.run()
        driver.commit()
        assert pairs(driver) == [("a", 1), ("a", 2)]


@pytest.mark.parametrize("exactly_once", [False, True])
@pytest.mark.parametrize("wipe", [False, True])
@pytest.mark.parametrize("moment", ["sends", "offsets"])
def test_a_crash_within_a_commit(moment: Moment, wipe: bool, exactly_once: bool) -> None:
    """Sent but not committed: at least once each of the two hops repeats the record."""
    with TopologyTestDriver(counting(), exactly_once=exactly_once) as driver:
        pipe(driver, "a")
        driver.commit()
        pipe(driver, "a")
        driver.crash_in_commit(moment, wipe=wipe)
        driver.restart()
        driver.run()
        driver.commit()
        repeated = 2 if moment == "sends" and not exactly_once else 0
        assert driver.stored("counts") == {"a": 2 + repeated}


def test_one_worker_of_several_may_crash_while_the_others_go_on() -> None:
    with TopologyTestDriver(counting(), partitions=2) as driver:
        pipe(driver, "a", "a")
        driver.crash([task for task in driver.tasks if task.partition == 0])
        assert {task.partition for task in driver.tasks} == {1}
        driver.commit()
        driver.restart()
        driver.run()
        driver.commit()
        assert driver.stored("counts")["a"] >= 2


def test_steps_feed_one_task_at_a_time() -> None:
    with TopologyTestDriver(counting(), batch_rows=2) as driver:
        driver.auto_run = False
        pipe(driver, "a", "b", "c")
        first = driver.tasks[TaskId(0, 0)]
        moved = [driver.step(TaskId(0, 0)) for _ in range(3)]
        assert (moved, first.rows_processed) == ([True, True, False], 3)
        assert driver.tasks[TaskId(1, 0)].rows_processed == 0
        driver.run()
        assert driver.tasks[TaskId(1, 0)].rows_processed == 3


def test_a_wiped_disk_comes_back_from_the_changelog_whatever_the_engine(tmp_path: Path) -> None:
    def on_disk(task: TaskId, store: str) -> LevelDbEngine:
        return LevelDbEngine(tmp_path / str(task) / store)

    with TopologyTestDriver(counting(), engine=on_disk) as driver:
        pipe(driver, "a", "b", "a")
        driver.commit()
        for wipe in (False, True, False):
            driver.crash(wipe=wipe)
            driver.restart()
            assert driver.stored("counts") == {"a": 2, "b": 1}
        assert (tmp_path / "1_0" / "counts").is_dir()


def test_each_record_is_read_once_and_only_when_committed() -> None:
    with TopologyTestDriver(counting(), commit="each") as driver:
        pipe(driver, "a")
        assert len(pairs(driver)) == 1
        assert pairs(driver) == []
        raw = driver.log("out")[0]
        assert [(entry.key, entry.stamp_ms) for entry in raw] == [(b"a", 1)]


def test_what_a_real_start_refuses_the_driver_refuses() -> None:
    builder = StreamsBuilder()
    left = builder.stream("left", Consumed(key=STR, value=STR))
    merged = left.merge(builder.stream("right", Consumed(key=STR, value=STR)))
    merged.group_by_key().count(Materialized("counts"))
    with pytest.raises(TopologyError, match="left"):
        TopologyTestDriver(builder.build(), partitions={"left": 2, "right": 3})


def test_topics_have_their_serdes_or_are_given_some() -> None:
    with TopologyTestDriver(counting(), commit="each") as driver:
        pipe(driver, "a")
        changelog = driver.output("app-counts-changelog", STR, INT64)
        assert [(r.key, r.value) for r in changelog.read()] == [("a", 1)]
        with pytest.raises(AssertionError, match="give its serdes"):
            driver.output("nobody's")
