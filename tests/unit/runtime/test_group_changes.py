"""A group that changes all the time, and commits that are refused by it."""

from collections import Counter

import pytest
from structlog.testing import capture_logs
from tests.unit.runtime.simulated import (
    CHANGELOG,
    NAMES,
    REPARTITION,
    START_MS,
    Cluster,
)
from tests.unit.runtime.test_external import WORDS, ending_in, write

from streamcore.errors import MemberFencedError, RetriableError, StreamsError, TopicError
from streamcore.model import TaskId, TopicPartition
from streamcore.runtime.lifecycle import WorkerState
from streamcore.runtime.worker import Worker
from streamcore.testing.consumer import MemoryConsumer
from streamcore.testing.external import Shelf

GUARANTEES = ["at_least_once", "exactly_once_v2"]
OLD_MS = START_MS - 86_400_000
REFUSALS: list[StreamsError] = [
    RetriableError("REBALANCE_IN_PROGRESS"),
    MemberFencedError("ILLEGAL_GENERATION"),
    MemberFencedError("UNKNOWN_MEMBER_ID"),
]


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_commits_refused_while_the_group_changes_end_no_worker_and_lose_nothing(
    guarantee: str,
) -> None:
    """P05."""
    cluster = Cluster(partitions=4, guarantee=guarantee)
    call = "consumer.commit" if guarantee == "at_least_once" else "producer.commit_transaction"
    workers = {"a": cluster.worker("a")}
    stamp_ms = OLD_MS
    for change in range(20):
        words = [f"word-{i % 7}" for i in range(50)]
        cluster.feed(words, stamp_ms, 20)
        cluster.run(*workers.values(), turns=6, step_ms=100)
        cluster.broker.faults.next(call, REFUSALS[change % len(REFUSALS)])
        slot = "bc"[change % 2]
        if slot in workers:
            workers.pop(slot).stop(cluster.clock.now_ms())
        else:
            workers[slot] = cluster.worker(slot)
        stamp_ms += 1_000
        cluster.run(*workers.values(), turns=4, step_ms=100)
    cluster.broker.faults.clear()
    cluster.run(*workers.values(), turns=100, step_ms=100)  # 10 s after the last change
    assert {worker.state for worker in workers.values()} == {WorkerState.RUNNING}
    owners = Counter(task for worker in workers.values() for task in worker._tasks.running)
    assert owners == {TaskId(sub, partition): 1 for sub in (0, 1) for partition in range(4)}
    assert cluster.lag() == 0
    counts, fed = cluster.counts(), dict(cluster.fed)
    assert counts.keys() == fed.keys()
    if guarantee == "exactly_once_v2":
        assert counts == fed
    else:
        assert not {key: (counts[key], fed[key]) for key in fed if counts[key] < fed[key]}


# -- mutations of the callbacks that must not live ---------------------------------------------


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_what_is_revoked_is_durable_when_the_callback_returns(guarantee: str) -> None:
    cluster = Cluster(partitions=1, guarantee=guarantee)
    one = cluster.worker("one", commit_interval_ms=1_000_000)
    cluster.feed(["a", "b"], OLD_MS)
    cluster.run(one, turns=6, step_ms=10)
    assert cluster.broker.group(NAMES.group).offsets[WORDS].offset == 0
    one._member._callbacks.on_revoked(())
    assert cluster.broker.group(NAMES.group).offsets[WORDS].offset == 2
    sent = [record.value for record in cluster.broker.read(REPARTITION) if record.key is not None]
    assert sent == [b"a", b"b"]
    assert one._tasks.running == {}


def lost(worker: Worker) -> list[str]:
    """Take everything from a worker, as of now, and return what it told its consumer."""
    told: list[str] = []
    consumer = worker._member.consumer
    assert isinstance(consumer, MemoryConsumer)
    with pytest.MonkeyPatch.context() as patch:
        # The real client may still have its id for a moment: this must not be what holds us back.
        patch.setattr(consumer, "member_id", lambda: "still there")
        patch.setattr(consumer, "commit", lambda *_: told.append("commit"))
        worker._member._callbacks.on_lost(())
    return told


def test_what_is_lost_is_neither_committed_nor_sent() -> None:
    cluster = Cluster(partitions=1)
    one = cluster.worker("one", commit_interval_ms=1_000_000)
    cluster.feed(["a", "b"], OLD_MS)
    cluster.run(one, turns=6, step_ms=10)
    changelog = cluster.broker.log(TopicPartition(CHANGELOG, 0)).end
    assert lost(one) == []
    assert cluster.broker.log(TopicPartition(CHANGELOG, 0)).end == changelog
    assert cluster.broker.read("windowed-counts") == []
    assert one._tasks.running == {}
    assert not one._outbound.is_open


def test_what_is_lost_reaches_no_external_store() -> None:
    cluster, shelf = Cluster(partitions=1), Shelf()
    one = cluster.worker("one", ending_in(shelf), commit_interval_ms=1_000_000)
    cluster.run(one, turns=2, step_ms=10)
    write(cluster, "ab")
    cluster.run(one, turns=2, step_ms=10)
    commits = shelf.commits
    assert lost(one) == []
    assert shelf.commits == commits
    assert shelf.contents() == {}


def test_a_transaction_of_what_is_lost_is_never_seen() -> None:
    cluster = Cluster(partitions=1, guarantee="exactly_once_v2")
    one = cluster.worker("one", commit_interval_ms=1_000_000)
    cluster.feed(["a", "b"], OLD_MS)
    cluster.run(one, turns=6, step_ms=10)
    assert lost(one) == []
    assert not one._outbound.is_open  # its connections may be as old as its membership
    assert cluster.broker.read(REPARTITION) == []
    assert cluster.broker.group(NAMES.group).offsets[WORDS].offset == 0
    one.close()
    cluster.settle(cluster.worker("one"))
    assert cluster.counts() == dict(cluster.fed)


# -- partition counts --------------------------------------------------------------------------


def test_a_changelog_made_by_hand_with_another_count_is_refused_before_anything_is_done() -> None:
    """P09."""
    cluster = Cluster(partitions=6)
    cluster.broker.create(REPARTITION, 6, {"cleanup.policy": "delete"})
    cluster.broker.create(CHANGELOG, 4, {"cleanup.policy": "compact"})
    cluster.feed(["a", "b"], OLD_MS)
    with pytest.raises(TopicError) as caught:
        cluster.worker()
    for part in (f"{CHANGELOG} has 4 partitions", "must have 6", "words has 6"):
        assert part in str(caught.value)
    assert WORDS not in cluster.broker.group(NAMES.group).offsets
    assert cluster.broker.group(NAMES.group).members == {}


def test_a_repartition_topic_altered_in_mid_run_stops_the_worker_with_both_counts() -> None:
    """P09: no key is counted in a partition whose state lives elsewhere."""
    cluster = Cluster(partitions=6)
    worker = cluster.worker(counts_check_interval_ms=1_000)
    with capture_logs():
        cluster.feed(["a", "b", "c"] * 20, OLD_MS)
        cluster.settle(worker)
        logs = cluster.broker.topics[REPARTITION].partitions
        logs += [type(logs[0])() for _ in range(2)]
        cluster.feed(["a", "b", "c"] * 20, OLD_MS)
        with pytest.raises(TopicError, match=f"{REPARTITION} had 6 partitions and has 8"):
            cluster.run(worker, turns=40)
    assert worker.state is WorkerState.ERROR
    assert [log.end for log in logs[6:]] == [0, 0]
