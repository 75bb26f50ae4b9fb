"""The broker's contract on the real one, through the adapters of production."""

from collections.abc import Iterator

import pytest

from devstack.kafka import Broker
from devstack.pytest_plugin import Names
from streamcore.adapters.kafka_cluster import KafkaCluster
from streamcore.config import StreamsConfig
from streamcore.testing.contracts.broker import BrokerContract

pytestmark = pytest.mark.broker


class TestRealBroker(BrokerContract):
    @pytest.fixture(autouse=True)
    def _use(self, broker: Broker, names: Names) -> Iterator[None]:
        self._broker, self._names, self._number = broker, names, 0
        self._clusters: list[KafkaCluster] = []
        yield
        for cluster in self._clusters:
            cluster.close()

    def cluster(self, group: str) -> KafkaCluster:
        config = StreamsConfig(application_id=group, kafka_url=self._broker.url)
        self._clusters.append(KafkaCluster(config, group))
        return self._clusters[-1]

    def name(self, bare: str) -> str:
        self._number += 1
        return self._names(f"{bare}-{self._number}")
