"""Clocks of source partitions, and what a repartition partition knows of its upstream tasks."""

from streamcore.model import NO_TIME_MS
from streamcore.operators.marker import Marker
from streamcore.operators.watermark import Mark
from streamcore.task.clocks import SourceClock, UpstreamClocks
from streamcore.task.config import TaskConfig


def test_a_clock_is_the_highest_stamp_so_far_for_each_row() -> None:
    clock = SourceClock(100)
    assert clock.read([3, 5, 4, 9], 0) == [3, 5, 5, 9]
    assert clock.read([1, 2], 0) == [9, 9]
    assert clock.ms == 9


def test_rows_in_order_share_one_column() -> None:
    clock = SourceClock(100)
    stamps_ms = [3, 3, 7]
    assert clock.read(stamps_ms, 0) is stamps_ms
    assert clock.read([7, 8], 0) == [7, 8]


def test_a_partition_falls_asleep_when_it_is_read_and_its_clock_stands_still() -> None:
    clock = SourceClock(100, moved_at_ms=1_000)
    assert clock.mark(1_099, caught_up=True) == Mark(NO_TIME_MS, False)
    assert clock.mark(1_100, caught_up=True) == Mark(NO_TIME_MS, True)
    assert clock.mark(1_100, caught_up=False) == Mark(NO_TIME_MS, False)
    clock.read([7], 1_150)
    assert clock.mark(1_249, caught_up=True) == Mark(7, False)
    clock.read([6], 1_240)  # out of order: the clock has not moved
    assert clock.mark(1_250, caught_up=True) == Mark(7, True)


def told(clocks: UpstreamClocks, task: int, ms: int, *, idle: bool, at_ms: int = 0) -> Mark:
    clocks.hear(Marker(task, clocks.tasks, Mark(ms, idle)), at_ms)
    return clocks.mark()


def test_a_task_that_has_not_spoken_holds_the_mark() -> None:
    clocks = UpstreamClocks(3, 1_000)
    told(clocks, 0, 50, idle=False)
    assert told(clocks, 1, 60, idle=True) == Mark(NO_TIME_MS, False)
    assert told(clocks, 2, 40, idle=False) == Mark(40, False)


def test_a_mark_of_a_task_never_goes_back_but_it_may_wake() -> None:
    """After a crash a task may begin behind what it has told: that stays told."""
    clocks = UpstreamClocks(1, 1_000)
    assert told(clocks, 0, 50, idle=True) == Mark(50, True)
    assert told(clocks, 0, 30, idle=False) == Mark(50, False)
    assert told(clocks, 0, 51, idle=False) == Mark(51, False)


def test_an_idle_task_lets_through_what_the_others_had_told_before_it_spoke() -> None:
    clocks = UpstreamClocks(2, 1_000)
    told(clocks, 0, 50, idle=False)
    assert told(clocks, 1, 20, idle=True) == Mark(50, False)
    assert told(clocks, 0, 60, idle=False) == Mark(50, False)
    assert told(clocks, 1, 20, idle=True) == Mark(60, False)
    assert told(clocks, 1, 20, idle=False) == Mark(60, False), "what was let through stays so"
    assert told(clocks, 0, 70, idle=False) == Mark(60, False)


def test_that_all_are_idle_is_believed_until_some_have_spoken_for_long_without_one() -> None:
    clocks = UpstreamClocks(2, 1_000)
    clocks.hear(Marker(1, 2, Mark(20, True)), 5_000)
    assert told(clocks, 0, 50, idle=True, at_ms=6_000).idle
    assert not told(clocks, 0, 50, idle=True, at_ms=6_001).idle
    assert told(clocks, 1, 20, idle=True, at_ms=6_002) == Mark(50, True)


def test_an_idle_mark_outlasts_the_time_between_two_of_them() -> None:
    for commit_interval_ms in (100, 1_000, 60_000, 600_000):
        for idle_after_ms in (100, 10_000, 60_000):
            config = TaskConfig(commit_interval_ms=commit_interval_ms, idle_after_ms=idle_after_ms)
            apart_ms = config.idle_renewal_ms + commit_interval_ms
            assert config.idle_lease_ms > apart_ms + commit_interval_ms


def test_marks_of_before_a_start_stay_but_nobody_is_idle() -> None:
    clocks = UpstreamClocks(2, 1_000, [50, 20])
    assert clocks.mark() == Mark(20, False)


def test_an_idle_mark_that_was_under_way_over_our_start_is_raised_to_nothing_of_before_it() -> None:
    """Nobody knows when the marks of the last commit were told: perhaps after it was said."""
    clocks = UpstreamClocks(2, 1_000, [50, 20])
    assert told(clocks, 1, 30, idle=True, at_ms=100) == Mark(30, False)
    told(clocks, 0, 50, idle=False, at_ms=200)
    assert told(clocks, 1, 30, idle=True, at_ms=150) == Mark(30, False), "said before the other"
    assert told(clocks, 1, 30, idle=True, at_ms=200) == Mark(50, False)


def test_more_upstream_tasks_than_known_join_the_vector() -> None:
    clocks = UpstreamClocks(1, 1_000, [50])
    assert told(clocks, 2, 70, idle=False) == Mark(NO_TIME_MS, False)
    assert told(clocks, 1, 60, idle=False) == Mark(50, False)
