"""Every rule of event time against a model that only knows the source partitions.

The model reads the records partition by partition and knows nothing of tasks, batches, commits or
crashes. The driver runs the same records through several source and repartition partitions while
tasks advance at different speeds, commit and crash where Hypothesis likes.
"""

import base64
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

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
    Windows,
    hopping,
    tumbling,
    windowed_serde,
)
from streamcore.model import NO_TIME_MS, OffsetAndMetadata, TaskId
from streamcore.operators.marker import CLOCK_HEADER, read_marker, take_clocks
from streamcore.operators.watermark import Mark, combine
from streamcore.task import TaskConfig
from streamcore.task.metadata import LIMIT_CHARACTERS, TimeState, check_size, decode, encode
from streamcore.testing.driver import TopologyTestDriver

PARTITIONS = 3
IDLE_AFTER_MS = 1_000
REPARTITION = "app-counts-repartition"

thorough = settings(
    max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None
)

# --- topologies -----------------------------------------------------------------------------


TOPICS = ("words", "more")


def word_count(windows: Windows, *, final: bool, topics: int = 1) -> Topology:
    builder = StreamsBuilder()
    counts = (
        builder.stream(TOPICS[:topics], Consumed(key=STR, value=STR))
        .group_by(lambda _key, word: word, Grouped(key=STR, value=STR))
        .windowed_by(windows)
        .count(Materialized("counts"))
    )
    if final:
        counts = counts.suppress()
    serde = windowed_serde(STR, size_ms=windows.size_ms)
    counts.to_stream().to("out", Produced(key=serde, value=INT64))
    return builder.build()


def two_steps(first: Windows, second: Windows) -> Topology:
    """Finals of the first step, summed up over all words in windows of the second."""
    builder = StreamsBuilder()
    (
        builder.stream("words", Consumed(key=STR, value=STR))
        .group_by(lambda _key, word: word, Grouped(key=STR, value=STR))
        .windowed_by(first)
        .count(Materialized("first"))
        .suppress()
        .to_stream()
        .group_by(lambda key, _count: key.key[0], Grouped(key=STR, value=INT64))
        .windowed_by(second)
        .reduce(lambda old, new: old + new, Materialized("second"))
        .suppress()
        .to_stream()
        .to("out", Produced(key=windowed_serde(STR, size_ms=second.size_ms), value=INT64))
    )
    return builder.build()


# --- histories ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pipe:
    """A record; the partitions of the second topic follow those of the first."""

    partition: int
    word: str
    at_ms: int


@dataclass(frozen=True)
class Step:
    """One task (None: each, once) is fed and processes ``rows`` at most."""

    task: int | None
    rows: int


@dataclass(frozen=True)
class Commit:
    """All tasks, or (at least once only) those of one worker: the tasks of one partition."""

    worker: int | None


@dataclass(frozen=True)
class Crash:
    worker: int | None
    moment: Literal["between", "sends", "offsets"]
    wipe: bool


@dataclass(frozen=True)
class Wait:
    """The wall clock goes on."""

    ms: int


@dataclass(frozen=True)
class Settle:
    """Everything is processed and committed until nothing moves."""


Event = Pipe | Step | Commit | Crash | Wait | Settle
WORDS = ("a", "b", "aa", "c")

stamps = st.integers(0, 70) | st.sampled_from([9, 10, 17, 20, 27, 40])
"""Where windows end, and somewhere."""

pipes = st.builds(Pipe, st.integers(0, PARTITIONS - 1), st.sampled_from(WORDS), stamps)
steps = st.builds(Step, st.none() | st.integers(0, 99), st.sampled_from([1, 2, 100]))
workers = st.one_of(st.none(), st.integers(0, PARTITIONS - 1))
commits = st.builds(Commit, workers)
crashes = st.builds(Crash, workers, st.sampled_from(["between", "sends", "offsets"]), st.booleans())
waits = st.builds(Wait, st.sampled_from([IDLE_AFTER_MS // 2, IDLE_AFTER_MS]))


def histories(*more: st.SearchStrategy[Event]) -> st.SearchStrategy[list[Event]]:
    kinds: list[st.SearchStrategy[Event]] = [pipes, pipes, pipes, steps, steps, commits, *more]
    return st.lists(st.one_of(kinds), min_size=8, max_size=60)


windows_of = st.sampled_from(
    [
        tumbling(size_ms=10),
        tumbling(size_ms=10, grace_ms=7),
        hopping(size_ms=10, advance_ms=4),
        hopping(size_ms=10, advance_ms=5, grace_ms=3),
    ]
)


class Play:
    """A driver that a history is played on. Watermarks are checked after every event."""

    def __init__(
        self,
        topology: Topology,
        *,
        exactly_once: bool,
        event_time: str = "source",
        partitions: int = PARTITIONS,
    ) -> None:
        self.driver = TopologyTestDriver(
            topology,
            partitions=partitions,
            exactly_once=exactly_once,
            config=TaskConfig(event_time=event_time, idle_after_ms=IDLE_AFTER_MS),
        )
        self.driver.auto_run = False
        self.exactly_once = exactly_once
        self._committed_ms: dict[TaskId, int] = {}

    def play(self, events: Iterable[Event]) -> None:
        for event in events:
            self.one(event)
            self._check_watermarks()

    def one(self, event: Event) -> None:
        driver = self.driver
        match event:
            case Pipe(partition, word, at_ms):
                topic, own = TOPICS[partition // PARTITIONS], partition % PARTITIONS
                driver.input(topic).pipe(None, word, at_ms=at_ms, partition=own)
            case Step(task, rows):
                driver.batch_rows = rows
                every = list(driver.tasks)
                for chosen in every if task is None else [every[task % len(every)]]:
                    driver.step(chosen)
            case Commit(worker):
                driver.commit_once(self._tasks_of(worker))
            case Crash(worker, moment, wipe):
                only = self._tasks_of(worker)
                if moment == "between":
                    driver.crash(only, wipe=wipe)
                else:
                    driver.crash_in_commit(moment, only, wipe=wipe)
                driver.restart()
            case Wait(ms):
                driver.now_ms += ms
            case Settle():
                driver.run()
                driver.commit()

    def _tasks_of(self, worker: int | None) -> list[TaskId] | None:
        if worker is None or self.exactly_once:
            return None
        return [task for task in self.driver.tasks if task.partition == worker]

    def _check_watermarks(self) -> None:
        for task_id, task in self.driver.tasks.items():
            committed_ms = self._committed_watermark(task_id)
            assert task.watermark_ms >= committed_ms, "a watermark was lost"
            assert committed_ms >= self._committed_ms.get(task_id, NO_TIME_MS), "it went back"
            self._committed_ms[task_id] = committed_ms

    def _committed_watermark(self, task_id: TaskId) -> int:
        states = [
            decode(self.driver.committed(at.topic, at.partition).metadata)
            for at in self.driver.tasks[task_id].inputs
        ]
        return min((ms for state in states for ms in state.watermarks_ms), default=NO_TIME_MS)


# --- the model ------------------------------------------------------------------------------

Cell = tuple[str, int]
"""A word and the start of a window."""


@dataclass
class Model:
    """Counts by rule: a record is late for a window iff end + grace <= its partition's clock."""

    windows: Windows
    partitions: int = PARTITIONS
    counts: Counter[Cell] = field(default_factory=Counter)
    stamps_ms: dict[Cell, int] = field(default_factory=dict)
    late: int = 0
    clocks_ms: dict[int, int] = field(default_factory=dict)

    def add(self, record: Pipe) -> None:
        clock_ms = max(self.clocks_ms.get(record.partition, NO_TIME_MS), record.at_ms)
        self.clocks_ms[record.partition] = clock_ms
        start_ms = 0
        while start_ms <= record.at_ms:
            end_ms = start_ms + self.windows.size_ms
            if record.at_ms < end_ms:
                if end_ms + self.windows.grace_ms <= clock_ms:
                    self.late += 1
                else:
                    cell = (record.word, start_ms)
                    self.counts[cell] += 1
                    self.stamps_ms[cell] = max(self.stamps_ms.get(cell, -1), record.at_ms)
            start_ms += self.windows.advance_ms

    @property
    def watermark_ms(self) -> int:
        """With no partition idle: the clock of the one furthest behind."""
        return min(self.clocks_ms.get(p, NO_TIME_MS) for p in range(self.partitions))

    def closed(self) -> dict[Cell, int]:
        return {
            (word, start_ms): count
            for (word, start_ms), count in self.counts.items()
            if self.windows.closes_ms(start_ms) <= self.watermark_ms
        }


def model_of(events: Iterable[Event], windows: Windows) -> Model:
    model = Model(windows)
    for event in events:
        if isinstance(event, Pipe):
            model.add(event)
    return model


def stored(driver: TopologyTestDriver) -> dict[Cell, int]:
    return {
        (windowed.key, windowed.window.start_ms): count
        for windowed, count in driver.stored("counts").items()
    }


def finals(driver: TopologyTestDriver) -> dict[Cell, list[int]]:
    """Return what was sent for each cell, in order, since the last call."""
    found: dict[Cell, list[int]] = defaultdict(list)
    for record in driver.output("out").read():
        assert isinstance(record.key, Windowed)
        found[record.key.key, record.key.window.start_ms].append(record.value)
    return dict(found)


# --- (a) lateness ---------------------------------------------------------------------------


@thorough
@given(histories(crashes, waits), windows_of)
def test_lateness_depends_on_nothing_but_the_source_partition(
    events: list[Event], windows: Windows
) -> None:
    """Exactly once: exact, whatever the interleaving, batches, commits, crashes, silence."""
    play = Play(word_count(windows, final=False), exactly_once=True)
    play.play([*events, Settle()])
    assert stored(play.driver) == dict(model_of(events, windows).counts)


@thorough
@given(histories(crashes, waits), windows_of)
def test_under_at_least_once_only_repeats_are_added_and_late_stays_late(
    events: list[Event], windows: Windows
) -> None:
    play = Play(word_count(windows, final=False), exactly_once=False)
    play.play([*events, Settle()])
    exact = model_of(events, windows).counts
    found = stored(play.driver)
    assert set(found) == set(exact)
    assert all(found[cell] >= count for cell, count in exact.items())
    if not any(isinstance(event, Crash) for event in events):
        assert found == dict(exact)


@thorough
@given(histories(waits), windows_of, st.booleans())
def test_each_window_that_a_record_is_late_for_is_counted(
    events: list[Event], windows: Windows, exactly_once: bool
) -> None:
    play = Play(word_count(windows, final=False), exactly_once=exactly_once)
    play.play([*events, Settle()])
    late = model_of(events, windows).late
    assert play.driver.dropped() == ({"late": late} if late else {})


# --- (b) final results ----------------------------------------------------------------------


@pytest.mark.parametrize("topics", [1, 2])
@thorough
@given(st.data(), windows_of)
def test_finals_come_once_complete_and_as_soon_as_their_time_has_passed(
    topics: int, data: st.DataObject, windows: Windows
) -> None:
    """Also where a task reads two topics, whose partitions have a clock each."""
    spread = st.builds(
        Pipe,
        st.integers(0, topics * PARTITIONS - 1),
        st.sampled_from(WORDS),
        stamps,
    )
    events = data.draw(histories(crashes, st.just(Settle()), spread, spread, spread))
    play = Play(word_count(windows, final=True, topics=topics), exactly_once=True)
    model, sent = Model(windows, topics * PARTITIONS), dict[Cell, list[int]]()
    for event in [*events, Settle()]:
        play.play([event])
        if isinstance(event, Pipe):
            model.add(event)
        for cell, counts in finals(play.driver).items():
            sent.setdefault(cell, []).extend(counts)
        assert all(counts == [model.counts[cell]] for cell, counts in sent.items())
        if isinstance(event, Settle):
            assert {cell: counts[0] for cell, counts in sent.items()} == model.closed()
    assert "window_closed" not in play.driver.dropped()


@thorough
@given(histories(crashes, st.just(Settle())), windows_of)
def test_under_at_least_once_no_final_is_lower_than_the_truth_or_than_one_before(
    events: list[Event], windows: Windows
) -> None:
    play = Play(word_count(windows, final=True), exactly_once=False)
    model, sent = Model(windows), dict[Cell, list[int]]()
    crashed = False
    for event in [*events, Settle()]:
        play.play([event])
        crashed = crashed or isinstance(event, Crash)
        if isinstance(event, Pipe):
            model.add(event)
        for cell, counts in finals(play.driver).items():
            sent.setdefault(cell, []).extend(counts)
        for cell, counts in sent.items():
            assert counts[0] >= model.counts[cell]
            assert counts == sorted(counts)
            assert crashed or len(counts) == 1
        if isinstance(event, Settle):
            assert set(sent) == set(model.closed())


def feed(play: Play, records: Sequence[tuple[int, str, int]]) -> None:
    play.play([*(Pipe(*record) for record in records), Settle()])


@given(st.booleans())
def test_a_final_comes_in_the_commit_that_follows_the_last_partition(exactly_once: bool) -> None:
    play = Play(word_count(tumbling(size_ms=10), final=True), exactly_once=exactly_once)
    feed(play, [(0, "a", 1), (1, "a", 2), (2, "a", 3), (0, "b", 10), (1, "b", 10), (2, "a", 9)])
    assert finals(play.driver) == {}
    feed(play, [(2, "b", 10)])
    assert finals(play.driver) == {("a", 0): [4]}


@given(st.booleans())
def test_a_window_that_closes_at_the_watermark_itself_is_sent_once(exactly_once: bool) -> None:
    """Time goes on in the very next commit, while the window is still there to be forgotten."""
    play = Play(word_count(tumbling(size_ms=10), final=True), exactly_once=exactly_once)
    for at_ms in (1, 10, 20, 30, 40):
        play.play([Pipe(p, "a", at_ms) for p in range(PARTITIONS)])
        play.driver.run()
        play.driver.commit_once()
    play.play([Settle()])
    assert finals(play.driver) == {("a", 0): [3], ("a", 10): [3], ("a", 20): [3], ("a", 30): [3]}


def test_what_was_closed_is_not_restored() -> None:
    """Its final is committed, its tombstone not yet written: the changelog still holds it."""
    play = Play(word_count(tumbling(size_ms=10), final=True), exactly_once=True)
    play.play([Pipe(p, word, at_ms) for word, at_ms in (("a", 1), ("b", 12)) for p in range(3)])
    play.driver.run()
    play.driver.commit_once()
    play.driver.run()
    play.driver.commit_once()
    assert finals(play.driver) == {("a", 0): [3]}
    play.driver.crash(wipe=True)
    play.driver.restart()
    assert stored(play.driver) == {("b", 10): 3}


@given(st.booleans())
def test_a_final_that_a_crash_repeats_is_not_lower(wipe: bool) -> None:
    """It was sent, the offsets were not committed: what it counts must still be there."""
    play = Play(word_count(tumbling(size_ms=10), final=True), exactly_once=False)
    feed(play, [(0, "a", 1), (0, "a", 2), (1, "c", 3), (2, "c", 3)])
    play.play([Pipe(0, "a", 3), *(Pipe(p, "b", 10) for p in range(PARTITIONS)), Step(None, 9)])
    splitting, counting = (
        [task for task in play.driver.tasks if task.sub_topology == sub] for sub in (0, 1)
    )
    play.driver.commit_once(splitting)
    play.driver.run()
    play.driver.crash_in_commit("sends", counting, wipe=wipe)
    play.driver.restart()
    play.play([Settle()])
    first, again = finals(play.driver)["a", 0]
    assert (first, again >= first) == (3, True)


# --- (c) idle partitions ---------------------------------------------------------------------

ONE_SILENT = [(0, "a", 1), (1, "a", 1), (2, "a", 1), (0, "b", 50), (1, "b", 50)]


@given(st.booleans())
def test_a_silent_partition_holds_windows_until_it_is_idle(exactly_once: bool) -> None:
    play = Play(word_count(tumbling(size_ms=10), final=True), exactly_once=exactly_once)
    feed(play, ONE_SILENT)
    play.play([Wait(IDLE_AFTER_MS - 1), Settle()])
    assert finals(play.driver) == {}
    play.play([Wait(1), Settle()])
    assert finals(play.driver) == {("a", 0): [3]}


@given(st.booleans())
def test_a_partition_that_never_had_a_record_is_idle_like_any_other(exactly_once: bool) -> None:
    play = Play(word_count(tumbling(size_ms=10), final=True), exactly_once=exactly_once)
    feed(play, [(0, "a", 1), (0, "b", 50), (1, "b", 50)])
    assert finals(play.driver) == {}
    play.play([Wait(IDLE_AFTER_MS), Pipe(0, "c", 51), Pipe(1, "c", 51), Settle()])
    assert finals(play.driver) == {("a", 0): [1]}


@given(st.booleans())
def test_when_all_are_idle_the_highest_clock_closes_windows(exactly_once: bool) -> None:
    play = Play(word_count(tumbling(size_ms=10), final=True), exactly_once=exactly_once)
    feed(play, [(0, "a", 1), (1, "a", 12), (2, "a", 31)])
    play.play([Wait(IDLE_AFTER_MS), Settle(), Wait(IDLE_AFTER_MS), Settle()])
    assert finals(play.driver) == {("a", 0): [1], ("a", 10): [1]}


def test_an_idle_partition_that_has_lost_its_owner_holds_the_watermark() -> None:
    """What arrives there while nobody reads it is in order, and so it counts."""
    play = Play(word_count(tumbling(size_ms=10), final=True), exactly_once=False)
    feed(play, ONE_SILENT)
    play.play([Wait(IDLE_AFTER_MS), Settle()])
    assert finals(play.driver) == {("a", 0): [3]}
    lost = TaskId(0, 2)
    play.driver.crash([lost])
    feed(play, [(0, "b", 90), (1, "b", 90)])
    assert finals(play.driver) == {}, "nobody speaks for partition 2"
    play.driver.restart()
    feed(play, [(2, "a", 55), (2, "a", 90)])
    assert play.driver.dropped() == {}
    assert finals(play.driver) == {("b", 50): [2], ("a", 50): [1]}


@given(st.booleans())
def test_finals_drop_what_an_awakened_partition_brings_for_closed_windows(
    exactly_once: bool,
) -> None:
    play = Play(word_count(tumbling(size_ms=10), final=True), exactly_once=exactly_once)
    feed(play, ONE_SILENT)
    play.play([Wait(IDLE_AFTER_MS), Settle()])
    finals(play.driver)
    feed(play, [(2, "a", 2), (2, "a", 55)])
    assert play.driver.dropped() == {"window_closed": 1}
    feed(play, [(0, "c", 60), (1, "c", 60), (2, "c", 60)])
    assert finals(play.driver) == {("b", 50): [2], ("a", 50): [1]}


@given(st.sampled_from([59, 60]))
def test_a_window_is_closed_from_its_very_end_on(clock_ms: int) -> None:
    play = Play(word_count(tumbling(size_ms=10), final=True), exactly_once=True)
    feed(play, [(0, "a", clock_ms), (1, "a", clock_ms)])
    play.play([Wait(IDLE_AFTER_MS), Pipe(0, "b", clock_ms), Pipe(1, "b", clock_ms), Settle()])
    feed(play, [(2, "c", 55)])
    assert play.driver.dropped() == ({} if clock_ms == 59 else {"window_closed": 1})


@given(st.booleans())
def test_updates_count_what_an_awakened_partition_brings(exactly_once: bool) -> None:
    play = Play(word_count(tumbling(size_ms=10), final=False), exactly_once=exactly_once)
    feed(play, ONE_SILENT)
    play.play([Wait(IDLE_AFTER_MS), Settle()])
    feed(play, [(2, "a", 2), (2, "a", 55)])
    assert play.driver.dropped() == {}
    assert stored(play.driver) == {("a", 0): 4, ("b", 50): 2, ("a", 50): 1}


@given(st.booleans())
def test_an_awakened_partition_holds_windows_again(exactly_once: bool) -> None:
    """In front of its first row it says so; nothing may close on what it has said before."""
    play = Play(word_count(tumbling(size_ms=10), final=True), exactly_once=exactly_once)
    feed(play, ONE_SILENT)
    play.play([Wait(IDLE_AFTER_MS), Settle()])
    finals(play.driver)
    feed(play, [(2, "c", 51), (0, "d", 90), (1, "d", 90)])
    assert finals(play.driver) == {}
    feed(play, [(2, "c", 59), (2, "d", 90)])
    assert finals(play.driver) == {("b", 50): [2], ("c", 50): [2]}


@given(st.booleans(), st.booleans(), st.sampled_from(["between", "sends", "offsets"]))
def test_an_idle_mark_is_earned_again_after_a_restart(
    exactly_once: bool, wipe: bool, moment: Literal["between", "sends", "offsets"]
) -> None:
    play = Play(word_count(tumbling(size_ms=10), final=True), exactly_once=exactly_once)
    feed(play, ONE_SILENT)
    play.play([Wait(IDLE_AFTER_MS), Settle(), Crash(None, moment, wipe)])
    feed(play, [(0, "c", 90), (1, "c", 90)])
    assert ("b", 50) not in finals(play.driver)
    play.play([Wait(IDLE_AFTER_MS), Settle()])
    assert finals(play.driver) == {("b", 50): [2]}


@given(st.booleans())
def test_a_restarted_task_trusts_no_idle_mark_of_before(wipe: bool) -> None:
    """While the owner of the silent partition has not come back, nobody knows what waits there."""
    play = Play(word_count(tumbling(size_ms=10), final=True), exactly_once=False)
    feed(play, ONE_SILENT)
    play.play([Wait(IDLE_AFTER_MS), Settle(), Crash(None, "between", wipe)])
    finals(play.driver)
    play.play([Pipe(2, "b", 51), Pipe(0, "c", 90), Pipe(1, "c", 90)])
    awake = others(play, TaskId(0, 2))
    for _ in range(6):  # the task of partition 2 is slower than all others
        for task in awake:
            play.driver.step(task)
        play.driver.commit_once(awake)
    assert finals(play.driver) == {}
    play.play([Pipe(2, "c", 90), Settle()])
    assert finals(play.driver) == {("b", 50): [3]}
    assert play.driver.dropped() == {}


# --- (d) who holds the watermark ---------------------------------------------------------------


def others(play: Play, absent: TaskId) -> list[TaskId]:
    return [task for task in play.driver.tasks if task != absent]


def test_a_task_that_never_spoke_holds_the_watermark() -> None:
    play = Play(word_count(tumbling(size_ms=10), final=True), exactly_once=False)
    play.play([Pipe(p, "a", at_ms) for at_ms in (1, 60) for p in range(PARTITIONS)])
    absent = TaskId(0, 2)
    for wait_ms in (0, 3 * IDLE_AFTER_MS, 3 * IDLE_AFTER_MS):
        play.play([Wait(wait_ms)])
        for _ in range(4):
            for task in others(play, absent):
                play.driver.step(task)
            play.driver.commit_once(others(play, absent))
    assert finals(play.driver) == {}
    assert all(play.driver.tasks[TaskId(1, p)].watermark_ms == NO_TIME_MS for p in range(3))
    play.play([Settle()])
    assert finals(play.driver) == {("a", 0): [3]}


def test_a_partition_without_an_owner_holds_the_watermark_even_if_it_was_idle() -> None:
    play = Play(word_count(tumbling(size_ms=10), final=True), exactly_once=False)
    feed(play, ONE_SILENT)
    play.play([Wait(IDLE_AFTER_MS), Settle()])
    finals(play.driver)
    absent = TaskId(0, 2)
    play.driver.crash([absent])
    play.play([Wait(3 * IDLE_AFTER_MS), Pipe(0, "c", 90), Pipe(1, "c", 90), Pipe(2, "b", 51)])
    play.driver.run()
    play.driver.commit()
    assert finals(play.driver) == {}
    play.driver.restart()
    play.play([Pipe(2, "c", 90), Settle()])
    assert finals(play.driver) == {("b", 50): [3]}


@given(st.booleans())
def test_a_restarted_task_remembers_what_upstream_tasks_have_told(wipe: bool) -> None:
    """The one that is far ahead has nothing new to say, and need not say it again."""
    play = Play(word_count(tumbling(size_ms=10), final=True), exactly_once=False)
    feed(play, [(0, "a", 60), (1, "a", 15), (2, "a", 15)])
    counting = [task for task in play.driver.tasks if task.sub_topology == 1]
    play.driver.crash(counting, wipe=wipe)
    play.driver.restart()
    feed(play, [(1, "b", 59), (2, "b", 59)])
    assert finals(play.driver) == {("a", 10): [2]}


def test_unread_records_keep_a_partition_awake() -> None:
    play = Play(word_count(tumbling(size_ms=10), final=True), exactly_once=False)
    feed(play, ONE_SILENT)
    play.play([Pipe(2, "a", 5), Pipe(2, "a", 6), Step(2, 1), Wait(2 * IDLE_AFTER_MS)])
    play.driver.batch_rows = 100
    for _ in range(3):
        play.driver.commit_once()
        for task in others(play, TaskId(0, 2)):
            play.driver.step(task)
    assert finals(play.driver) == {}
    play.play([Settle(), Wait(IDLE_AFTER_MS), Settle()])
    assert finals(play.driver) == {("a", 0): [5]}


def test_while_a_partition_stays_idle_windows_go_on_closing() -> None:
    """Its mark is renewed, for ever, although nothing happens there."""
    play = Play(word_count(tumbling(size_ms=10), final=True), exactly_once=False)
    feed(play, ONE_SILENT)
    play.play([Wait(IDLE_AFTER_MS), Settle()])
    for number in range(1, 8):
        at_ms = 50 + 10 * number
        play.play([Pipe(0, "c", at_ms), Pipe(1, "c", at_ms), Wait(IDLE_AFTER_MS - 1), Settle()])
    assert max(start_ms for _, start_ms in finals(play.driver)) == 110


# --- (e) watermarks ------------------------------------------------------------------------------


@thorough
@given(histories(crashes, waits, st.just(Settle())), windows_of, st.booleans())
def test_watermarks_never_go_back(
    events: list[Event], windows: Windows, exactly_once: bool
) -> None:
    """Within a life, and never behind what was committed by the life before."""
    play = Play(word_count(windows, final=True), exactly_once=exactly_once)
    highest_ms: dict[TaskId, int] = {}
    for event in events:
        play.play([event])
        if isinstance(event, Crash):
            highest_ms.clear()
        for task_id, task in play.driver.tasks.items():
            assert task.watermark_ms >= highest_ms.get(task_id, NO_TIME_MS)
            highest_ms[task_id] = task.watermark_ms


@thorough
@given(histories(crashes, waits), windows_of)
def test_nothing_is_lost_without_a_word(events: list[Event], windows: Windows) -> None:
    """Each record is in a final, in an open window, or in a counter, once for each of its windows.

    Counters die with their tasks, so what a crash may hide is added up before it.
    """
    quiet = [event for event in events if not isinstance(event, Crash)]
    play = Play(word_count(windows, final=True), exactly_once=True)
    sent: Counter[Cell] = Counter()
    play.play([*quiet, Settle()])
    for cell, counts in finals(play.driver).items():
        assert len(counts) == 1
        sent[cell] += counts[0]
    model = model_of(quiet, windows)
    open_cells = {cell: n for cell, n in stored(play.driver).items() if cell not in sent}
    dropped = play.driver.dropped()
    assert dropped.get("late", 0) == model.late
    assert sum(sent.values()) + sum(open_cells.values()) + dropped.get("window_closed", 0) == sum(
        model.counts.values()
    )
    assert all(model.counts[cell] >= count for cell, count in sent.items())


# --- (f) two windowed steps -----------------------------------------------------------------------

STEPS = [
    (tumbling(size_ms=10), tumbling(size_ms=10)),
    (tumbling(size_ms=10, grace_ms=5), tumbling(size_ms=10)),
    (tumbling(size_ms=10), tumbling(size_ms=5)),
    (tumbling(size_ms=10, grace_ms=30), tumbling(size_ms=30)),
    (hopping(size_ms=10, advance_ms=4), tumbling(size_ms=8)),
]


@thorough
@given(histories(crashes, st.just(Settle())), st.sampled_from(STEPS))
def test_two_windowed_steps_in_a_row_lose_no_final(
    events: list[Event], both: tuple[Windows, Windows]
) -> None:
    first, second = both
    play = Play(two_steps(first, second), exactly_once=True)
    play.play([*events, Settle()])
    model = model_of(events, first)
    held_ms = first.oldest_open_ms(model.watermark_ms)
    expected: Counter[Cell] = Counter()
    for (word, start_ms), count in model.closed().items():
        stamp_ms = model.stamps_ms[word, start_ms]
        for second_start_ms in second.starts(stamp_ms):
            if second.closes_ms(second_start_ms) <= held_ms:
                expected[word[0], second_start_ms] += count
    assert finals(play.driver) == {cell: [count] for cell, count in expected.items()}
    dropped = {
        reason
        for task in play.driver.tasks.values()
        if task.id.sub_topology == 2
        for reason in task.counters
    }
    assert dropped == set()


# --- (g) what travels --------------------------------------------------------------------------


@thorough
@given(st.lists(pipes, max_size=30), windows_of, st.integers(1, 7))
def test_a_clock_travels_only_where_it_can_decide(
    records: list[Pipe], windows: Windows, batch_rows: int
) -> None:
    play = Play(word_count(windows, final=False), exactly_once=False)
    play.driver.batch_rows = batch_rows
    play.play([*records, Settle()])
    expected: Counter[tuple[str, int, int]] = Counter()
    model = Model(windows)
    for record in records:
        model.add(record)
        clock_ms = model.clocks_ms[record.partition]
        first_ms = windows.starts(record.at_ms).start
        if windows.closes_ms(first_ms) <= clock_ms:
            expected[record.word, record.at_ms, clock_ms] += 1
    found: Counter[tuple[str, int, int]] = Counter()
    for entries in play.driver.log(REPARTITION).values():
        for entry in entries:
            if CLOCK_HEADER in dict(entry.headers):
                clocks_ms, rest = take_clocks([entry.headers], [entry.stamp_ms])
                assert rest is None
                assert entry.key is not None
                found[entry.key.decode(), entry.stamp_ms, clocks_ms[0]] += 1
    assert found == expected


def test_markers_are_sent_where_something_can_close_and_not_for_each_step_of_a_clock() -> None:
    play = Play(word_count(tumbling(size_ms=1_000), final=True), exactly_once=True)
    feed(play, [(p, "a", 1) for p in range(PARTITIONS)])

    def markers() -> int:
        return sum(
            read_marker(entry.headers) is not None
            for entries in play.driver.log(REPARTITION).values()
            for entry in entries
        )

    before = markers()
    for at_ms in range(2, 50):
        feed(play, [(p, "a", at_ms) for p in range(PARTITIONS)])
    assert markers() == before
    feed(play, [(0, "a", 1_000)])
    assert markers() == before + PARTITIONS


# --- (h) metadata ------------------------------------------------------------------------------


def as_if_ours(packed: bytes) -> str:
    return base64.b64encode(b"S" + packed).decode()


times = st.integers(NO_TIME_MS, 10_000_000_000_000)


@given(times, st.lists(times, max_size=300), st.lists(times, max_size=5), st.integers(0, 2**43))
def test_metadata_reads_back_as_it_was_written(
    clock_ms: int, upstream_ms: list[int], watermarks_ms: list[int], moved_ms: int
) -> None:
    state = TimeState(clock_ms, tuple(upstream_ms), tuple(watermarks_ms), moved_ms)
    assert decode(encode(state)) == state
    assert decode(encode(state) + "\0") == state  # librdkafka adds a NUL


@given(st.lists(times, min_size=256, max_size=256), st.lists(times, min_size=4, max_size=4))
def test_metadata_of_256_partitions_fits(upstream_ms: list[int], watermarks_ms: list[int]) -> None:
    check_size("topic", 256, 4)
    worst = TimeState(
        10_000_000_000_000, tuple(upstream_ms), tuple(watermarks_ms), 10_000_000_000_000
    )
    assert len(encode(worst)) <= LIMIT_CHARACTERS


@given(st.text(max_size=40) | st.binary(max_size=40).map(as_if_ours))
def test_foreign_metadata_is_read_as_nothing_known_or_as_something_small(text: str) -> None:
    state = decode(text)
    assert len(state.upstream_ms) <= len(text)
    assert len(state.watermarks_ms) <= len(text)


# --- (i) Kafka Streams' own rule ----------------------------------------------------------------


only_partition = st.builds(Pipe, st.just(0), st.sampled_from(WORDS), stamps)


@thorough
@given(
    st.lists(
        st.one_of(only_partition, only_partition, steps, steps, commits, crashes), max_size=60
    ),
    windows_of,
    st.booleans(),
)
def test_with_one_partition_kafka_streams_rule_is_the_same(
    events: list[Event], windows: Windows, final: bool
) -> None:
    results = []
    for event_time in ("source", "operator"):
        topology = word_count(windows, final=final)
        play = Play(topology, exactly_once=True, event_time=event_time, partitions=1)
        play.play([*events, Settle()])
        live = {} if final else stored(play.driver)
        results.append((live, finals(play.driver) if final else {}))
    assert results[0] == results[1]


def test_kafka_streams_rule_survives_a_restart_here() -> None:
    """There it begins at -1 again, and late records are accepted until the first newer one."""
    topology = word_count(tumbling(size_ms=10), final=False)
    play = Play(topology, exactly_once=True, event_time="operator", partitions=1)
    feed(play, [(0, "a", 25)])
    play.play([Crash(None, "between", wipe=True)])
    feed(play, [(0, "a", 5)])
    assert play.driver.dropped() == {"late": 1}


def test_with_partitions_an_hour_apart_kafka_streams_rule_loses_words_and_ours_does_not() -> None:
    hour_ms = 3_600_000
    records = [
        Pipe(partition, "a", partition * hour_ms + number * 100)
        for partition in range(PARTITIONS)
        for number in range(20)
    ]
    counted = {}
    for event_time in ("source", "operator"):
        play = Play(
            word_count(tumbling(size_ms=1_000), final=False),
            exactly_once=False,
            event_time=event_time,
        )
        play.play(records)
        for task in (TaskId(0, 2), TaskId(0, 1), TaskId(0, 0)):  # the newest is fastest
            play.play([Step(sorted(play.driver.tasks).index(task), 100)])
        play.play([Settle()])
        counted[event_time] = sum(stored(play.driver).values())
    assert counted["source"] == len(records)
    assert counted["operator"] < len(records)


# --- combine ------------------------------------------------------------------------------------


marks = st.builds(Mark, times, st.booleans())


@given(st.lists(st.lists(marks, min_size=1, max_size=4), min_size=1, max_size=4))
@example([[Mark(5, True), Mark(9, False)], [Mark(2, True)]])
def test_marks_combine_alike_however_they_are_grouped(groups: list[list[Mark]]) -> None:
    flat = [mark for group in groups for mark in group]
    assert combine(combine(group) for group in groups) == combine(flat)
    assert combine(reversed(flat)) == combine(flat)


@given(st.lists(marks, min_size=1, max_size=6))
def test_the_combined_mark_is_the_lowest_awake_or_the_highest_of_all_asleep(
    given_marks: list[Mark],
) -> None:
    awake = [mark.ms for mark in given_marks if not mark.idle]
    asleep = [mark.ms for mark in given_marks if mark.idle]
    expected = Mark(min(awake), False) if awake else Mark(max(asleep), True)
    assert combine(given_marks) == expected


def test_an_unread_offset_is_a_start() -> None:
    driver = Play(word_count(tumbling(size_ms=10), final=False), exactly_once=False).driver
    assert driver.committed("words", 0) == OffsetAndMetadata(0)
