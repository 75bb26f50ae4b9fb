"""Kafka's own command line for what must be created: text only, nothing is run."""

import shlex
from collections.abc import Mapping


def kafka_topics(servers: str, command_config: str | None = None) -> list[str]:
    """Return the words that every ``kafka-topics.sh`` line begins with."""
    words = ["kafka-topics.sh", "--bootstrap-server", servers]
    return words if command_config is None else [*words, "--command-config", command_config]


def kafka_topic_command(
    name: str,
    partitions: int,
    settings: Mapping[str, str],
    servers: str,
    command_config: str | None = None,
) -> str:
    """Return the ``kafka-topics.sh`` line that creates a topic, by its name on the broker.

    A topic that exists is fine. ``command_config`` is a file with the client's settings, which
    brokers with TLS need.

    >>> kafka_topic_command("words", 4, {"cleanup.policy": "delete"}, "localhost:9092")
    'kafka-topics.sh --bootstrap-server localhost:9092 --create --if-not-exists --topic words \
--partitions 4 --config cleanup.policy=delete'
    """
    words = kafka_topics(servers, command_config)
    words += ["--create", "--if-not-exists", "--topic", name, "--partitions", str(partitions)]
    for key, value in settings.items():
        words += ["--config", f"{key}={value}"]
    return shlex.join(words)


def kafka_recreate_command(
    name: str,
    partitions: int,
    settings: Mapping[str, str],
    servers: str,
    command_config: str | None = None,
) -> str:
    """Return the line that makes a topic anew, which takes its records with it."""
    words = [*kafka_topics(servers, command_config), "--delete", "--topic", name]
    create = kafka_topic_command(name, partitions, settings, servers, command_config)
    return f"{shlex.join(words)} && {create}"
