"""Tasks that stand by: how far they read, what they must not read, and what they survive."""

import pytest
from structlog.testing import capture_logs
from tests.unit.runtime.simulated import (
    CHANGELOG,
    NAMES,
    START_MS,
    Cluster,
    settings,
    word_count,
)
from tests.unit.runtime.test_source_table_restore import lookup

from streamcore import Topology
from streamcore.errors import RetriableError, StateDirError, StoreDamagedError
from streamcore.model import TaskId, TopicPartition
from streamcore.runtime.blueprint import Blueprint
from streamcore.runtime.engines import CLEAN_UP_MS, Engines
from streamcore.runtime.restore import Lag, Restorer
from streamcore.runtime.standby import RENEW_MS, Standbys
from streamcore.runtime.tasks import Tasks
from streamcore.runtime.worker import Worker
from streamcore.state.memory import MemoryEngine
from streamcore.state.window import WindowStore
from streamcore.testing.broker import MemoryStateDir
from streamcore.testing.consumer import MemoryConsumer, MemoryReader
from streamcore.testing.producer import MemoryAdmin
from streamcore.topology.graph import partition_counts

COUNTS = TaskId(1, 0)
LOG = TopicPartition(CHANGELOG, 0)
STORE = "windowed-counts"


class Second:
    """What a second worker has, driven by hand."""

    def __init__(
        self,
        cluster: Cluster,
        topology: Topology | None = None,
        disk: MemoryStateDir | None = None,
    ) -> None:
        topology = topology or word_count()
        self.cluster = cluster
        broker = cluster.broker
        found = {name: len(topic.partitions) for name, topic in broker.topics.items()}
        counts = partition_counts(topology, found)
        blueprint = Blueprint(topology, NAMES, counts, settings(cluster.guarantee))
        admin = MemoryAdmin(broker)
        self.disk = disk or MemoryStateDir()
        self.consumer = MemoryConsumer(broker, broker.group(NAMES.group))
        self.reader = MemoryReader(broker)
        self.engines = Engines(self.disk)
        self.restorer = Restorer(self.reader, admin, blueprint.settings)
        self.standbys = Standbys(blueprint, self.engines, self.restorer, admin)
        self.tasks = Tasks(blueprint, self.engines, self.restorer, admin)
        self.inputs = blueprint.tasks()

    def turns(self, turns: int = 5, rows_max: int = 1_000) -> None:
        for _ in range(turns):
            now_ms = self.cluster.clock.now_ms()
            self.standbys.advance(self.consumer, now_ms)
            self.standbys.restore(rows_max, 0, now_ms)
            self.cluster.clock.advance(200)

    def take_over(self, task: TaskId) -> None:
        """Make the standby a task that runs."""
        self.standbys.want(self.standbys.tasks - {task})
        self.tasks.want({task: self.inputs[task]})
        for _ in range(20):
            self.tasks.advance(self.consumer, self.cluster.clock.now_ms())
            self.tasks.restore(1_000, 0, self.cluster.clock.now_ms())
        assert task in self.tasks.running

    def position(self) -> int:
        position = self.disk.open(COUNTS, STORE).position()
        assert position is not None
        return position.offset

    def contents(self, task: TaskId = COUNTS, store: str = STORE) -> dict[bytes, bytes]:
        return dict(self.disk.open(task, store).range(b"", None))


def owner(cluster: Cluster, disk: MemoryStateDir) -> Worker:
    worker = cluster.worker("a", state_dir=disk)
    cluster.settle(worker)
    return worker


def owned(disk: MemoryStateDir) -> dict[bytes, bytes]:
    return dict(disk.open(COUNTS, STORE).range(b"", None))


@pytest.fixture(params=["at_least_once", "exactly_once_v2"])
def cluster(request: pytest.FixtureRequest) -> Cluster:
    return Cluster(partitions=1, guarantee=request.param)


# -- following ---------------------------------------------------------------------------------


def test_a_standby_holds_what_the_owner_holds_and_says_how_far_behind_it_is(
    cluster: Cluster,
) -> None:
    disk = MemoryStateDir()
    worker = owner(cluster, disk)
    cluster.feed([f"w{i}" for i in range(50)], START_MS)
    cluster.settle(worker)
    second = Second(cluster)
    second.standbys.want([COUNTS])
    assert second.standbys.lag() is None
    second.standbys.advance(second.consumer, cluster.clock.now_ms())
    end = cluster.broker.log(LOG).end
    assert second.standbys.lag() == end >= 50
    second.turns(1, rows_max=20)
    assert 0 < (second.standbys.lag() or 0) <= end - 20
    second.turns()
    assert second.standbys.lag() == 0
    assert second.contents() == owned(disk) != {}
    cluster.feed(["more"] * 3 + ["w0"], START_MS)
    cluster.settle(worker)
    second.cluster.clock.advance(2_000)
    second.turns(1, rows_max=1)
    assert second.restorer.lags()[STORE, 0] == Lag(second.position(), cluster.broker.log(LOG).end)
    second.turns()
    assert second.standbys.lag() == 0
    assert second.contents() == owned(disk)
    assert second.restorer.restored_rows == 0
    assert second.restorer.followed_rows >= 52


def test_what_an_open_transaction_wrote_is_not_followed() -> None:
    cluster = Cluster(partitions=1, guarantee="exactly_once_v2")
    disk = MemoryStateDir()
    worker = owner(cluster, disk)
    cluster.feed(["a"], START_MS)
    cluster.settle(worker)
    cluster.broker.faults.next("producer.commit_transaction", RetriableError("?"), times=1_000)
    cluster.feed(["b"], START_MS)
    second = Second(cluster)
    second.standbys.want([COUNTS])
    cluster.run(worker, turns=5)
    second.turns()
    assert len(second.contents()) == 1


def test_windows_that_expire_leave_a_standby_too(cluster: Cluster) -> None:
    """By the owner's tombstones alone: before it is made anew, and after."""
    disk = MemoryStateDir()
    worker = owner(cluster, disk)
    second = Second(cluster)
    second.standbys.want([COUNTS])
    day_ms = 86_400_000
    for day in range(6):
        cluster.feed([f"w{i}" for i in range(5)], START_MS - (9 - day) * day_ms)
        cluster.settle(worker)
        if day == 3:  # its new watermark lies beyond what it still holds
            cluster.clock.advance(RENEW_MS)
        second.turns()
    assert len(owned(disk)) < 30
    assert second.contents() == owned(disk)


def test_a_standby_made_over_an_old_disk_drops_what_expired_meanwhile(cluster: Cluster) -> None:
    disk, old = MemoryStateDir(), MemoryStateDir()
    worker = owner(cluster, disk)
    day_ms = 86_400_000
    cluster.feed([f"w{i}" for i in range(5)], START_MS - 9 * day_ms)
    cluster.settle(worker)
    first = Second(cluster, disk=old)
    first.standbys.want([COUNTS])
    first.turns()
    assert len(first.contents()) == 5
    first.standbys.drop()
    for day in range(1, 4):
        cluster.feed(["x"], START_MS - (9 - day) * day_ms)
        cluster.settle(worker)
    again = Second(cluster, disk=old)
    again.standbys.want([COUNTS])
    again.turns()
    assert again.contents() == owned(disk)


def test_a_standby_forgets_windows_that_are_long_gone(cluster: Cluster) -> None:
    disk = MemoryStateDir()
    worker = owner(cluster, disk)
    second = Second(cluster)
    second.standbys.want([COUNTS])
    day_ms = 86_400_000
    for day in range(6):
        cluster.feed(["x"], START_MS - (9 - day) * day_ms)
        cluster.settle(worker)
        second.turns()
    cluster.clock.advance(RENEW_MS)
    second.turns()
    store = second.standbys._built[COUNTS].store(STORE)
    assert isinstance(store, WindowStore)
    assert len(store.starts()) == len(owned(disk)) < 6


def test_a_table_over_its_own_source_is_followed_as_far_as_it_is_consumed() -> None:
    cluster = Cluster(partitions=1)
    broker = cluster.broker
    for topic in ("names", "events", "found"):
        broker.create(topic, 1)
    worker = cluster.worker("a", lookup())
    broker.write("names", b"k", b"old", START_MS, 0)
    cluster.settle(worker)
    assert worker.stop(cluster.clock.now_ms())
    broker.write("names", b"k", b"new", START_MS + 1, 0)
    second = Second(cluster, lookup())
    second.standbys.want([TaskId(0, 0)])
    second.turns(50)
    held = second.contents(TaskId(0, 0), "names")
    assert [value[8:] for value in held.values()] == [b"old"]
    assert second.standbys.lag() == 0
    cluster.settle(cluster.worker("b", lookup()))
    second.turns(50)
    held = second.contents(TaskId(0, 0), "names")
    assert [value[8:] for value in held.values()] == [b"new"]


# -- beside tasks that run ---------------------------------------------------------------------


def test_what_is_to_run_is_restored_first_and_alone(cluster: Cluster) -> None:
    cluster.broker.delete("words")
    cluster.broker.create("words", 2)
    worker = owner(cluster, MemoryStateDir())
    cluster.feed([f"w{i}" for i in range(200)], START_MS)
    cluster.settle(worker)
    worker.stop(cluster.clock.now_ms())
    second = Second(cluster)
    other = TaskId(1, 1)
    second.standbys.want([other])
    second.turns(1, rows_max=5)
    second.tasks.want({COUNTS: second.inputs[COUNTS]})
    second.tasks.advance(second.consumer, cluster.clock.now_ms())
    before = second.restorer.followed_rows
    while COUNTS not in second.tasks._restored:
        second.standbys.restore(10, 0, cluster.clock.now_ms())
        assert second.restorer.followed_rows == before
        second.tasks.restore(10, 0, cluster.clock.now_ms())
        assert set(second.reader._positions) == {LOG}
    assert second.restorer.restored_rows > 50
    second.turns(30)
    assert second.standbys.lag() == 0
    assert set(second.reader._positions) == {TopicPartition(CHANGELOG, 1)}


def test_a_standby_that_takes_over_reads_the_tail_and_nothing_else(cluster: Cluster) -> None:
    disk = MemoryStateDir()
    worker = owner(cluster, disk)
    cluster.feed([f"w{i}" for i in range(500)], START_MS)
    cluster.settle(worker)
    second = Second(cluster)
    second.standbys.want([COUNTS])
    second.turns()
    cluster.feed(["tail-1", "tail-2", "w0"], START_MS)
    cluster.settle(worker)
    assert worker.stop(cluster.clock.now_ms())
    second.take_over(COUNTS)
    assert 3 <= second.restorer.restored_rows <= 10
    assert second.contents() == owned(disk)
    assert not second.restorer.following
    assert second.restorer.lags()[STORE, 0].records == 0
    assert second.reader._positions == {}, "the reader fetches what our own task writes"


def test_a_task_that_is_taken_away_goes_on_as_a_standby(cluster: Cluster) -> None:
    disk = MemoryStateDir()
    worker = owner(cluster, disk)
    cluster.feed(["a", "b"], START_MS)
    cluster.settle(worker)
    second = Second(cluster)
    second.take_over(COUNTS)
    second.tasks.drop(clean=True)
    second.standbys.want([COUNTS])
    cluster.feed(["c"], START_MS)
    cluster.settle(worker)
    second.turns()
    assert second.contents() == owned(disk)
    assert second.disk.discarded == []


# -- what goes wrong ---------------------------------------------------------------------------


def test_a_changelog_cut_off_in_front_of_a_standby_rebuilds_it(cluster: Cluster) -> None:
    disk = MemoryStateDir()
    worker = owner(cluster, disk)
    cluster.feed([f"w{i}" for i in range(50)], START_MS)
    cluster.settle(worker)
    second = Second(cluster)
    second.standbys.want([COUNTS])
    second.turns(1, rows_max=5)
    cluster.broker.log(LOG).delete_before(40)
    with capture_logs() as lines:
        second.turns()
    assert [line["event"] for line in lines] == [
        "the changelog was cut off; the store is rebuilt",
        "the changelog lost its oldest records; no open window needs them",
    ]
    assert second.disk.discarded == [(COUNTS, STORE)]
    left = {record.key for record in cluster.broker.read(CHANGELOG) if record.value is not None}
    assert len(second.contents()) == len(left) < 50


class DamagedOnce(MemoryStateDir):
    """Its first engine fails at the second write."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error
        self.writes = 0

    def open(self, task: TaskId, store: str) -> MemoryEngine:
        return _Failing(self) if self.writes < 2 else super().open(task, store)


class _Failing(MemoryEngine):
    def __init__(self, disk: DamagedOnce) -> None:
        super().__init__()
        self._disk = disk

    def write(self, changes, position) -> None:  # type: ignore[no-untyped-def]
        self._disk.writes += 1
        if self._disk.writes == 2:
            raise self._disk.error
        super().write(changes, position)


def test_a_store_that_breaks_under_a_standby_is_read_anew(cluster: Cluster) -> None:
    disk = MemoryStateDir()
    worker = owner(cluster, disk)
    cluster.feed([f"w{i}" for i in range(50)], START_MS)
    cluster.settle(worker)
    second = Second(cluster, disk=DamagedOnce(StoreDamagedError("here", "bad block")))
    second.standbys.want([COUNTS])
    with capture_logs() as lines:
        second.turns(20, rows_max=20)
    assert "standby tasks are made anew" in {line["event"] for line in lines}
    assert second.contents() == owned(disk)


def test_a_full_disk_is_not_tried_again(cluster: Cluster) -> None:
    worker = owner(cluster, MemoryStateDir())
    cluster.feed([f"w{i}" for i in range(50)], START_MS)
    cluster.settle(worker)
    second = Second(cluster, disk=DamagedOnce(StateDirError("no space left")))
    second.standbys.want([COUNTS])
    with pytest.raises(StateDirError):
        second.turns(20, rows_max=20)


@pytest.mark.parametrize("call", ["consumer.committed", "admin.offsets.latest", "reader.poll"])
def test_questions_that_are_not_answered_are_asked_again_and_harm_nobody(
    cluster: Cluster, call: str
) -> None:
    disk = MemoryStateDir()
    worker = owner(cluster, disk)
    cluster.feed([f"w{i}" for i in range(50)], START_MS)
    cluster.settle(worker)
    second = Second(cluster)
    second.standbys.want([COUNTS])
    cluster.broker.faults.next(call, RetriableError("no answer"), times=3)
    second.turns(20)
    assert cluster.broker.faults.left == []
    assert second.contents() == owned(disk)


def test_folders_of_tasks_that_went_elsewhere_are_removed_after_ten_minutes() -> None:
    cluster = Cluster(partitions=2)
    worker = owner(cluster, MemoryStateDir())
    cluster.feed(["a", "b", "c", "d"], START_MS)
    cluster.settle(worker)
    disk, other = MemoryStateDir(), TaskId(1, 1)
    second = Second(cluster, disk=disk)
    second.standbys.want([COUNTS, other])
    second.turns()
    second.engines.clean_up(cluster.clock.now_ms() + 10 * CLEAN_UP_MS)  # nothing is known yet
    assert {task for task, _ in disk._engines} == {COUNTS, other}
    second.standbys.want([COUNTS])
    second.engines.keep_only({COUNTS})
    began_ms = cluster.clock.now_ms()
    second.engines.clean_up(began_ms)
    second.engines.clean_up(began_ms + CLEAN_UP_MS - 1)
    assert {task for task, _ in disk._engines} == {COUNTS, other}
    second.engines.keep_only({COUNTS})  # a rebalance that moves nothing
    second.engines.clean_up(began_ms + CLEAN_UP_MS)
    assert {task for task, _ in disk._engines} == {COUNTS}


def test_a_changelog_made_anew_rebuilds_the_standby_when_it_is_made(cluster: Cluster) -> None:
    disk, old = MemoryStateDir(), MemoryStateDir()
    worker = owner(cluster, disk)
    cluster.feed(["a"] * 5, START_MS)
    cluster.settle(worker)
    second = Second(cluster, disk=old)
    second.standbys.want([COUNTS])
    second.turns()
    worker.stop(cluster.clock.now_ms())
    second.standbys.drop()
    topic = cluster.broker.topics[CHANGELOG].settings
    cluster.broker.delete(CHANGELOG)
    cluster.broker.create(CHANGELOG, 1, topic)
    again = Second(cluster, disk=old)
    again.standbys.want([COUNTS])
    again.turns()
    assert old.discarded == [(COUNTS, STORE)]
    assert again.contents() == {}
