"""A group that assigns itself: whenever its members read, they act on the same."""

from collections import Counter

import pytest
from structlog.testing import capture_logs
from tests.unit.runtime.simulated import CHANGELOG, NAMES, START_MS, Cluster

from streamcore import INT64, STR, Consumed, StreamsBuilder, Topology
from streamcore.errors import AuthorizationError, RetriableError
from streamcore.model import OffsetAndMetadata, Send, TaskId, TopicPartition
from streamcore.runtime.decision import Decision, decode, encode
from streamcore.runtime.lifecycle import WorkerState
from streamcore.runtime.members import key
from streamcore.runtime.worker import Worker
from streamcore.testing.broker import MemoryStateDir
from streamcore.testing.consumer import MemoryConsumer

GUARANTEES = ["at_least_once", "exactly_once_v2"]
OLD_MS = START_MS - 86_400_000
RECORD = TopicPartition(CHANGELOG, 0)
EVERY = {TaskId(sub, partition) for sub in (0, 1) for partition in range(4)}


def owners(*workers: Worker) -> Counter[TaskId]:
    return Counter(task for worker in workers for task in worker._tasks.running)


def record(cluster: Cluster) -> Decision | None:
    at = cluster.broker.group(NAMES.group).offsets.get(RECORD)
    return None if at is None else decode(at.metadata)


def crash(worker: Worker) -> None:
    consumer = worker._member.consumer
    assert isinstance(consumer, MemoryConsumer)
    consumer.dead = True


def another_topology() -> Topology:
    """The word count as its next release has it: it keeps the words, too."""
    builder = StreamsBuilder()
    builder.stream("words", Consumed(key=STR, value=STR)).to("kept")
    return builder.build()


@pytest.mark.parametrize("silent_turns", [1, 7, 40])
def test_members_that_read_at_different_moments_agree(silent_turns: int) -> None:
    cluster = Cluster()
    one, two = cluster.worker("one"), cluster.worker("two")
    cluster.settle(one, two)
    three = cluster.worker("three")
    before = cluster.broker.group(NAMES.group).generation
    while cluster.broker.group(NAMES.group).generation == before:
        cluster.run(one, two, three, turns=1)
    cluster.broker.faults.next("admin.group", False, times=silent_turns)
    cluster.run(three, turns=silent_turns)  # the other two decide, write it down, and run
    for _ in range(40):
        cluster.run(one, two, turns=1)
        assert max(owners(one, two, three).values(), default=0) <= 1
    cluster.broker.faults.clear()
    cluster.run(three, turns=10)
    assert owners(one, two, three) == dict.fromkeys(EVERY, 1)


def test_what_is_written_for_this_very_list_is_obeyed_as_it_stands() -> None:
    cluster = Cluster()
    one, two = cluster.worker("one"), cluster.worker("two")
    cluster.settle(one, two)
    written = record(cluster)
    assert written is not None
    group = cluster.broker.group(NAMES.group)
    assert written.key == key(group.describe())
    everything = min(written.owners.values())
    text = encode(Decision(written.key, dict.fromkeys(EVERY, everything), {}))
    assert text is not None
    group.offsets[RECORD] = OffsetAndMetadata(0, text)
    group.rebalance()  # the same members, the same shares: the same list
    cluster.settle(one, two)
    assert sorted(len(worker._tasks.running) for worker in (one, two)) == [0, len(EVERY)]


def test_a_lost_record_costs_nothing_but_moves() -> None:
    cluster = Cluster()
    one, two = cluster.worker("one"), cluster.worker("two")
    cluster.settle(one, two)
    del cluster.broker.group(NAMES.group).offsets[RECORD]
    cluster.broker.group(NAMES.group).rebalance()
    cluster.settle(one, two)
    assert owners(one, two) == dict.fromkeys(EVERY, 1)
    assert record(cluster) is not None


def test_whoever_stays_keeps_its_tasks_when_another_comes_and_goes() -> None:
    cluster = Cluster()
    one, two = cluster.worker("one"), cluster.worker("two")
    cluster.settle(one, two)
    had = [set(worker._tasks.running) for worker in (one, two)]
    three = cluster.worker("three")
    cluster.settle(one, two, three)
    with_three = [set(worker._tasks.running) for worker in (one, two)]
    assert all(now <= before for now, before in zip(with_three, had, strict=True))
    assert three.stop(cluster.clock.now_ms())
    cluster.settle(one, two)
    after = [set(worker._tasks.running) for worker in (one, two)]
    assert all(now >= before for now, before in zip(after, with_three, strict=True))


def test_the_topology_that_started_last_works_alone() -> None:
    cluster = Cluster()
    cluster.broker.create("kept", 4)
    old = [cluster.worker("one"), cluster.worker("two")]
    cluster.settle(*old)
    cluster.clock.advance(1)
    new = cluster.worker("three", another_topology())
    cluster.settle(*old, new)
    assert owners(*old) == {}
    assert set(new._tasks.running) == {TaskId(0, partition) for partition in range(4)}
    assert new.stop(cluster.clock.now_ms())  # rolled back
    cluster.settle(*old)
    assert owners(*old) == dict.fromkeys(EVERY, 1)


def test_a_consumer_that_is_not_ours_gets_nothing_and_is_named() -> None:
    cluster = Cluster()
    one = cluster.worker("one")
    cluster.settle(one)
    foreign = MemoryConsumer(cluster.broker, cluster.broker.group(NAMES.group), "tail")

    class Deaf:
        def on_assigned(self, shares: object) -> None: ...
        def on_revoked(self, shares: object) -> None: ...
        def on_lost(self, shares: object) -> None: ...

    foreign.subscribe(["words"], Deaf())
    with capture_logs() as logs:
        for _ in range(40):
            foreign.poll(1, 0)
            cluster.run(one, turns=1)
    assert owners(one) == dict.fromkeys(EVERY, 1)
    (said,) = {log["members"] for log in logs if log["event"].startswith("consumers that are not")}
    assert said.startswith("tail-")


@pytest.mark.parametrize("same_slot", [False, True])
def test_two_workers_with_one_slot_are_two_workers(same_slot: bool) -> None:
    cluster = Cluster(guarantee="exactly_once_v2")
    one, two = cluster.worker("one"), cluster.worker("one" if same_slot else "two")
    cluster.feed(["a", "b", "c"] * 30, OLD_MS, 100)
    cluster.settle(one, two)
    assert owners(one, two) == dict.fromkeys(EVERY, 1)
    assert cluster.counts() == dict(cluster.fed)
    assert one.metrics.value("streamcore_rebuilds_total") == 0, "one fenced the other"


def test_a_survivor_ends_the_transaction_of_the_dead() -> None:
    cluster = Cluster(guarantee="exactly_once_v2")
    one, two = cluster.worker("one", commit_interval_ms=8_000), cluster.worker("two")
    cluster.run(one, two, turns=50)
    cluster.feed(["a", "b", "c"] * 30, OLD_MS, 100)
    cluster.run(one, two, turns=4)
    left_open = set(cluster.broker.transactions)
    crash(one)
    assert any(".one." in name for name in left_open)
    cluster.broker.transaction_ms = 1 << 60  # the broker's own time-out shall not be what helps
    cluster.run(two, turns=120)
    assert set(two._tasks.running) == EVERY
    assert not [name for name in cluster.broker.transactions if ".one." in name]
    assert cluster.counts() == dict(cluster.fed)


def test_a_refused_description_ends_the_worker() -> None:
    cluster = Cluster()
    worker = cluster.worker()
    cluster.broker.faults.next("admin.group", AuthorizationError("may not describe the group"))
    with pytest.raises(AuthorizationError):
        cluster.run(worker, turns=20)
    assert worker.state is WorkerState.ERROR


def warms_up(worker: Worker) -> bool:
    return worker.state is WorkerState.WARMING_UP


# -- guests ------------------------------------------------------------------------------------


def filled(cluster: Cluster, words: int = 400) -> Worker:
    worker = cluster.worker("one")
    cluster.feed([f"w{n}" for n in range(words)], OLD_MS)
    cluster.settle(worker)
    return worker


def test_a_guest_joins_when_it_has_read_what_it_will_get() -> None:
    cluster = Cluster()
    one = filled(cluster)
    two = cluster.worker("two", acceptable_recovery_lag=0, restore_rows_max=20)
    group = cluster.broker.group(NAMES.group)
    generation, turns = group.generation, 0
    while warms_up(two):
        assert group.generation == generation, "the others notice nothing of a guest"
        assert len(group.members) == 1
        cluster.run(one, two, turns=1)
        turns += 1
        assert turns < 100
    assert turns > 5, "twenty rows a turn take their time"
    cluster.settle(one, two)
    assert two.metrics.value("streamcore_rows_restored_total") == 0, "it had them already"
    assert owners(one, two) == dict.fromkeys(EVERY, 1)


def test_a_guest_that_is_never_ready_joins_in_the_end() -> None:
    cluster = Cluster()
    one = filled(cluster)
    two = cluster.worker("two", acceptable_recovery_lag=0, warmup_max_ms=5_000)
    cluster.broker.faults.next("reader.poll", RetriableError("no answer"), times=1_000)
    cluster.run(one, two, turns=20)  # 4 s
    assert warms_up(two)
    with capture_logs() as logs:
        cluster.run(one, two, turns=10)
    cluster.broker.faults.clear()
    assert not warms_up(two)
    assert any(log["event"].startswith("joining although") for log in logs)
    cluster.settle(one, two)


def test_a_worker_that_comes_back_with_its_disk_joins_at_once() -> None:
    cluster, disk = Cluster(), MemoryStateDir()
    one, two = cluster.worker("one"), cluster.worker("two", state_dir=disk)
    cluster.feed([f"w{n}" for n in range(400)], OLD_MS)
    cluster.settle(one, two)
    assert two.stop(cluster.clock.now_ms())
    cluster.settle(one)
    again = cluster.worker("two", state_dir=disk, acceptable_recovery_lag=0)
    cluster.run(one, again, turns=3)
    assert not warms_up(again)


def test_nobody_warms_up_for_an_empty_group() -> None:
    cluster = Cluster()
    one = filled(cluster)
    assert one.stop(cluster.clock.now_ms())
    again = cluster.worker("two", acceptable_recovery_lag=0, restore_rows_max=20)
    cluster.run(again, turns=2)
    assert not warms_up(again)


def test_a_list_that_never_settles_does_not_keep_a_guest_out() -> None:
    cluster = Cluster()
    one = filled(cluster)
    crash(one)
    cluster.broker.group(NAMES.group).rebalance()  # and one never joins again
    two = cluster.worker("two")
    cluster.run(two, turns=100)
    assert set(two._tasks.running) == EVERY


# -- what stays --------------------------------------------------------------------------------


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_task_that_stays_reads_nothing_of_its_changelog_again(guarantee: str) -> None:
    cluster = Cluster(guarantee=guarantee)
    one = filled(cluster)
    cluster.broker.group(NAMES.group).rebalance()
    with capture_logs() as logs:
        cluster.settle(one)
    assert one.metrics.value("streamcore_rebalances_total") == 2
    assert [log for log in logs if log["event"] == "restore begins"] == []


@pytest.mark.parametrize("ended_well", [True, False])
def test_what_another_wrote_meanwhile_is_read(ended_well: bool) -> None:
    """Whatever a member believes of the generation before: another may have had the task."""
    cluster = Cluster(partitions=1, guarantee="exactly_once_v2")
    one = filled(cluster, words=5)
    cluster.broker.group(NAMES.group).rebalance()
    cluster.run(one, turns=1)  # committed and revoked, and assigned anew
    assert one._tasks._intact == {TaskId(0, 0), TaskId(1, 0)}
    if not ended_well:
        one._tasks._intact = frozenset()
    producer = cluster.broker.world(NAMES.group).producer("another")
    producer.init_transactions(1_000)
    producer.begin_transaction()
    key = cluster.broker.read(CHANGELOG)[0].key
    producer.send(Send(CHANGELOG, [key], [INT64.serialize(77)], [OLD_MS], None, 0))
    assert producer.flush(1_000)
    producer.commit_transaction({}, one._member.consumer.group_metadata(), 1_000)
    with capture_logs() as logs:
        cluster.settle(one)
    (begun,) = [log for log in logs if log["event"] == "restore begins"]
    assert begun["end"] - begun["offset"] == 3, "a marker of ours, their record, their marker"
    assert one.metrics.value("streamcore_rows_restored_total") == 1
