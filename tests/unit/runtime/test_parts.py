"""The parts of a worker that need neither tasks nor a broker."""

from itertools import product

import pytest
from tests.unit.runtime.simulated import CHANGELOG, NAMES, REPARTITION, START_MS, word_count

from streamcore.errors import ProcessingError
from streamcore.model import OffsetAndMetadata, Position, TaskId, TopicPartition
from streamcore.runtime import internal_topics, lifecycle
from streamcore.runtime.backoff import Backoff
from streamcore.runtime.changelogs import Beginning, Span, beginning
from streamcore.runtime.deadline import Deadline
from streamcore.runtime.lifecycle import NEXT, Lifecycle, WorkerState
from streamcore.runtime.metrics import Metrics, Sample
from streamcore.runtime.ports import TopicSpec
from streamcore.runtime.troubles import Troubles
from streamcore.testing.clock import ManualClock
from streamcore.topology.graph import partition_counts

AT = TopicPartition("words", 0)
TASK = TaskId(0, 0)
CUT_OFF = "records from its position 2 on were deleted"


@pytest.mark.parametrize(("before", "after"), list(product(WorkerState, WorkerState)))
def test_only_the_moves_of_the_table_are_made(before: WorkerState, after: WorkerState) -> None:
    told: list[tuple[WorkerState, WorkerState]] = []
    life = Lifecycle([lambda old, new: told.append((old, new))])
    life.state = before
    if after is before:
        life.move(after)
        assert told == []
    elif after in NEXT[before]:
        life.move(after)
        assert (life.state, told) == (after, [(before, after)])
    else:
        with pytest.raises(AssertionError, match=f"{before.name} -> {after.name}"):
            life.move(after)


def test_every_state_can_come_to_an_end() -> None:
    reached = {WorkerState.NOT_RUNNING}
    for _ in WorkerState:
        reached |= {state for state, later in NEXT.items() if later & reached}
    assert reached == set(WorkerState)
    assert lifecycle.as_mermaid().startswith("stateDiagram-v2\n    CREATED --> ERROR")


@pytest.mark.parametrize(
    ("position", "span", "begins"),
    [
        (None, Span(3, 9, "a"), Beginning(3)),
        (Position(5, "a"), Span(3, 9, "a"), Beginning(5)),
        (Position(9, "a"), Span(3, 9, "a"), Beginning(9)),
        (Position(9, ""), Span(9, 9, "a"), Beginning(9)),
        (Position(5, "a"), Span(0, 9, "b"), Beginning(0, "the topic was deleted and made anew")),
        (Position(10, "a"), Span(0, 9, "a"), Beginning(0, "its position 10 lies beyond the end 9")),
        (
            Position(2, "a"),
            Span(3, 9, "a"),
            Beginning(3, CUT_OFF),
        ),
    ],
)
def test_where_a_store_begins(position: Position | None, span: Span, begins: Beginning) -> None:
    assert beginning(position, span, 0) == begins


@pytest.mark.parametrize(
    ("hours", "offset", "kept"),
    [(22, 5, True), (24, 5, False), (24, 9, True), (-1, 5, True)],
)
def test_a_store_left_for_longer_than_tombstones_live_is_rebuilt_unless_it_missed_nothing(
    hours: int, offset: int, kept: bool
) -> None:
    position = Position(offset, "a", written_ms=START_MS)
    begins = beginning(position, Span(3, 9, "a"), START_MS + hours * 3_600_000)
    assert begins.offset == (offset if kept else 3)
    assert (begins.discard is None) is kept
    assert kept or f"left {hours} h ago" in (begins.discard or "")


def test_the_internal_topics_of_the_word_count() -> None:
    topology = word_count()
    counts = partition_counts(topology, {"words": 6, "windowed-counts": 3})
    repartition, changelog = internal_topics.plan(topology, NAMES, counts)
    assert repartition == TopicSpec(
        REPARTITION,
        6,
        {
            "cleanup.policy": "delete",
            "retention.ms": "-1",
            "segment.bytes": "52428800",
            "message.timestamp.type": "CreateTime",
            "message.timestamp.after.max.ms": "9223372036854775807",
        },
    )
    assert (changelog.name, changelog.partitions) == (CHANGELOG, 6)
    assert changelog.settings["cleanup.policy"] == "compact"  # a replay must not empty it


def test_settings_that_lose_records_are_told() -> None:
    topology = word_count()
    counts = partition_counts(topology, {"words": 1, "windowed-counts": 1})
    wanted = internal_topics.plan(topology, NAMES, counts)
    found = {
        REPARTITION: {"cleanup.policy": "compact", "message.timestamp.type": "LogAppendTime"},
        CHANGELOG: {"cleanup.policy": "delete"},
    }
    problems = "\n".join(internal_topics.setting_problems(wanted, found))
    assert "cleanup.policy=compact and must have 'delete'" in problems
    assert "message.timestamp.type=LogAppendTime and must have CreateTime" in problems
    assert f"{CHANGELOG} has cleanup.policy=delete and must have 'compact'" in problems
    java = {CHANGELOG: {"cleanup.policy": "compact,delete", "retention.ms": "1"}}
    assert not list(internal_topics.setting_problems(wanted, java))
    assert len(list(internal_topics.setting_warnings(topology, NAMES, java))) == 1


def test_a_backoff_grows_and_is_forgotten_at_the_first_success() -> None:
    backoff, now_ms, waits = Backoff(), 0, []
    for _ in range(8):
        backoff.failed("away", now_ms)
        before_ms = now_ms
        while backoff.holds(now_ms):
            now_ms += 1
        waits.append(now_ms - before_ms)
    assert waits == [100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000]
    backoff.succeeded()
    backoff.failed("away", now_ms)
    assert not backoff.holds(now_ms + 100)


def test_the_shares_of_a_deadline_end_with_it() -> None:
    clock = ManualClock()
    deadline = Deadline(clock, 1_000)
    assert deadline.share_ms(600) == 600
    clock.advance(600)
    assert (deadline.share_ms(600), deadline.over) == (400, False)
    clock.advance(5_000)
    assert (deadline.left_ms, deadline.share_ms(600), deadline.over) == (0, 1, True)


def test_a_deadline_comes_no_later_when_the_clock_on_the_wall_is_set_back() -> None:
    clock = ManualClock()
    deadline = Deadline(clock, 1_000)
    clock.advance(-3_600_000)
    assert deadline.left_ms == 1_000
    clock.advance(1_000)
    assert deadline.over


def test_series_go_with_their_owner() -> None:
    metrics = Metrics()
    metrics.add("streamcore_rows_dropped_total", 2, task="0_0", reason="late")
    metrics.add("streamcore_rows_dropped_total", 3, task="0_0", reason="late")
    metrics.set("streamcore_task_watermark_ms", 7, task="0_1")
    metrics.set("streamcore_task_watermark_ms", 8, task="0_2")
    metrics.replace({"streamcore_task_watermark_ms": {(("task", "0_2"),): 9}})
    assert list(metrics.samples()) == [
        Sample("streamcore_rows_dropped_total", (("reason", "late"), ("task", "0_0")), 5),
        Sample("streamcore_task_watermark_ms", (("task", "0_2"),), 9),
    ]


def test_a_trouble_ends_when_a_commit_is_past_all_that_was_fetched() -> None:
    troubles = Troubles()
    troubles.note(TASK, ProcessingError(AT, 3, "batch"), {AT: 10}, exact=False)
    assert (troubles.row_by_row(TASK), dict(troubles.rows(TASK))) == (True, {})
    row = ProcessingError(AT, 7, "row")
    troubles.note(TASK, row, {AT: 12}, exact=True)
    assert dict(troubles.rows(TASK)) == {(AT, 7): row}
    troubles.relieve({AT: OffsetAndMetadata(11)})
    assert troubles.row_by_row(TASK)
    troubles.relieve({AT: OffsetAndMetadata(12)})
    assert not troubles.row_by_row(TASK)
