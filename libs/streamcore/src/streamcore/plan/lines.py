"""The command lines of a plan, for Heroku's command line or Kafka's own, and scripts of them.

Heroku refuses to create what exists, with the same exit code as for any other trouble. So a line of
the script is content when the topic can be shown afterwards, and hides no message.
"""

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from streamcore import heroku
from streamcore.commands import kafka_recreate_command, kafka_topic_command, kafka_topics
from streamcore.config import StreamsConfig
from streamcore.plan.topics import PlannedGroup, PlannedTopic

Form = Literal["heroku", "kafka"]

# Both command lines show the partitions of a topic, in words of their own.
_FITS: Final = """\
# fits TOPIC PARTITIONS COMMAND...: is the topic that the command shows as wide as it must be?
fits() {
    topic=$1 wanted=$2
    shift 2
    shown=$("$@") || return 1
    found=$(printf '%s\\n' "$shown" |
        sed -n 's/.*Partition[A-Za-z]*: *\\([0-9][0-9]*\\).*/\\1/p' | head -n 1)
    [ "$found" != "$wanted" ] || return 0
    echo "$topic has ${found:-nobody knows how many} partitions, and $wanted are needed" >&2
    [ -z "$found" ]
}"""


@dataclass(frozen=True, slots=True)
class Target:
    """Where the commands go: Heroku's add-on plan and application, or Kafka's brokers.

    ``cluster`` is the word for one of the application's clusters; None where it has one only.
    """

    form: Form
    plan: heroku.Plan
    app: str | None = None
    servers: str = "localhost:9092"
    command_config: str | None = None
    cluster: str | None = None


def target_for(
    config: StreamsConfig,
    environ: Mapping[str, str],
    *,
    form: Form | None = None,
    plan: str | None = None,
    app: str | None = None,
) -> Target:
    """Return where commands go, with what was asked for, and what the settings look like.

    Only a shared cluster has a prefix; a plan that is not named is taken for the smallest of its
    kind.

    :raises ConfigError: if there is no such plan.
    """
    looks_so = heroku.on_heroku(environ) or bool(config.prefix) or config.brokers.tls
    smallest = heroku.smallest_plan(shared=bool(config.prefix) or not looks_so)
    return Target(
        form or ("heroku" if looks_so else "kafka"),
        smallest if plan is None else heroku.plan_named(plan),
        app or heroku.app_name(environ),
        config.brokers.servers,
        cluster=heroku.cluster_argument(environ, config.kafka_url, config.prefix),
    )


def heroku_topic(topic: PlannedTopic, plan: heroku.Plan) -> heroku.Topic:
    """Return the topic as the plan wants it to be told."""
    return heroku.topic_on(
        plan,
        topic.name,
        topic.partitions,
        compaction=topic.compaction,
        keep_ms=topic.retention_ms,
    )


def topic_line(topic: PlannedTopic, target: Target) -> str:
    """Return the command that creates a topic."""
    if target.form == "heroku":
        return heroku.topic_command(
            heroku_topic(topic, target.plan), target.app, cluster=target.cluster
        )
    return kafka_topic_command(
        topic.wire, topic.partitions, topic.settings, target.servers, target.command_config
    )


def anew_line(topic: PlannedTopic, target: Target) -> str:
    """Return the command that makes a topic anew with the partitions planned; its records go."""
    if target.form == "heroku":
        return heroku.recreate_command(
            heroku_topic(topic, target.plan), target.app, cluster=target.cluster
        )
    return kafka_recreate_command(
        topic.wire, topic.partitions, topic.settings, target.servers, target.command_config
    )


def group_line(group: PlannedGroup, target: Target) -> str | None:
    """Return the command that grants a group, None where groups need no grant."""
    if target.form == "heroku" and target.plan.shared:
        return heroku.group_command(group.name, target.app, cluster=target.cluster)
    return None


def lines(
    topics: Iterable[PlannedTopic], groups: Iterable[PlannedGroup], target: Target
) -> tuple[str, ...]:
    """Return all commands, topics first."""
    granted = (group_line(group, target) for group in groups)
    return (
        *(topic_line(topic, target) for topic in topics),
        *(line for line in granted if line is not None),
    )


def script(topics: Iterable[PlannedTopic], groups: Iterable[PlannedGroup], target: Target) -> str:
    """Return a shell script that may be run any number of times.

    Everything is tried; the exit code is 1 if something is missing at the end.
    """
    return "\n".join(_script(tuple(topics), tuple(groups), target)) + "\n"


def _script(
    topics: tuple[PlannedTopic, ...], groups: tuple[PlannedGroup, ...], target: Target
) -> Iterator[str]:
    yield "#!/bin/sh"
    yield "# Creates what is missing, and leaves alone what is there."
    yield "failed=0"
    if topics:
        yield _FITS
    if target.form == "kafka":
        yield from _kafka_script(topics, target)
    else:
        yield from _heroku_script(topics, groups, target)
    yield 'exit "$failed"'


def _kafka_script(topics: tuple[PlannedTopic, ...], target: Target) -> Iterator[str]:
    for topic in topics:
        words = kafka_topics(target.servers, target.command_config)
        shown = shlex.join([*words, "--describe", "--topic", topic.wire])
        fits = f"fits {shlex.quote(topic.wire)} {topic.partitions} {shown}"
        yield f"{topic_line(topic, target)} && {fits} || failed=1"


def _heroku_script(
    topics: tuple[PlannedTopic, ...], groups: tuple[PlannedGroup, ...], target: Target
) -> Iterator[str]:
    where = {"app": target.app, "cluster": target.cluster}
    listed = heroku.kafka_command("consumer-groups", **where)
    yield "# What exists is refused with a message; it is enough then that it is as it must be."
    for topic in topics:
        name = shlex.quote(topic.name)
        shown = heroku.kafka_command("topics:info", topic.name, **where)
        fits = f"fits {name} {topic.partitions} {shown}"
        yield f"{topic_line(topic, target)} || {fits} || failed=1"
    for group in groups:
        line = group_line(group, target)
        if line is not None:
            word = rf"(^|[^A-Za-z0-9_-]){re.escape(group.name)}([^A-Za-z0-9._-]|$)"
            yield f"{line} || {listed} | grep -Eq {shlex.quote(word)} || failed=1"
