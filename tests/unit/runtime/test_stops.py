"""What a stop answers, and what one trouble may not hold up, in running workers."""

import pytest
from structlog.testing import capture_logs
from tests.unit.runtime.simulated import NAMES, START_MS, Cluster
from tests.unit.runtime.test_failing_rows import Picky, with_a_processor
from tests.unit.runtime.test_user_errors import Refused

from streamcore import STR, Consumed, Grouped, Materialized, StreamsBuilder
from streamcore.errors import (
    DeserializationError,
    RetriableError,
    StateDirLockedError,
    StreamsError,
    TransactionAbortedError,
)
from streamcore.model import TaskId, TopicPartition
from streamcore.runtime.backoff import Backoff
from streamcore.runtime.worker import Worker
from streamcore.state.memory import MemoryEngine
from streamcore.testing.broker import MemoryStateDir

OLD_MS = START_MS - 100_000
WORDS = TopicPartition("words", 0)
REFUSALS: dict[str, StreamsError] = {
    "at_least_once": RetriableError("no answer"),
    "exactly_once_v2": TransactionAbortedError("aborted"),
}
COMMITS = {"at_least_once": "consumer.commit", "exactly_once_v2": "producer.commit_transaction"}


def about_to_be_revoked(guarantee: str) -> tuple[Cluster, Worker, Worker]:
    """Return a worker with uncommitted rows whose next poll revokes, for the other one has come."""
    cluster = Cluster(partitions=1, guarantee=guarantee)
    one = cluster.worker("one", commit_interval_ms=1_000_000)
    cluster.feed(["to", "be"], OLD_MS)
    cluster.run(one, turns=6, step_ms=10)
    two = cluster.worker("two", warmup_max_ms=0)
    two.turn(cluster.clock.now_ms())
    return cluster, one, two


@pytest.mark.parametrize("in_callback", [False, True])
@pytest.mark.parametrize("guarantee", COMMITS)
def test_a_stop_says_that_a_rebalance_took_away_what_it_could_not_commit(
    guarantee: str, *, in_callback: bool
) -> None:
    cluster, one, two = about_to_be_revoked(guarantee)
    faults = cluster.broker.faults
    if in_callback:  # the callback comes up inside the last commit and has to end it
        faults.next("producer.flush", False)
        faults.next(COMMITS[guarantee], REFUSALS[guarantee])
    else:  # the last commit fails by itself, then the callback's
        faults.next(COMMITS[guarantee], REFUSALS[guarantee], times=2)
    with capture_logs() as logs:
        assert not one.stop(cluster.clock.now_ms())
    events = {entry["event"] for entry in logs}
    assert events & {"the commit before a rebalance failed", "the last commit failed"}
    assert cluster.broker.group(NAMES.group).offsets[WORDS].offset == 0
    faults.clear()
    cluster.settle(two)
    assert cluster.lag() == 0


def test_a_second_rebalance_inside_a_stop_makes_nothing_good() -> None:
    cluster = Cluster(partitions=1)
    one = cluster.worker("one", commit_interval_ms=1_000_000)
    cluster.feed(["to", "be"], OLD_MS)
    cluster.run(one, turns=6, step_ms=10)
    cluster.broker.faults.next("producer.flush", False)  # so that the last commit waits, and polls
    cluster.broker.faults.next("consumer.commit", RetriableError("no answer"))
    rebalances: list[bool] = []

    def poll() -> None:
        rebalances.append(one._committer.running)
        one._commit_and_drop()

    one._wait = poll  # type: ignore[method-assign]
    assert not one.stop(cluster.clock.now_ms())
    assert rebalances == [True, False]  # the one ends the commit, the other finds nothing
    assert cluster.broker.group(NAMES.group).offsets[WORDS].offset == 0


def test_a_stop_whose_commit_a_rebalance_has_ended_well_is_clean() -> None:
    cluster, one, _two = about_to_be_revoked("at_least_once")
    cluster.broker.faults.next("producer.flush", False)
    assert one.stop(cluster.clock.now_ms())
    assert cluster.broker.group(NAMES.group).offsets[WORDS].offset == 2


def test_a_commit_that_a_callback_gave_up_is_not_called_done() -> None:
    cluster, one, _two = about_to_be_revoked("at_least_once")
    cluster.broker.faults.next("producer.flush", False)  # so that the commit waits, and polls
    cluster.broker.faults.next("consumer.commit", RetriableError("no answer"))
    assert not one._commit(cluster.clock.now_ms())
    assert not one._tasks.running


class Locked(MemoryStateDir):
    """Another process has the folder of one task."""

    held = TaskId(1, 3)

    def open(self, task: TaskId, store: str) -> MemoryEngine:
        if task == self.held:
            raise StateDirLockedError(task, "its folder")
        return super().open(task, store)


def test_one_locked_folder_keeps_no_other_task_from_running() -> None:
    cluster = Cluster(partitions=4)
    cluster.feed([str(n) for n in range(100)], OLD_MS)
    worker = cluster.worker(state_dir=Locked())
    cluster.run(worker, turns=60)
    tasks = {TaskId(sub, partition) for sub in (0, 1) for partition in range(4)}
    assert set(worker._tasks.running) == tasks - {Locked.held}


@pytest.mark.parametrize("trouble", ["folder", "init"])
def test_nor_does_it_keep_one_waiting_that_is_restored_later(trouble: str) -> None:
    cluster = Cluster(partitions=4)
    first = cluster.worker(topology=with_a_processor())
    cluster.feed([str(n) for n in range(2_000)], OLD_MS)
    cluster.settle(first)
    assert first.stop(cluster.clock.now_ms())
    state_dir = Locked() if trouble == "folder" else MemoryStateDir()
    topology = with_a_processor(Picky if trouble == "folder" else Refused)
    worker = cluster.worker("b", topology, state_dir, restore_rows_max=10)
    restored_ms: dict[TaskId, int] = {}
    waited_ms: list[int] = []
    for _ in range(600):
        cluster.run(worker, turns=1, step_ms=100)
        now_ms = cluster.clock.now_ms()
        for task in worker._tasks._restored:
            restored_ms.setdefault(task, now_ms)
        started = restored_ms.keys() & worker._tasks.running.keys()
        waited_ms += [now_ms - restored_ms.pop(task) for task in started]
    assert len(waited_ms) >= 3
    assert max(waited_ms) <= 200


def test_commits_that_had_nothing_to_commit_do_not_shorten_the_waits_between_rebuilds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits_ms: list[int] = []
    failed = Backoff.failed

    def noted(self: Backoff, reason: str, now_ms: int) -> None:
        waits_ms.append(self._next_ms)
        failed(self, reason, now_ms)

    monkeypatch.setattr(Backoff, "failed", noted)
    cluster = Cluster(partitions=4, guarantee="exactly_once_v2")
    builder = StreamsBuilder()
    words = builder.stream("words", Consumed(key=STR, value=STR))
    words.group_by_key(Grouped(key=STR, value=STR)).count(Materialized("windowed-counts"))
    worker = cluster.worker(topology=builder.build())
    cluster.settle(worker)
    cluster.broker.faults.next(
        "producer.commit_transaction", TransactionAbortedError("aborted"), times=100
    )
    for partition in range(4):
        cluster.broker.write("words", b"to", b"be", OLD_MS, partition)
    with pytest.raises(TransactionAbortedError):
        cluster.run(worker, turns=10_000, step_ms=20)
    assert waits_ms == [100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000, 5_000]
    worker.close()


@pytest.mark.parametrize("guarantee", COMMITS)
def test_a_row_that_failed_beside_it_takes_nothing_from_what_stands_in_front_of_a_bad_record(
    guarantee: str,
) -> None:
    cluster = Cluster(partitions=2, guarantee=guarantee)
    worker = cluster.worker(topology=with_a_processor(), task={"processing_error": "continue"})
    cluster.run(worker)
    write = cluster.broker.write
    for word in (b"to", b"to", b"to", b"\xff"):
        write("words", None, word, OLD_MS, 0)
    for word in (b"to", b"bad"):
        write("words", None, word, OLD_MS, 1)
    with pytest.raises(DeserializationError):
        cluster.run(worker, turns=40)
    assert cluster.broker.group(NAMES.group).offsets[WORDS].offset == 3
    worker.close()
