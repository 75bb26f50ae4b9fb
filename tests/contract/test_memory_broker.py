"""The broker's contract on the one in memory."""

from streamcore.runtime.ports import Admin, ChangelogReader, Consumer, Producer, World
from streamcore.testing.broker import InMemoryBroker
from streamcore.testing.clock import ManualClock
from streamcore.testing.contracts.group import GroupContract


class MemoryCluster:
    """Clients of one group, from its worlds."""

    def __init__(self, broker: InMemoryBroker, group: str) -> None:
        self._broker, self._group = broker, group

    def _world(self) -> World:
        return self._broker.world(self._group)

    def consumer(self, client_id: str = "") -> Consumer:
        return self._world().consumer(client_id)

    def changelog_reader(self) -> ChangelogReader:
        return self._world().reader()

    def producer(self, transactional_id: str | None = None) -> Producer:
        return self._world().producer(transactional_id)

    def admin(self) -> Admin:
        return self._world().admin


class TestMemoryBroker(GroupContract):
    def setup_method(self) -> None:
        self._broker = InMemoryBroker(ManualClock())
        self._number = 0

    def cluster(self, group: str) -> MemoryCluster:
        return MemoryCluster(self._broker, group)

    def name(self, bare: str) -> str:
        self._number += 1
        return f"{bare}-{self._number}"
