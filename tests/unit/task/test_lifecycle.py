"""The table of a task's states: every pair of states, and the calls that are legal in each."""

from itertools import product

import pytest

from streamcore import STR, Consumed, Grouped, Materialized, StreamsBuilder
from streamcore.model import Fetched, TaskId, TopicPartition
from streamcore.task import Task, TaskState
from streamcore.task.lifecycle import NEXT, as_mermaid, move
from streamcore.testing.driver import TopologyTestDriver

LEGAL = {
    (TaskState.CREATED, TaskState.RUNNING),
    (TaskState.CREATED, TaskState.CLOSED),
    (TaskState.RUNNING, TaskState.CLOSED),
}
ID = TaskId(0, 0)


@pytest.mark.parametrize(("now", "to"), list(product(TaskState, TaskState)))
def test_each_move_is_legal_or_a_bug(now: TaskState, to: TaskState) -> None:
    if (now, to) in LEGAL:
        assert move(ID, now, to) is to
    else:
        with pytest.raises(AssertionError, match=f"task 0_0: {now.name} -> {to.name}"):
            move(ID, now, to)


def test_the_picture_has_each_legal_move() -> None:
    arrows = as_mermaid().splitlines()[1:]
    assert len(arrows) == len(LEGAL) == sum(map(len, NEXT.values()))


@pytest.fixture
def task() -> Task:
    builder = StreamsBuilder()
    builder.stream("in", Consumed(key=STR, value=STR)).to_table(Materialized("t"))
    driver = TopologyTestDriver(builder.build())
    driver.auto_run = False
    driver.input("in").pipe("k", "v", at_ms=1)
    return driver.tasks[ID]


def test_a_closed_task_takes_and_does_nothing(task: Task) -> None:
    nothing = Fetched(TopicPartition("in", 0), [], [], [], [], None, 0)
    task.close(clean=True)
    for call in (
        lambda: task.accept(nothing),
        lambda: task.process(0, 1),
        lambda: task.punctuate(0),
        lambda: task.cut(0),
        lambda: task.restore("t", nothing, "id"),
    ):
        with pytest.raises(AssertionError):
            call()
    task.close(clean=True)  # twice is harmless
    assert task.state is TaskState.CLOSED


def test_a_task_does_not_close_clean_with_sends_waiting(task: Task) -> None:
    task.accept(Fetched(TopicPartition("in", 0), [0], [b"k"], [b"v"], [1], None, 1))
    task.process(0, 10)
    task.cut(0)
    with pytest.raises(AssertionError, match="closed clean with sends waiting"):
        task.close(clean=True)


def test_what_was_drained_is_the_owners(task: Task) -> None:
    task.accept(Fetched(TopicPartition("in", 0), [0], [b"k"], [b"v"], [1], None, 1))
    task.process(0, 10)
    assert task.cut(0) is not None
    assert [send.topic for send in task.drain()] == ["app-t-changelog"]
    assert task.drain() == []


def test_a_cut_may_be_repeated_until_it_is_durable(task: Task) -> None:
    task.accept(Fetched(TopicPartition("in", 0), [0], [b"k"], [b"v"], [1], None, 1))
    task.process(0, 10)
    first = task.cut(0)
    second = task.cut(0)
    assert first is not None
    assert second is not None
    assert (first.offsets, first.changelogs) == (second.offsets, second.changelogs)
    assert sum(len(send.keys) for send in task.drain()) == 1
    task.committed(second, {})
    assert task.cut(0) is None


def test_only_committed_repartition_records_may_be_purged() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", Consumed(key=STR, value=STR))
    grouped = stream.group_by(lambda _key, value: value, Grouped(key=STR))
    grouped.count(Materialized("counts"))
    with TopologyTestDriver(builder.build()) as driver:
        driver.input("in").pipe("k", "v", at_ms=1)
        counting = driver.tasks[TaskId(1, 0)]
        assert counting.purgeable() == {}
        driver.commit()
        at = TopicPartition("app-counts-repartition", 0)
        assert counting.purgeable() == {at: driver.committed(*at).offset}
        assert driver.tasks[TaskId(0, 0)].purgeable() == {}
