"""LineProducer: writing without a topology, with the engine's own settings and partitioning."""

import os

from streamcore.adapters.kafka_cluster import KafkaCluster
from streamcore.config import StreamsConfig
from streamcore.errors import MissingTopicsError
from streamcore.model import Send
from streamcore.remedies import mending_commands
from streamcore.runtime.outer_topics import fitting, missing_topic
from streamcore.topology.graph import Topology
from streamcore.topology.naming import Names

FEED_PATIENCE_S = 30


class LineProducer:
    """Writes records into topics that exist, by their bare names; the prefix is put on inside.

    The topology is that of the service whose topics they are.
    """

    def __init__(self, config: StreamsConfig, topology: Topology) -> None:
        self._config = config
        self._topology = topology
        self._names = Names(config.prefix, config.application_id)
        self._cluster = KafkaCluster(config, self._names.group)
        self._admin = self._cluster.admin()
        self._producer = self._cluster.producer()

    def partitions(self, topic: str) -> int:
        """Return the partitions of a topic.

        :raises MissingTopicsError: if it does not exist; the command that makes it is a note.
        :raises RetriableError: if the cluster did not answer.
        """
        theirs = (topic, *self._topology.source_topics, *self._topology.sink_topics)
        outer = {self._names.topic(one): one for one in theirs}
        found = self._admin.partitions(outer, FEED_PATIENCE_S * 1_000)
        name = self._names.topic(topic)
        count = found[name]
        if count is None:
            there = {outer[one]: width for one, width in found.items() if width is not None}
            width = fitting(self._topology, [topic], there)[topic]
            bare = self._names.bare(name)
            error = MissingTopicsError([missing_topic(self._topology, topic, bare, width)])
            for command in mending_commands(error, self._config, os.environ):
                error.add_note(command)
            raise error
        return count

    def send(self, send: Send) -> Send | None:
        """Queue the rows; return what did not fit."""
        self._cluster.serve()  # nobody else polls the client that has asked for partitions
        rest = self._producer.send(
            Send(
                self._names.topic(send.topic),
                send.keys,
                send.values,
                send.stamps_ms,
                send.headers,
                send.partition,
                send.partition_keys,
            )
        )
        if rest is not None:
            rest.topic = send.topic
        return rest

    def flush(self, timeout_ms: int) -> bool:
        """Return True when everything queued is acknowledged."""
        return self._producer.flush(timeout_ms)

    def close(self) -> None:
        """Throw away what is queued and let go."""
        self._producer.close()
        self._admin.close()
