"""How much a worker does before the cluster has taken what came of it."""

from tests.unit.runtime.simulated import START_MS, Cluster

from streamcore.model import TaskId
from streamcore.runtime.pace import (
    BEGIN_BYTES,
    BEGIN_ROWS,
    LEAST_BYTES,
    LEAST_ROWS,
    MEASURED_MS,
    Pace,
)
from streamcore.task import Task

ROWS_MAX = 10_000


class Line:
    """What lies behind a worker: so many bytes a second, and so many more at once."""

    def __init__(self, per_s: int, burst: int = 0) -> None:
        self.now_ms = START_MS
        self.pace = Pace(ROWS_MAX)
        self._per_s, self._burst = per_s, burst

    def commit(self, dirty_bytes: int) -> int:
        """Commit so much; return how long it took."""
        self.pace.cut(dirty_bytes, self.now_ms)
        at_once = min(dirty_bytes, self._burst)
        self._burst -= at_once
        took_ms = 20 + (dirty_bytes - at_once) * 1_000 // self._per_s
        self.now_ms += took_ms
        self.pace.committed(self.now_ms)
        return took_ms

    def fill(self) -> int:
        return self.commit(self.pace.bytes_max)


def test_what_goes_through_at_once_is_in_nobodys_way_after_a_few_commits() -> None:
    line = Line(per_s=200_000_000)
    commits = 0
    while line.pace.bytes_max < 16 << 20:
        line.fill()
        commits += 1
    assert commits < 15
    line.now_ms += 600_000
    line.commit(1_000)
    assert line.pace.bytes_max >= 16 << 20


def test_whatever_a_quota_lets_pass_no_commit_lasts_much_longer_than_it_may() -> None:
    for per_s in (16_000, 64_000, 256_000, 1_000_000):
        line = Line(per_s, burst=10 * per_s)
        took_ms = [line.fill() for _ in range(40)]
        assert max(took_ms[1:]) <= MEASURED_MS * 2
        assert max(took_ms[-10:]) <= MEASURED_MS * 1.3
        assert line.pace.bytes_max >= min(BEGIN_BYTES, 2 * per_s)


def test_one_slow_commit_is_enough_to_do_less() -> None:
    line = Line(per_s=100_000_000)
    while line.pace.bytes_max < 16 << 20:
        line.fill()
    line.pace.cut(8 << 20, line.now_ms)
    line.pace.cut(0, line.now_ms + 5_000)  # it was not done in time, and went on
    line.pace.committed(line.now_ms + 80_000)
    assert line.pace.bytes_max == 1 << 20
    line.pace.cut(1 << 20, line.now_ms)
    line.pace.committed(line.now_ms + 3_600_000)
    assert line.pace.bytes_max == LEAST_BYTES


def test_a_commit_that_is_never_made_says_nothing() -> None:
    pace = Pace(ROWS_MAX)
    pace.cut(1 << 20, 0)
    pace.forget()
    pace.committed(100_000)
    assert pace.bytes_max == BEGIN_BYTES


class Busy(Task):
    """It has always more to do."""

    def __init__(self) -> None:
        self.rows = 0

    def process(self, now_ms: int, rows_max: int = 0) -> int:
        self.rows += rows_max
        return rows_max

    def punctuate(self, now_ms: int) -> int:
        return 0


def turn(pace: Pace, tasks: dict[TaskId, Busy], room: int) -> list[TaskId]:
    """Let the tasks run until there is no room for more rows; return which did."""
    before = sum(task.rows for task in tasks.values())
    ran: list[TaskId] = []
    for task in pace.in_turn(tasks, lambda: sum(t.rows for t in tasks.values()) - before > room):
        pace.run(task, 0, row_by_row=False)
        ran += [task_id for task_id, other in tasks.items() if other is task]
    return ran


def test_turns_are_small_until_more_goes_through_and_small_again_when_it_does_not() -> None:
    pace, tasks = Pace(ROWS_MAX), {TaskId(0, 0): Busy()}
    assert turn(pace, tasks, 1 << 30)
    assert tasks[TaskId(0, 0)].rows == BEGIN_ROWS
    for _ in range(10):
        turn(pace, tasks, 1 << 30)
    tasks[TaskId(0, 0)].rows = 0
    turn(pace, tasks, 0)
    assert tasks[TaskId(0, 0)].rows == ROWS_MAX
    for _ in range(20):
        turn(pace, tasks, 0)
    tasks[TaskId(0, 0)].rows = 0
    turn(pace, tasks, 0)
    assert tasks[TaskId(0, 0)].rows == LEAST_ROWS


def test_turns_without_rows_prove_nothing() -> None:
    pace = Pace(ROWS_MAX)
    for _ in range(10):
        turn(pace, {}, 0)
    tasks = {TaskId(0, 0): Busy()}
    turn(pace, tasks, 1 << 30)
    assert tasks[TaskId(0, 0)].rows == BEGIN_ROWS


def test_when_nothing_more_fits_the_others_are_first_the_next_time() -> None:
    pace = Pace(ROWS_MAX)
    tasks = {TaskId(0, number): Busy() for number in range(3)}
    order = [task for _ in range(3) for task in turn(pace, tasks, 0)]
    assert order == list(tasks)
    assert turn(pace, tasks, 1 << 30) == list(tasks)


def test_a_long_interval_lets_no_more_wait_than_was_seen_to_go_through() -> None:
    cluster = Cluster(partitions=1)
    worker = cluster.worker(commit_interval_ms=600_000, commit_gap_min_ms=0)
    cluster.run(worker, turns=10)
    waiting = []
    for number in range(40):
        cluster.feed([f"word-{number}-{n}" for n in range(500)], START_MS)
        cluster.run(worker, turns=2, step_ms=10)
        waiting.append(worker.caches.dirty_bytes)
    assert max(waiting) > BEGIN_BYTES, "what went through lets more wait"
    assert max(waiting[:3]) <= 2 * BEGIN_BYTES
    assert worker.metrics.value("streamcore_commits_total") >= 3
