"""A worker against the in-memory broker: what it commits, what it drops, what it survives."""

import pytest
from structlog.testing import capture_logs
from tests.unit.runtime.simulated import (
    CHANGELOG,
    NAMES,
    REPARTITION,
    START_MS,
    Cluster,
    word_count,
)

from streamcore import INT64, STR, windowed_serde
from streamcore.errors import (
    DeserializationError,
    ProcessingError,
    ProductionError,
    RetriableError,
    TopicError,
    TransactionAbortedError,
)
from streamcore.model import OffsetAndMetadata, TaskId, TopicPartition
from streamcore.runtime.lifecycle import WorkerState
from streamcore.runtime.worker import Worker
from streamcore.testing.broker import MemoryStateDir

GUARANTEES = ["at_least_once", "exactly_once_v2"]
OLD_MS = START_MS - 86_400_000 * 365


def picky(_key: object, word: str) -> str:
    if word == "bad":
        raise ValueError("no such word")
    return word


def state(worker: Worker) -> WorkerState:
    return worker.state


def committed(cluster: Cluster, topic: str, partition: int) -> int:
    at = cluster.broker.group(NAMES.group).offsets.get(TopicPartition(topic, partition))
    return -1 if at is None else at.offset


# -- the ordinary ------------------------------------------------------------------------------


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_words_are_counted_and_everything_read_is_committed(guarantee: str) -> None:
    cluster = Cluster(guarantee=guarantee)
    cluster.feed(["to", "be", "or", "not", "to", "be"] * 50, OLD_MS, 100)
    worker = cluster.worker()
    cluster.settle(worker)
    assert cluster.counts() == dict(cluster.fed)
    assert cluster.lag() == 0
    assert worker.stop(cluster.clock.now_ms())
    assert worker.state is WorkerState.NOT_RUNNING


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_two_workers_share_the_tasks_and_a_third_comes_and_goes(guarantee: str) -> None:
    cluster = Cluster(guarantee=guarantee)
    one, two = cluster.worker("one"), cluster.worker("two")
    cluster.feed(["a", "b", "c", "d", "e"] * 40, OLD_MS, 50)
    cluster.run(one, two, turns=3)
    three = cluster.worker("three")
    cluster.feed(["a", "b", "c", "d", "e"] * 40, OLD_MS + 10_000, 50)
    cluster.run(one, two, three, turns=5)
    assert three.stop(cluster.clock.now_ms())
    cluster.settle(one, two)
    assert cluster.counts() == dict(cluster.fed)
    assert [len(w._tasks.running) for w in (one, two)] == [4, 4]


def test_a_member_without_a_share_runs_and_holds_nobody_up() -> None:
    cluster = Cluster(partitions=1)
    workers = [cluster.worker(slot) for slot in ("one", "two", "three")]
    cluster.feed(["a"] * 10, OLD_MS)
    cluster.settle(*workers)
    assert cluster.counts() == dict(cluster.fed)
    running = [sorted(worker._tasks.running) for worker in workers]
    assert sorted(running) == [[], [TaskId(0, 0)], [TaskId(1, 0)]]


def test_a_full_cache_commits_early_but_not_more_often_than_every_100_ms() -> None:
    cluster = Cluster(partitions=1)
    worker = cluster.worker(commit_interval_ms=60_000, cache_max_bytes=1)
    cluster.run(worker, turns=4, step_ms=10)
    before = worker.metrics.value("streamcore_commits_total")
    for i in range(40):
        cluster.feed([f"word-{i}"] * 5, OLD_MS)
        cluster.run(worker, turns=1, step_ms=10)
    assert 2 <= worker.metrics.value("streamcore_commits_total") - before <= 4


def test_a_repartition_topic_is_purged_behind_committed_offsets() -> None:
    cluster = Cluster(partitions=1)
    worker = cluster.worker(repartition_purge_interval_ms=2_000)
    cluster.feed(["a", "b"] * 20, OLD_MS)
    cluster.settle(worker)
    log = cluster.broker.topics[REPARTITION].partitions[0]
    assert log.start == committed(cluster, REPARTITION, 0) == log.end > 40


def test_rows_dropped_are_published_by_task_and_reason_and_go_with_the_task() -> None:
    cluster = Cluster(partitions=1)
    worker = cluster.worker()
    cluster.feed(["a"], OLD_MS)
    cluster.settle(worker)
    cluster.broker.write(REPARTITION, None, b"stray", OLD_MS)
    cluster.settle(worker)
    dropped = {
        sample.labels: sample.value
        for sample in worker.metrics.samples()
        if sample.name == "streamcore_rows_dropped_total"
    }
    assert dropped == {(("reason", "foreign_repartition_record"), ("task", "1_0")): 1}


# -- rows that fail ----------------------------------------------------------------------------


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_row_that_fails_user_code_is_skipped_and_counted(guarantee: str) -> None:
    cluster = Cluster(partitions=1, guarantee=guarantee)
    cluster.feed(["a", "b", "bad", "c", "bad", "a"], OLD_MS)
    for _ in range(2):
        del cluster.fed["bad", OLD_MS // 10_000 * 10_000]
    worker = cluster.worker(topology=word_count(picky), task={"processing_error": "continue"})
    cluster.settle(worker)
    assert cluster.lag() == 0
    assert (
        worker.metrics.value("streamcore_rows_dropped_total", task="0_0", reason="processing") == 2
    )
    if guarantee == "exactly_once_v2":
        assert cluster.counts() == dict(cluster.fed)
    assert not worker._tasks.row_by_row(worker._tasks.running[TaskId(0, 0)])


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_the_stop_policy_commits_what_is_in_front_and_names_the_row(guarantee: str) -> None:
    cluster = Cluster(partitions=1, guarantee=guarantee)
    cluster.feed(["a", "b", "c", "bad", "d"], OLD_MS)
    worker = cluster.worker(topology=word_count(picky))
    with pytest.raises(ProcessingError, match=r"words partition 0 offset 3 .* no such word"):
        cluster.run(worker)
    assert worker.state is WorkerState.ERROR
    worker.close()
    assert committed(cluster, "words", 0) == 3
    again = cluster.worker(topology=word_count(picky))
    with pytest.raises(ProcessingError, match="offset 3"):
        cluster.run(again)


def test_an_undecodable_record_stops_in_front_of_itself() -> None:
    cluster = Cluster(partitions=1)
    cluster.feed(["a", "b"], OLD_MS)
    cluster.broker.write("words", None, b"\xff\xfe{", OLD_MS)
    cluster.feed(["c"], OLD_MS)
    worker = cluster.worker()
    with pytest.raises(DeserializationError, match="words partition 0 offset 2"):
        cluster.run(worker)
    assert committed(cluster, "words", 0) == 2


def test_stopping_at_a_record_waits_until_what_is_in_front_of_it_is_durable() -> None:
    cluster = Cluster(partitions=1)
    cluster.feed(["a", "b"], OLD_MS)
    cluster.broker.write("words", None, b"\xff\xfe{", OLD_MS)
    worker = cluster.worker(commit_budget_ms=0)
    cluster.broker.faults.next("producer.flush", False, times=6)
    with pytest.raises(DeserializationError, match="offset 2"):
        cluster.run(worker, turns=60)
    assert cluster.broker.faults.left == []
    assert committed(cluster, "words", 0) == 2


def test_dead_letters_go_to_their_topic() -> None:
    cluster = Cluster(partitions=1)
    cluster.broker.create("dead", 1)
    cluster.feed(["a", "bad", "b"], OLD_MS)
    policy = {"processing_error": "dead-letter", "dead_letter_topic": "dead"}
    worker = cluster.worker(topology=word_count(picky), task=policy)
    cluster.settle(worker)
    assert [record.value for record in cluster.broker.read("dead")] == [b"bad"]
    assert cluster.lag() == 0


# -- the cluster does not do as we want --------------------------------------------------------


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_full_queue_holds_the_input_back_and_loses_nothing(guarantee: str) -> None:
    cluster = Cluster(guarantee=guarantee)
    cluster.broker.queue_rows_max = 50
    cluster.feed([f"word-{i % 97}" for i in range(2_000)], OLD_MS, 1)
    worker = cluster.worker()
    cluster.run(worker, turns=5)
    cluster.broker.away = True
    cluster.run(worker, turns=20)
    cluster.broker.away = False
    cluster.settle(worker)
    assert cluster.counts() == dict(cluster.fed)


def test_no_offset_is_committed_in_front_of_an_unacknowledged_record() -> None:
    cluster = Cluster(partitions=1)
    cluster.feed(["a", "b"], OLD_MS)
    worker = cluster.worker()
    cluster.run(worker, turns=1, step_ms=0)
    cluster.broker.faults.next("producer.flush", False, times=100)
    cluster.run(worker, turns=4, step_ms=600)
    assert committed(cluster, "words", 0) == 0
    cluster.broker.faults.clear()
    cluster.settle(worker)
    assert cluster.counts() == dict(cluster.fed)


def test_a_commit_without_an_answer_is_tried_again_with_the_same_memory() -> None:
    cluster = Cluster(partitions=1)
    cluster.feed(["a", "b", "a"], OLD_MS)
    worker = cluster.worker()
    cluster.broker.faults.next("consumer.commit", RetriableError("no answer"), times=3)
    cluster.settle(worker)
    assert cluster.broker.faults.left == []
    assert cluster.counts() == dict(cluster.fed)
    assert worker.metrics.value("streamcore_rebuilds_total") == 0


def test_a_commit_that_is_never_answered_is_tried_less_and_less_often() -> None:
    cluster = Cluster(partitions=1)
    worker = cluster.worker()
    cluster.settle(worker)
    cluster.feed(["a", "b", "a"], OLD_MS)
    cluster.broker.faults.next("consumer.commit", RetriableError("no answer"), times=1_000)
    with capture_logs() as lines:
        cluster.run(worker, turns=1_200, step_ms=50)  # a minute
    tries = 1_000 - len(cluster.broker.faults._queued["consumer.commit"])
    assert 10 <= tries <= 20
    assert 5 <= len(lines) <= 7
    assert all("not answered in time: no answer" in line["reason"] for line in lines)
    cluster.broker.faults.clear()
    cluster.settle(worker)
    assert cluster.counts() == dict(cluster.fed)
    assert worker.metrics.value("streamcore_rebuilds_total") == 0


def test_an_unknown_end_of_a_transaction_is_settled_by_a_new_producer() -> None:
    cluster = Cluster(partitions=1, guarantee="exactly_once_v2")
    cluster.feed(["a", "b", "a"], OLD_MS)
    worker = cluster.worker(commit_budget_ms=0)
    cluster.broker.faults.next("producer.commit_transaction.after", RetriableError("no answer"))
    cluster.settle(worker)
    assert worker.metrics.value("streamcore_rebuilds_total") > 0
    assert cluster.counts() == dict(cluster.fed)


def test_a_fenced_producer_is_replaced() -> None:
    cluster = Cluster(partitions=1, guarantee="exactly_once_v2")
    worker = cluster.worker()
    cluster.feed(["a", "b"], OLD_MS)
    cluster.run(worker, turns=2, step_ms=10)
    cluster.broker.fence("app-a")
    cluster.settle(worker)
    assert cluster.counts() == dict(cluster.fed)


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_result_that_the_broker_refuses_stops_the_worker_in_front_of_it(guarantee: str) -> None:
    cluster = Cluster(partitions=1, guarantee=guarantee)
    cluster.broker.topics["windowed-counts"].settings["max.message.bytes"] = "40"
    worker = cluster.worker()
    cluster.feed(["a", "x" * 50, "b"], OLD_MS)
    with pytest.raises(ProductionError, match=r"too large; .* set production_error"):
        cluster.run(worker)
    assert worker.state is WorkerState.ERROR
    worker.close()
    assert committed(cluster, REPARTITION, 0) <= 0


def test_results_that_the_broker_refuses_are_left_out_and_counted_one_by_one() -> None:
    cluster = Cluster(partitions=1)
    cluster.broker.topics["windowed-counts"].settings["max.message.bytes"] = "40"
    worker = cluster.worker(production_error="continue")
    cluster.feed(["a", "x" * 50, "b", "y" * 50, "z" * 50], OLD_MS)
    with capture_logs() as lines:
        cluster.settle(worker)
    assert {word for word, _ in cluster.counts()} == {"a", "b"}
    assert worker.metrics.value("streamcore_rows_refused_total") == 3
    told = [line for line in lines if line["event"] == "records were refused and are left out"]
    assert [line["records"] for line in told] == [3]
    assert cluster.lag() == 0
    assert worker.stop(cluster.clock.now_ms())


def test_results_that_the_broker_refuses_are_dead_lettered_before_the_offsets() -> None:
    cluster = Cluster(partitions=1)
    cluster.broker.create("dead", 1, {"message.timestamp.after.max.ms": "3600000"})
    cluster.broker.topics["windowed-counts"].settings["message.timestamp.after.max.ms"] = "60000"
    task = {"dead_letter_topic": "dead", "max_timestamp_ahead_ms": 9_000_000}
    worker = cluster.worker(production_error="dead-letter", task=task)
    cluster.run(worker, turns=3)
    ahead_ms = cluster.clock.now_ms() + 7_200_000
    cluster.feed(["early"], ahead_ms)
    cluster.run(worker, turns=1)
    offsets = cluster.broker.group(NAMES.group).offsets
    before = dict(offsets)
    for _ in range(100):
        if cluster.broker.read("dead"):
            break
        before = dict(offsets)
        cluster.run(worker, turns=1)
    at = TopicPartition(REPARTITION, 0)  # committed in the same turn, not later
    assert offsets[at] != before.get(at)
    (dead,) = cluster.broker.read("dead")
    start_ms = ahead_ms // 10_000 * 10_000
    key = windowed_serde(STR, size_ms=10_000).deserialize(dead.key or b"")
    assert (key.key, key.window.start_ms) == ("early", start_ms)
    assert INT64.deserialize(dead.value or b"") == 1
    headers = dict(dead.headers)
    assert headers["sc-dead-topic"] == b"windowed-counts"
    assert headers["sc-dead-partition"] == b"0"
    assert headers["sc-dead-timestamp"] == str(ahead_ms).encode()
    assert b"too far ahead" in (headers["sc-dead-reason"] or b"")
    assert dead.stamp_ms <= cluster.clock.now_ms()
    assert worker.metrics.value("streamcore_rows_refused_total") == 1


def test_a_dead_letter_that_is_refused_stops_the_worker() -> None:
    cluster = Cluster(partitions=1)
    cluster.broker.create("dead", 1, {"max.message.bytes": "40"})
    cluster.broker.topics["windowed-counts"].settings["max.message.bytes"] = "40"
    worker = cluster.worker(production_error="dead-letter", task={"dead_letter_topic": "dead"})
    cluster.feed(["x" * 50], OLD_MS)
    with pytest.raises(ProductionError, match="dead partition 0"):
        cluster.run(worker)
    assert committed(cluster, REPARTITION, 0) <= 0


def test_a_topic_that_is_gone_is_no_record_to_go_on_without() -> None:
    cluster = Cluster(partitions=1)
    worker = cluster.worker(production_error="continue")
    cluster.settle(worker)
    cluster.broker.delete("windowed-counts")
    cluster.feed(["a"], OLD_MS)
    with pytest.raises(ProductionError, match="unknown topic"):
        cluster.run(worker)


def test_the_worker_gives_up_when_rebuilding_never_helps() -> None:
    cluster = Cluster(partitions=1, guarantee="exactly_once_v2")
    cluster.feed(["a"], OLD_MS)
    worker = cluster.worker()
    cluster.broker.faults.next(
        "producer.commit_transaction", TransactionAbortedError("again"), times=100
    )
    with pytest.raises(TransactionAbortedError):
        cluster.run(worker, turns=500)
    assert worker.state is WorkerState.ERROR


def test_an_offset_that_the_log_lost_begins_at_the_earliest_with_its_clock_kept() -> None:
    cluster = Cluster(partitions=1)
    cluster.feed(["a"] * 5, OLD_MS)
    cluster.broker.log(TopicPartition("words", 0)).delete_before(3)
    cluster.broker.group(NAMES.group).offsets[TopicPartition("words", 0)] = OffsetAndMetadata(1)
    worker = cluster.worker(missing_records="continue")
    cluster.settle(worker)
    assert cluster.counts() == {("a", OLD_MS // 10_000 * 10_000): 2}


def test_stopping_with_the_cluster_away_gives_up_within_its_budget() -> None:
    cluster = Cluster(partitions=1)
    cluster.feed(["a"], OLD_MS)
    worker = cluster.worker()
    cluster.run(worker, turns=2, step_ms=10)
    cluster.broker.away = True
    began_ms = cluster.clock.now_ms()
    assert not worker.stop(began_ms)
    assert 20_000 <= cluster.clock.now_ms() - began_ms <= 27_000
    cluster.broker.away = False
    after = cluster.worker()
    cluster.settle(after)
    assert cluster.counts().keys() == cluster.fed.keys()


# -- membership --------------------------------------------------------------------------------


def test_a_member_that_was_put_out_drops_everything_and_comes_back() -> None:
    cluster = Cluster(partitions=1)
    worker = cluster.worker()
    cluster.feed(["a", "b"], OLD_MS)
    cluster.run(worker, turns=2, step_ms=10)
    group = cluster.broker.group(NAMES.group)
    for member in list(group.members):
        group.leave(member)
    cluster.clock.advance(2_000)  # a commit is due before the next poll
    cluster.settle(worker)
    assert len(group.members) == 1
    assert cluster.counts().keys() == cluster.fed.keys()


def test_what_is_revoked_is_committed_first() -> None:
    cluster = Cluster(partitions=2)
    one = cluster.worker("one", commit_interval_ms=1_000_000)
    cluster.feed(["a", "b", "c", "d"], OLD_MS)
    cluster.run(one, turns=3, step_ms=10)
    assert committed(cluster, "words", 0) == 0
    two = cluster.worker("two")
    cluster.run(two, one, turns=1, step_ms=10)
    assert committed(cluster, "words", 0) == 2
    cluster.settle(two)
    assert cluster.counts() == dict(cluster.fed)


def test_a_revocation_that_comes_up_inside_a_commit_ends_that_commit() -> None:
    cluster = Cluster(partitions=2)
    one = cluster.worker("one")
    cluster.feed(["a", "b", "c", "d"], OLD_MS)
    cluster.run(one, turns=3, step_ms=10)
    two = cluster.worker("two")
    two.turn(cluster.clock.now_ms())  # joins, so that the next poll of ``one`` revokes
    cluster.broker.faults.next("producer.flush", False)
    cluster.clock.advance(2_000)
    one._commit(cluster.clock.now_ms())  # its wait polls
    assert committed(cluster, "words", 0) == 2
    assert not one._tasks.running
    cluster.settle(one, two)
    assert cluster.counts() == dict(cluster.fed)


# -- topics ------------------------------------------------------------------------------------


def test_internal_topics_with_other_counts_are_refused_by_name_and_both_counts() -> None:
    cluster = Cluster(partitions=6)
    cluster.broker.create(CHANGELOG, 4, {"cleanup.policy": "compact"})
    with pytest.raises(TopicError, match=f"{CHANGELOG} has 4 partitions and must have 6"):
        cluster.worker()


def test_a_compacted_repartition_topic_is_refused() -> None:
    cluster = Cluster()
    cluster.broker.create(REPARTITION, 4, {"cleanup.policy": "compact,delete"})
    with pytest.raises(TopicError, match=f"{REPARTITION} has cleanup.policy=compact,delete"):
        cluster.worker()


def test_partitions_added_under_a_running_worker_stop_it() -> None:
    cluster = Cluster(partitions=2)
    worker = cluster.worker(counts_check_interval_ms=1_000)
    cluster.feed(["a"], OLD_MS)
    cluster.settle(worker)
    cluster.broker.topics[REPARTITION].partitions.append(
        type(cluster.broker.log(TopicPartition(REPARTITION, 0)))()
    )
    with pytest.raises(TopicError, match=f"{REPARTITION} had 2 partitions and has 3"):
        cluster.run(worker)


def test_without_a_cluster_the_start_may_be_tried_again() -> None:
    cluster = Cluster()
    cluster.broker.away = True
    with pytest.raises(RetriableError):
        cluster.worker()


# -- restore -----------------------------------------------------------------------------------


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_lost_disk_is_restored_from_the_changelog(guarantee: str) -> None:
    cluster = Cluster(guarantee=guarantee)
    disk = MemoryStateDir()
    first = cluster.worker(state_dir=disk)
    cluster.feed(["a", "b", "c"] * 100, OLD_MS, 20)
    cluster.settle(first)
    assert first.stop(cluster.clock.now_ms())
    disk.wipe()
    second = cluster.worker(state_dir=disk)
    cluster.feed(["a", "b", "c"] * 100, OLD_MS + 6_000, 20)
    cluster.settle(second)
    assert cluster.counts() == dict(cluster.fed)


def test_other_tasks_go_on_while_one_restores_and_the_group_is_polled() -> None:
    cluster = Cluster(partitions=1)
    disk = MemoryStateDir()
    first = cluster.worker(state_dir=disk)
    cluster.feed([f"word-{i}" for i in range(3_000)], OLD_MS)
    cluster.settle(first)
    first.stop(cluster.clock.now_ms())
    disk.wipe()
    second = cluster.worker(state_dir=disk, restore_rows_max=10)
    cluster.feed(["a"] * 10, OLD_MS + 1)
    cluster.run(second, turns=20, step_ms=100)
    assert state(second) is WorkerState.RESTORING
    assert list(second._tasks.running) == [TaskId(0, 0)]
    assert committed(cluster, "words", 0) == 3_010
    cluster.run(second, turns=600, step_ms=50)
    assert state(second) is WorkerState.RUNNING
    assert cluster.counts() == dict(cluster.fed)
    assert cluster.broker.group(NAMES.group).generation == 2  # one for each worker


def test_a_changelog_made_anew_replaces_the_local_store() -> None:
    cluster = Cluster(partitions=1)
    disk = MemoryStateDir()
    first = cluster.worker(state_dir=disk)
    cluster.feed(["a"] * 5, OLD_MS)
    cluster.settle(first)
    first.stop(cluster.clock.now_ms())
    settings = cluster.broker.topics[CHANGELOG].settings
    cluster.broker.delete(CHANGELOG)
    cluster.broker.create(CHANGELOG, 1, settings)
    second = cluster.worker(state_dir=disk)
    cluster.feed(["a"], OLD_MS)
    cluster.settle(second)
    assert disk.discarded == [(TaskId(1, 0), "windowed-counts")]
    assert cluster.counts() == {("a", OLD_MS // 10_000 * 10_000): 1}


def test_a_changelog_deleted_up_to_its_end_starts_empty() -> None:
    cluster = Cluster(partitions=1)
    disk = MemoryStateDir()
    first = cluster.worker(state_dir=disk)
    cluster.feed(["a"] * 5, OLD_MS)
    cluster.settle(first)
    first.stop(cluster.clock.now_ms())
    disk.wipe()
    log = cluster.broker.log(TopicPartition(CHANGELOG, 0))
    log.delete_before(log.end)
    second = cluster.worker(state_dir=disk, missing_records="continue")
    cluster.feed(["a"], OLD_MS)
    cluster.settle(second)
    assert cluster.counts() == {("a", OLD_MS // 10_000 * 10_000): 1}


def test_a_changelog_cut_off_under_a_restore_begins_again_with_an_empty_store() -> None:
    cluster = Cluster(partitions=1)
    disk = MemoryStateDir()
    first = cluster.worker(state_dir=disk)
    cluster.feed([f"word-{i}" for i in range(100)], OLD_MS)
    cluster.settle(first)
    first.stop(cluster.clock.now_ms())
    disk.wipe()
    second = cluster.worker(state_dir=disk, restore_rows_max=5, missing_records="continue")
    cluster.run(second, turns=4)
    assert state(second) is WorkerState.RESTORING
    cluster.broker.log(TopicPartition(CHANGELOG, 0)).delete_before(90)
    cluster.run(second, turns=60)
    assert state(second) is WorkerState.RUNNING
    assert disk.discarded == [(TaskId(1, 0), "windowed-counts")]


def test_a_restore_passes_a_changelog_that_ends_with_a_marker() -> None:
    cluster = Cluster(partitions=1, guarantee="exactly_once_v2")
    disk = MemoryStateDir()
    first = cluster.worker(state_dir=disk)
    cluster.feed(["a"] * 5, OLD_MS)
    cluster.settle(first)
    first.stop(cluster.clock.now_ms())
    assert cluster.broker.log(TopicPartition(CHANGELOG, 0)).records[-1].is_marker
    for wipe in (False, True):
        if wipe:
            disk.wipe()
        again = cluster.worker(state_dir=disk)
        cluster.run(again, turns=5)
        assert again.state is WorkerState.RUNNING
        again.stop(cluster.clock.now_ms())


def test_a_worker_without_any_admin_right_counts_and_asks_for_none_twice() -> None:
    cluster = Cluster(partitions=1)
    for topic in (REPARTITION, CHANGELOG):
        cluster.broker.create(topic, 1)
    cluster.broker.refused |= {"create", "settings", "delete_records"}
    worker = cluster.worker(repartition_purge_interval_ms=1_000)
    with capture_logs() as logs:
        for word in ("a", "b", "c"):
            cluster.feed([word] * 5, OLD_MS)
            cluster.settle(worker)
        asked_again = Exception("it was asked again")
        cluster.broker.faults.next("admin.delete_records", asked_again)
        cluster.feed(["d"], OLD_MS)
        cluster.settle(worker)
    assert cluster.counts() == dict(cluster.fed)
    told = [entry for entry in logs if "may not be deleted" in entry["event"]]
    assert [entry["topics"] for entry in told] == [[REPARTITION]]
    assert cluster.broker.faults.left == ["admin.delete_records"]
