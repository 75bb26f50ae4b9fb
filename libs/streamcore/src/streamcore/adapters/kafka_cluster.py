"""KafkaCluster: the one door to a cluster. It makes the clients and sees that each is polled."""

import weakref
from typing import TypeVar

from streamcore.adapters.kafka_admin import KafkaAdmin
from streamcore.adapters.kafka_consumer import KafkaChangelogReader, KafkaConsumer
from streamcore.adapters.kafka_producer import KafkaProducer
from streamcore.adapters.kafka_refusals import Refusals
from streamcore.adapters.kafka_settings import (
    Settings,
    admin_settings,
    consumer_settings,
    producer_settings,
    reader_settings,
)
from streamcore.adapters.kafka_sifter import SiftingProducer
from streamcore.adapters.rare_log import RareLog
from streamcore.config import StreamsConfig

Client = KafkaConsumer | KafkaProducer | SiftingProducer | KafkaChangelogReader | KafkaAdmin
C = TypeVar("C", bound=Client)


class KafkaCluster:
    """Clients of one application, made from its settings.

    Events of a client (statistics, errors, reports) pile up in memory until it is polled. A worker
    polls its consumer in every turn; the consumer serves all the others. ``client_id`` is how the
    broker's own logs and quotas name all clients but the members of the group; it need not be
    unique.
    """

    def __init__(self, config: StreamsConfig, group: str, client_id: str = "") -> None:
        self._config = config
        self._group = group
        self._identity: Settings = {"client.id": client_id or group}
        self._refusals = Refusals()
        self._log = RareLog(hear=self._refusals.hear)
        self._clients: weakref.WeakSet[Client] = weakref.WeakSet()

    @property
    def throttled_ms(self) -> int:
        """For how long brokers have held back answers to these clients, in all."""
        return self._log.throttled_ms

    def consumer(self, client_id: str = "") -> KafkaConsumer:
        """Return a new member-to-be of the group, by whose client id the others will know it."""
        settings = {**consumer_settings(self._config, self._group), **self._identity}
        if client_id:
            settings["client.id"] = client_id
        consumer = KafkaConsumer(settings, self._log, self.serve, self._on_new_generation)
        return self._known(consumer)

    def changelog_reader(self) -> KafkaChangelogReader:
        """Return a new reader of changelogs."""
        settings = {**reader_settings(self._config, self._group), **self._identity}
        return self._known(KafkaChangelogReader(settings, self._log))

    def producer(self, transactional_id: str | None = None) -> KafkaProducer | SiftingProducer:
        """Return a new producer, transactional if it is given an id.

        Where the policy is to go on without records that the broker refuses, it finds them out.
        """
        settings = {**producer_settings(self._config, transactional_id), **self._identity}
        if self._config.production_error == "stop":
            return self._known(KafkaProducer(settings, self._log))
        assert transactional_id is None, "a transaction cannot go on without a record"
        # It is never flushed, so batches must not wait long to be filled.
        settings |= {"enable.gapless.guarantee": True, "linger.ms": 10}
        return self._known(SiftingProducer(lambda: KafkaProducer(settings, self._log)))

    def admin(self) -> KafkaAdmin:
        """Return a new client for questions about topics and groups."""
        settings = {**admin_settings(self._config), **self._identity}
        replicas = self._config.replication_factor
        return self._known(KafkaAdmin(settings, self._log, replicas, self._refusals))

    def serve(self) -> None:
        """Take away the events of every client that is still held, but for rows.

        :raises AuthorizationError: if no broker has taken us for who we are for long.
        """
        for client in self._clients:
            client.serve()
        self._refusals.raise_if_lasting()

    def close(self) -> None:
        """Close every client that is still held; those that are closed already do not mind."""
        for client in tuple(self._clients):
            client.close()

    def _on_new_generation(self) -> None:
        for client in self._clients:
            if isinstance(client, KafkaAdmin):
                client.on_new_generation()

    def _known(self, client: C) -> C:
        self._clients.add(client)
        return client
