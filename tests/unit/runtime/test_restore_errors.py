"""Errors under a restore: no row of a changelog is passed over, and no restore waits for ever."""

import pytest
from tests.unit.runtime.simulated import CHANGELOG, START_MS, Cluster

from streamcore.errors import StoreDamagedError, TopicError
from streamcore.model import TaskId
from streamcore.runtime.lifecycle import WorkerState
from streamcore.state.memory import MemoryEngine
from streamcore.testing.broker import MemoryStateDir

OLD_MS = START_MS - 100_000


class DamagedOnce(MemoryStateDir):
    """Its first engine for a windowed store fails at the second write, as a bad disk does."""

    def __init__(self) -> None:
        super().__init__()
        self.writes = 0

    def open(self, task: TaskId, store: str) -> MemoryEngine:
        if self.writes < 2:
            return _Failing(self)
        return super().open(task, store)


class _Failing(MemoryEngine):
    def __init__(self, disk: DamagedOnce) -> None:
        super().__init__()
        self._disk = disk

    def write(self, changes, position) -> None:  # type: ignore[no-untyped-def]
        self._disk.writes += 1
        if self._disk.writes == 2:
            raise StoreDamagedError("here", "bad block")
        super().write(changes, position)


def counted_and_stopped(cluster: Cluster) -> None:
    first = cluster.worker("a")
    for _ in range(5):
        cluster.feed([f"word-{i}" for i in range(20)], OLD_MS)
        cluster.run(first)
    assert first.stop(cluster.clock.now_ms())


def test_a_store_that_breaks_under_its_restore_is_restored_from_the_beginning() -> None:
    cluster = Cluster(partitions=1, guarantee="exactly_once_v2")
    counted_and_stopped(cluster)
    disk = DamagedOnce()
    second = cluster.worker("b", state_dir=disk, restore_rows_max=30)
    cluster.feed([f"word-{i}" for i in range(20)], OLD_MS)
    cluster.settle(second)
    assert disk.writes == 2
    assert cluster.counts() == dict(cluster.fed)


def test_a_changelog_that_something_else_wrote_into_stops_the_worker_by_name() -> None:
    cluster = Cluster(partitions=1)
    counted_and_stopped(cluster)
    cluster.broker.write(CHANGELOG, b"short", b"x", OLD_MS, 0)
    second = cluster.worker("b")
    with pytest.raises(TopicError, match="windowed-counts-changelog"):
        cluster.run(second)
    assert second.state is WorkerState.ERROR
