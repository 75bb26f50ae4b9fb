"""Remedies: the exact commands that make what is missing. Text only; nothing is run.

Where the platform's own command line is the only way to make a topic, its form is printed, and
Kafka's own elsewhere.
"""

import shlex
from collections.abc import Iterator, Mapping

from streamcore import heroku
from streamcore.commands import kafka_recreate_command, kafka_topic_command
from streamcore.config import StreamsConfig
from streamcore.errors import (
    ConfigError,
    GroupRefusedError,
    MisfitTopicsError,
    MissingTopic,
    MissingTopicsError,
    StreamsError,
)
from streamcore.topology.naming import Names


def mending_commands(
    error: StreamsError, config: StreamsConfig, environ: Mapping[str, str]
) -> tuple[str, ...]:
    """Return the commands that make the topics, and grant the group, that the error misses.

    None for every other error. Names are bare in the platform's form, which puts the prefix on.
    Where the prefix itself is missing no command helps: then that is said.
    """
    if (problem := prefix_problem(error, config, environ)) is not None:
        return (problem,)
    if heroku.on_heroku(environ) or config.prefix or config.brokers.tls:
        return tuple(_for_heroku(error, config, environ))
    return tuple(_for_kafka(error, config))


def prefix_problem(
    error: StreamsError, config: StreamsConfig, environ: Mapping[str, str]
) -> str | None:
    """Return what to do if the error comes from a prefix that is not set, None if not.

    Only a shared cluster refuses groups, and there no name is without its prefix. A cluster of
    another kind, without TLS, may have rights of its own.
    """
    if config.prefix or not config.brokers.tls or not _misses_group(error):
        return None
    attachment = heroku.attachment_of(environ, config.kafka_url, config.prefix)
    try:
        names = heroku.kafka_variables(environ, attachment or "")
    except ConfigError:
        names = heroku.kafka_variables({})
    app = heroku.app_name(environ)
    command = shlex.join(
        ["heroku", "config:get", names["prefix"], *(("--app", app) if app else ())]
    )
    return (
        f"{names['prefix']} is not set, and the cluster refuses the consumer group: a shared "
        f"cluster does so for every name without the prefix, which is told by: {command}"
    )


def _misses_group(error: StreamsError) -> bool:
    if isinstance(error, MissingTopicsError):
        return error.group is not None
    return isinstance(error, GroupRefusedError)


def _for_heroku(
    error: StreamsError, config: StreamsConfig, environ: Mapping[str, str]
) -> Iterator[str]:
    app, prefix = heroku.app_name(environ), config.prefix
    cluster = heroku.cluster_argument(environ, config.kafka_url, prefix)
    plan = heroku.smallest_plan(shared=bool(prefix))
    if isinstance(error, MisfitTopicsError):
        for topic in error.topics:
            yield heroku.recreate_command(_on(plan, topic), app, prefix, cluster)
    if isinstance(error, MissingTopicsError):
        for topic in error.topics:
            yield heroku.topic_command(_on(plan, topic), app, prefix, cluster)
    if _misses_group(error):
        group = Names(prefix, config.application_id).group
        yield heroku.group_command(group, app, prefix, cluster)


def _on(plan: heroku.Plan, topic: MissingTopic) -> heroku.Topic:
    compaction = "compact" in topic.settings.get("cleanup.policy", "")
    return heroku.topic_on(
        plan, topic.name, topic.partitions, compaction=compaction, keep_ms=topic.keep_ms
    )


def _for_kafka(error: StreamsError, config: StreamsConfig) -> Iterator[str]:
    names, servers = Names(config.prefix, config.application_id), config.brokers.servers
    if isinstance(error, MisfitTopicsError | MissingTopicsError):
        anew = isinstance(error, MisfitTopicsError)
        command = kafka_recreate_command if anew else kafka_topic_command
        for topic in error.topics:
            yield command(names.topic(topic.name), topic.partitions, topic.settings, servers)
    if _misses_group(error):
        yield _grant(names.group, servers, config)


def _grant(group: str, servers: str, config: StreamsConfig) -> str:
    user = config.kafka_settings.get("sasl.username", "ANONYMOUS")
    words = ["kafka-acls.sh", "--bootstrap-server", servers, "--add"]
    words += ["--allow-principal", f"User:{user}", "--operation", "Read"]
    words += ["--operation", "Describe", "--group", group]
    return shlex.join(words)
