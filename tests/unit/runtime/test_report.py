"""What a worker tells of itself: whose numbers they are, and when they are gone."""

from typing import Any

import pytest
from tests.unit.runtime.simulated import NAMES, REPARTITION, START_MS, Cluster

from streamcore.model import Send, TaskId, TopicPartition
from streamcore.runtime.input_lags import ASK_MS, FIRST_ASK_MS, InputLags
from streamcore.runtime.metrics import LABELS
from streamcore.runtime.report import READ_MS
from streamcore.runtime.worker import Worker
from streamcore.testing.consumer import MemoryConsumer
from streamcore.testing.producer import MemoryAdmin, MemoryProducer

OLD_MS = START_MS - 86_400_000
LAG = "streamcore_lag_records"
AT = TopicPartition("words", 0)


def told(worker: Worker, name: str) -> dict[tuple[str, ...], float]:
    """Return the series of this name, by the values of their labels in the order documented."""
    found = {}
    for sample in worker.metrics.samples():
        if sample.name == name:
            labels = dict(sample.labels)
            found[tuple(labels[label] for label in LABELS.get(sample.name, ()))] = sample.value
    return found


def everything(worker: Worker) -> set[tuple[str, tuple[tuple[str, str], ...]]]:
    return {(sample.name, sample.labels) for sample in worker.metrics.samples()}


def hold_lag(cluster: Cluster, rows: int) -> None:
    """Write what nobody gets to read: rows of a transaction that is open, in each partition."""
    producer = MemoryProducer(cluster.broker, "foreign")
    producer.init_transactions(1_000)
    producer.begin_transaction()
    for partition in range(len(cluster.broker.topics["words"].partitions)):
        values = [b"x"] * (rows + partition)
        stamps_ms = [OLD_MS] * len(values)
        rest = producer.send(
            Send("words", [None] * len(values), values, stamps_ms, partition=partition)
        )
        assert rest is None
    assert producer.flush(1_000)


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_each_partition_is_told_by_its_owner_alone_and_the_sum_is_the_groups_lag(
    guarantee: str,
) -> None:
    cluster = Cluster(partitions=6, guarantee=guarantee)
    one, two = cluster.worker("one"), cluster.worker("two")
    cluster.feed(["a", "b", "c"] * 20, OLD_MS, 100)
    cluster.settle(one, two)

    def settled(*workers: Worker) -> None:
        cluster.run(*workers, turns=60)
        hold_lag(cluster, rows=5)
        cluster.run(*workers, turns=10)
        for name in (LAG, "streamcore_store_bytes", "streamcore_task_watermark_ms"):
            keys = [key for worker in workers for key in told(worker, name)]
            assert len(keys) == len(set(keys)), (name, keys)
        lags = {key: lag for worker in workers for key, lag in told(worker, LAG).items()}
        assert set(lags) == {
            (topic, str(number)) for topic in ("words", REPARTITION) for number in range(6)
        }
        assert sum(lags.values()) == cluster.lag() >= sum(range(5, 11))

    settled(one, two)
    before = everything(one)
    assert two.stop(cluster.clock.now_ms())
    settled(one)
    three = cluster.worker("three")
    settled(one, three)
    assert len(told(three, LAG)) == 6
    cluster.feed([f"word-{number}" for number in range(2_000)], OLD_MS + 60_000)
    cluster.clock.advance(120_000)  # what is open expires, and the words can be read
    settled(one, three)
    assert one.metrics.value("streamcore_rows_processed_total") > 1_000
    assert len(everything(one)) == len(before), everything(one) ^ before


def test_what_is_processed_and_not_committed_is_behind_as_the_group_sees_it() -> None:
    cluster = Cluster(partitions=1)
    worker = cluster.worker("one", commit_interval_ms=20_000)
    cluster.run(worker, turns=300)
    assert told(worker, LAG) == {("words", "0"): 0, (REPARTITION, "0"): 0}
    cluster.feed(["a"] * 5, OLD_MS)
    processed = worker.metrics.value("streamcore_rows_processed_total")
    cluster.run(worker, turns=15)
    assert worker.metrics.value("streamcore_rows_processed_total") == processed + 10
    assert sum(told(worker, LAG).values()) == cluster.lag() > 0
    cluster.run(worker, turns=200)
    assert sum(told(worker, LAG).values()) == cluster.lag() == 0


def test_at_a_revoke_nothing_is_told_of_any_task_before_the_new_generation_begins() -> None:
    cluster = Cluster(partitions=2)
    one = cluster.worker("one")
    cluster.feed(["a", "b"] * 5, OLD_MS)
    cluster.settle(one)
    cluster.broker.write(REPARTITION, None, b"stray", OLD_MS, 0)
    cluster.settle(one)
    labelled = {name for name, labels in everything(one) if labels}
    assert labelled == set(LABELS)
    dropped = told(one, "streamcore_rows_dropped_total")
    assert dropped == {("1_0", "foreign_repartition_record"): 1}
    one.metrics.take_shrunk()
    cluster.clock.advance(READ_MS)
    one.turn(cluster.clock.now_ms())  # so that the next one has no gauges to read
    cluster.broker.group(NAMES.group).rebalance()
    one.turn(cluster.clock.now_ms())
    assert [one.metrics.take_shrunk(), one.metrics.take_shrunk()] == [True, False]
    assert {name for name, labels in everything(one) if labels} == set()
    assert one.store_lags == {}
    assert told(one, "streamcore_tasks") == {(): 0}


def test_a_counter_goes_on_where_its_task_comes_back() -> None:
    cluster = Cluster(partitions=1)
    one = cluster.worker("one")
    cluster.settle(one)
    dropped: dict[tuple[str, ...], float] = {}
    for count in (1, 2):
        cluster.broker.write(REPARTITION, None, b"stray", OLD_MS)
        cluster.settle(one)
        dropped = told(one, "streamcore_rows_dropped_total")
        assert dropped == {("1_0", "foreign_repartition_record"): count}
        cluster.broker.group(NAMES.group).rebalance()
        one.turn(cluster.clock.now_ms())
        assert told(one, "streamcore_rows_dropped_total") == {}
        cluster.settle(one)
    two = cluster.worker("two")
    cluster.run(one, two, turns=60)
    assert [len(worker._tasks.running) for worker in (one, two)] == [1, 1]
    assert told(two, "streamcore_rows_dropped_total") == {}, "what others have dropped"
    stays = TaskId(1, 0) in one._tasks.running
    assert told(one, "streamcore_rows_dropped_total") == (dropped if stays else {})
    assert two.stop(cluster.clock.now_ms())
    cluster.settle(one)
    assert told(one, "streamcore_rows_dropped_total") == dropped


def test_commits_are_measured_and_the_longest_is_remembered_for_a_minute_or_two() -> None:
    cluster = Cluster(partitions=1)
    worker = cluster.worker("one")
    cluster.settle(worker)
    for took_ms in (40, 700, 60):
        worker._report.committed(took_ms)
    assert told(worker, "streamcore_commit_last_ms") == {(): 60}
    assert told(worker, "streamcore_commit_max_ms") == {(): 700}
    cluster.run(worker, turns=60, step_ms=1_000)
    assert told(worker, "streamcore_commit_max_ms") == {(): 700}
    cluster.run(worker, turns=70, step_ms=1_000)
    assert told(worker, "streamcore_commit_max_ms")[()] < 700
    assert told(worker, "streamcore_commit_ms_total")[()] >= 800


def test_what_is_still_to_restore_is_told_with_the_lag_of_the_inputs_meanwhile() -> None:
    cluster = Cluster(partitions=1)
    one = cluster.worker("one")
    cluster.feed([f"w{number}" for number in range(50)], OLD_MS)
    cluster.settle(one)
    assert one.stop(cluster.clock.now_ms())
    cluster.feed(["late"] * 3, OLD_MS)
    two = cluster.worker("two", warmup_max_ms=0, restore_rows_max=1)
    remaining = []
    for _ in range(60):
        cluster.run(two, turns=1, step_ms=1_000)
        remaining.append(told(two, "streamcore_restore_remaining_records")[()])
        if remaining[-1]:
            lags = told(two, LAG)
            assert (REPARTITION, "0") not in lags or lags[REPARTITION, "0"] >= 0
    assert 0 < max(remaining) <= 50
    assert remaining[-1] == 0
    assert told(two, "streamcore_store_bytes")[("windowed-counts", "0")] > 0


def test_time_that_stands_still_shows_as_delay() -> None:
    cluster = Cluster(partitions=1)
    worker = cluster.worker("one")
    cluster.settle(worker)
    delays = told(worker, "streamcore_task_watermark_delay_ms")
    assert ("1_0",) not in delays, "nothing was seen yet"
    cluster.feed(["a"], START_MS)
    cluster.settle(worker)
    first = told(worker, "streamcore_task_watermark_delay_ms")[("1_0",)]
    cluster.run(worker, turns=10, step_ms=1_000)
    assert told(worker, "streamcore_task_watermark_delay_ms")[("1_0",)] == first + 10_000


# -- ends of inputs ------------------------------------------------------------------------------


class Ends:
    """A partition, who reads it, and who is asked."""

    def __init__(self) -> None:
        self.cluster = Cluster(partitions=1)
        self.consumer = MemoryConsumer(self.cluster.broker, self.cluster.broker.group(NAMES.group))
        self.admin = Counting(self.cluster.broker)
        self.lags = InputLags(self.admin, 1_000)
        self.now_ms = START_MS

    def after(self, ms: int, committed: int) -> int | None:
        self.now_ms += ms
        return self.lags.read({AT: committed}, self.consumer, self.now_ms).get(AT)


class Counting(MemoryAdmin):
    """An admin client that counts questions for ends."""

    asked = 0

    def offsets(self, *arguments: Any) -> dict[TopicPartition, int]:
        self.asked += 1
        return super().offsets(*arguments)


def test_nobody_is_asked_while_ends_come_with_what_is_fetched() -> None:
    ends = Ends()
    ends.consumer.assign({AT: 0})
    for row in range(30):
        assert ends.after(1_000, committed=row) == 0
        ends.cluster.feed(["a"], OLD_MS)
        assert ends.after(1_000, committed=row) == 1
    assert ends.admin.asked == 0


def test_of_a_partition_that_is_not_read_the_broker_is_asked_now_and_then() -> None:
    ends = Ends()
    ends.cluster.feed(["a"] * 7, OLD_MS)
    assert ends.after(0, committed=2) is None, "the first fetch may be under way"
    assert ends.after(FIRST_ASK_MS, committed=2) == 5
    ends.cluster.feed(["a"], OLD_MS)
    assert ends.after(ASK_MS - 1, committed=2) == 5
    assert ends.after(1, committed=2) == 6
    assert ends.admin.asked == 2
    assert ends.after(ASK_MS, committed=8) == 0
    assert ends.admin.asked == 2, "it is not behind as far as anybody knows"


def test_an_end_that_is_not_answered_is_as_it_was() -> None:
    ends = Ends()
    ends.cluster.feed(["a"] * 7, OLD_MS)
    ends.after(0, committed=2)
    assert ends.after(FIRST_ASK_MS, committed=2) == 5
    ends.cluster.broker.away = True
    assert ends.after(ASK_MS, committed=3) == 4
    ends.cluster.broker.away = False
    ends.lags.forget()
    assert ends.after(0, committed=3) is None
