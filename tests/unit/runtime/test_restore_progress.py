"""What a restore tells: the log, a listener, the lags of the stores."""

from itertools import accumulate

import pytest
from structlog.testing import capture_logs
from tests.unit.runtime.simulated import CHANGELOG, NAMES, START_MS, Cluster, settings, word_count

from streamcore.model import TaskId, TopicPartition
from streamcore.runtime.blueprint import Blueprint
from streamcore.runtime.lifecycle import WorkerState
from streamcore.runtime.restore import Lag, RestoreListener, RestoreProgress
from streamcore.runtime.worker import Worker, create_worker
from streamcore.topology.graph import partition_counts

LOG = TopicPartition(CHANGELOG, 0)
COUNTS = TaskId(1, 0)
STORE = "windowed-counts"
Told = tuple[object, ...]


class Diary:
    """A listener that remembers what it was told."""

    def __init__(self) -> None:
        self.told: list[Told] = []

    def restore_started(
        self, task: TaskId, store: str, partition: TopicPartition, start: int, end: int
    ) -> None:
        self.told.append(("started", task, store, partition, start, end))

    def batch_restored(
        self, task: TaskId, store: str, partition: TopicPartition, progress: RestoreProgress
    ) -> None:
        self.told.append(("batch", task, store, partition, progress))

    def restore_ended(self, task: TaskId, store: str, partition: TopicPartition, rows: int) -> None:
        self.told.append(("ended", task, store, partition, rows))


class Failing(Diary):
    """Is of no use at all."""

    def restore_started(self, *facts: object) -> None:
        raise RuntimeError("no pen")

    batch_restored = restore_started  # type: ignore[assignment]
    restore_ended = restore_started  # type: ignore[assignment]


def counted(cluster: Cluster, words: int = 400) -> None:
    first = cluster.worker()
    cluster.feed([f"word-{i}" for i in range(words)], START_MS)
    cluster.settle(first)
    assert first.stop(cluster.clock.now_ms())


def restoring(cluster: Cluster, *listeners: RestoreListener, rows_max: int = 50) -> Worker:
    world = cluster.broker.world(NAMES.group, slot="b")
    changed = settings(cluster.guarantee, restore_rows_max=rows_max)
    worker = create_worker(word_count(), NAMES, changed, world, restore_listeners=listeners)
    worker.start(cluster.clock.now_ms())
    return worker


def test_a_listener_is_told_of_begin_batches_and_end() -> None:
    cluster = Cluster(partitions=1)
    counted(cluster)
    diary = Diary()
    worker = restoring(cluster, diary)
    cluster.run(worker, turns=40)
    assert worker.state is WorkerState.RUNNING
    end = cluster.broker.log(LOG).end
    first, *batches, last = diary.told
    assert first == ("started", COUNTS, STORE, LOG, 0, end)
    assert [batch[:4] for batch in batches] == [("batch", COUNTS, STORE, LOG)] * len(batches)
    assert len(batches) >= 8
    steps = [batch[4] for batch in batches if isinstance(batch[4], RestoreProgress)]
    assert {step.end for step in steps} == {end}
    assert sum(step.rows for step in steps) == 400
    assert [step.records for step in steps] == list(accumulate(step.rows for step in steps))
    assert [step.percent for step in steps] == sorted(step.percent for step in steps)
    done = steps[-1]
    assert (done.next_offset, done.percent, done.eta_s) == (end, 100, 0)
    assert done.read_bytes == sum(
        len(record.key or b"") + len(record.value or b"")
        for record in cluster.broker.read(CHANGELOG)
    )
    half = steps[len(steps) // 2 - 1]
    assert half.records_per_s > 0
    assert half.eta_s == pytest.approx((end - half.next_offset) / half.records_per_s, abs=1)
    assert last == ("ended", COUNTS, STORE, LOG, 400)


def test_a_listener_that_fails_stops_nothing_and_hides_nothing_from_others() -> None:
    cluster = Cluster(partitions=1)
    counted(cluster)
    diary = Diary()
    with capture_logs() as lines:
        worker = restoring(cluster, Failing(), diary, rows_max=300)
        cluster.run(worker, turns=20)
    assert worker.state is WorkerState.RUNNING
    failed = [line for line in lines if line["event"] == "a restore listener failed"]
    assert {line["call"] for line in failed} == {
        "restore_started",
        "batch_restored",
        "restore_ended",
    }
    assert {line["reason"] for line in failed} == {"no pen"}
    assert [told[0] for told in diary.told][-1] == "ended"


def test_a_long_restore_says_how_far_it_is_and_how_long_it_will_take() -> None:
    cluster = Cluster(partitions=1)
    counted(cluster)
    with capture_logs() as lines:
        worker = restoring(cluster, rows_max=10)
        cluster.run(worker, turns=100, step_ms=1_000)  # 40 batches of ten, one a second
    assert worker.state is WorkerState.RUNNING
    told = [line for line in lines if line["event"] == "restoring"]
    assert len(told) == 3
    for number, line in enumerate(told, 1):
        assert line["percent"] == pytest.approx(25 * number, abs=3)
        assert line["eta_s"] == pytest.approx(40 - 10 * number, abs=5)
        assert line["records_per_s"] == pytest.approx(10, abs=2)
        assert line["bytes"] == pytest.approx(line["records"] * 28, rel=0.1)
        assert (line["task"], line["store"], line["changelog"]) == ("1_0", STORE, str(LOG))
    (ended,) = [line for line in lines if line["event"] == "restore ends"]
    assert (ended["records"], ended["percent"], ended["eta_s"]) == (400, 100, 0)


def test_lags_fall_to_nothing_and_stay_there() -> None:
    cluster = Cluster(partitions=1)
    counted(cluster)
    worker = restoring(cluster, rows_max=10)
    end = cluster.broker.log(LOG).end
    seen: list[int] = []
    for _ in range(60):
        cluster.run(worker, turns=1)
        lag = worker._restorer.lags().get((STORE, 0))
        if lag is not None:
            assert lag.end == end
            seen.append(lag.records)
    assert seen == sorted(seen, reverse=True)
    assert seen[0] > 300
    assert worker.state is WorkerState.RUNNING
    assert worker._restorer.lags() == {(STORE, 0): Lag(end, end)}
    worker._tasks.drop(clean=False)
    assert worker._restorer.lags() == {}


def test_every_task_has_the_partitions_of_its_number() -> None:
    topology = word_count()
    counts = partition_counts(topology, {"words": 2, "windowed-counts": 2})
    blueprint = Blueprint(topology, NAMES, counts, settings())
    assert blueprint.tasks() == {
        TaskId(0, 0): (TopicPartition("words", 0),),
        TaskId(0, 1): (TopicPartition("words", 1),),
        TaskId(1, 0): (TopicPartition("app-windowed-counts-repartition", 0),),
        TaskId(1, 1): (TopicPartition("app-windowed-counts-repartition", 1),),
    }
    assert blueprint.stateful() == {TaskId(1, 0), TaskId(1, 1)}
    assert blueprint.record_partition() == LOG
