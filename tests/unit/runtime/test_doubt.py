"""After commits without an answer no input is idle that was not heard: not even its end is known.

The ends of logs come with what is fetched, so where nothing can be fetched nobody knows of more.
"""

from collections.abc import Callable

import pytest
from tests.unit.runtime.simulated import START_MS, Cluster, word_count
from tests.unit.runtime.test_idle import leave_one_unread

from streamcore.model import Fetched, TopicPartition
from streamcore.testing.consumer import MemoryConsumer

FIRST_MS = START_MS - 100_000
Hears = Callable[[TopicPartition], bool]


def hear_only(monkeypatch: pytest.MonkeyPatch, cluster: Cluster, hears: Hears) -> None:
    """Let consumers fetch from these partitions alone, and know the ends that were fetched."""
    fetch = MemoryConsumer.fetch
    ends: dict[TopicPartition, int] = {}

    def fetch_some(self: MemoryConsumer, rows_max: int) -> list[Fetched]:
        silent = {at for at in self._positions if not hears(at)}
        paused = set(self._paused)
        self._paused |= silent
        found = fetch(self, rows_max)
        self._paused = paused
        if not cluster.broker.away:
            heard = self._positions.keys() - silent
            ends.update({at: cluster.broker.log(at).end for at in heard})
        return found

    def unread(_self: object, positions: dict[TopicPartition, int]) -> set[TopicPartition]:
        return {at for at, offset in positions.items() if ends.get(at, 0) > offset}

    monkeypatch.setattr(MemoryConsumer, "fetch", fetch_some)
    monkeypatch.setattr(MemoryConsumer, "unread", unread)


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_what_an_outage_kept_unread_is_not_idle_when_its_leader_comes_back_last(
    guarantee: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    idle_after_ms = 20_000
    cluster = Cluster(partitions=2, guarantee=guarantee)
    late = False
    hear_only(monkeypatch, cluster, lambda at: not (late and at.topic == "words"))
    worker = cluster.worker(topology=word_count(final=True), task={"idle_after_ms": idle_after_ms})
    leave_one_unread(cluster, worker, FIRST_MS, idle_after_ms)
    cluster.broker.away, late = False, True
    cluster.run(worker, turns=60)  # the waits between tries are 5 s at most
    assert not worker._recovery.backoff.failing, "commits have not come back"
    late = False
    cluster.run(worker, turns=3 * idle_after_ms // 200)
    assert cluster.counts() == {(word, FIRST_MS): 1 for word in ("a", "b", "unread")}
