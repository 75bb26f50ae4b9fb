"""Remedies: the exact commands that make what is missing. Text only; nothing is run.

Where the platform's own command line is the only way to make a topic, its form is printed, and
Kafka's own elsewhere.
"""

import shlex
from collections.abc import Mapping

from streamcore.commands import kafka_topic_command
from streamcore.config import StreamsConfig
from streamcore.errors import GroupRefusedError, MissingTopic, MissingTopicsError, StreamsError
from streamcore.heroku import Topic, app_name, group_command, on_heroku, topic_command
from streamcore.topology.naming import Names


def mending_commands(
    error: StreamsError, config: StreamsConfig, environ: Mapping[str, str]
) -> tuple[str, ...]:
    """Return the commands that make the topics, and grant the group, that the error misses.

    None for every other error. Names are bare in the platform's form, which puts the prefix on.
    """
    names = Names(config.prefix, config.application_id)
    topics = error.topics if isinstance(error, MissingTopicsError) else ()
    no_group = isinstance(error, GroupRefusedError) or (
        isinstance(error, MissingTopicsError) and error.group is not None
    )
    if on_heroku(environ) or config.prefix or config.brokers.tls:
        app = app_name(environ)
        shared = bool(config.prefix)
        lines = [topic_command(_told(topic, shared=shared), app, config.prefix) for topic in topics]
        if no_group:
            lines.append(group_command(names.group, app, config.prefix))
        return tuple(lines)
    servers = config.brokers.servers
    lines = [
        kafka_topic_command(names.topic(topic.name), topic.partitions, topic.settings, servers)
        for topic in topics
    ]
    if no_group:
        lines.append(_grant(names.group, servers, config))
    return tuple(lines)


def _told(topic: MissingTopic, *, shared: bool) -> Topic:
    """A shared cluster deletes compacted topics by time as well, so they need a time there."""
    compaction = "compact" in topic.settings.get("cleanup.policy", "")
    keep_ms = topic.keep_ms if shared or not compaction else None
    return Topic(topic.name, topic.partitions, compaction, keep_ms)


def _grant(group: str, servers: str, config: StreamsConfig) -> str:
    user = config.kafka_settings.get("sasl.username", "ANONYMOUS")
    words = ["kafka-acls.sh", "--bootstrap-server", servers, "--add"]
    words += ["--allow-principal", f"User:{user}", "--operation", "Read"]
    words += ["--operation", "Describe", "--group", group]
    return shlex.join(words)
