"""The program `heroku`, as far as a set-up of ours needs it.

Every command takes its app by `--app` or HEROKU_APP, as the real one does outside of a checkout.
Errors are one line on stderr and exit code 1; what it does not know is exit code 2.
"""

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from confluent_kafka import KafkaException

from devstack.errors import StackError
from devstack.heroku.account import Account, App, shell_assignments
from devstack.heroku.plans import plan_named
from devstack.heroku.topics import Cluster, Wish

Options = argparse.Namespace
Command = Callable[[Account, Options], list[str]]


class Add(Protocol):
    """Adds a command; an argument with a question mark may be left out."""

    def __call__(self, name: str, command: Command, *arguments: str) -> argparse.ArgumentParser:
        """Return the command's parser, for its flags."""


def run(arguments: Sequence[str], folder: Path) -> list[str]:
    """Do what the arguments say on the account of the folder, and return the lines to print.

    Raises StackError with the words of a refusal. Arguments it does not know end the program.
    """
    options = _parser().parse_args(_joined(arguments))
    command: Command = options.command
    with Account.changing(folder) as account:
        try:
            return command(account, options)
        except KafkaException as problem:
            raise StackError(f"the broker does not answer: {problem.args[0].str()}") from None


def main() -> None:
    """Run the command line of this process."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--account", type=Path, required=True)
    own, arguments = parser.parse_known_args(sys.argv[1:3])
    assert not arguments
    try:
        lines = run(sys.argv[3:], own.account)
    except StackError as problem:
        sys.stderr.write(f" \u203a   Error: {problem}\n")
        sys.exit(1)
    sys.stdout.writelines(f"{line}\n" for line in lines)


def _joined(arguments: Sequence[str]) -> list[str]:
    """`addons create` and `addons:create` are the same command."""
    topics = ("addons", "kafka", "config", "ps", "pg", "apps", "plugins", "releases")
    words = list(arguments)
    if len(words) > 1 and words[0] in topics and words[1] in _SECOND_WORDS:
        words[:2] = [":".join(words[:2])]
    return words


_SECOND_WORDS = ("create", "info", "wait", "set", "get", "scale", "install", "topics")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="heroku", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, command: Command, *arguments: str) -> argparse.ArgumentParser:
        made = commands.add_parser(name)
        made.set_defaults(command=command)
        made.add_argument("-a", "--app", default=os.environ.get("HEROKU_APP", ""))
        for argument in arguments:
            optional = argument.endswith("?")
            made.add_argument(argument.removesuffix("?"), nargs="?" if optional else None)
        return made

    _add_kafka(add)
    _add_the_rest(add)
    return parser


def _add_kafka(add: Add) -> None:
    create = add("kafka:topics:create", _topics_create, "topic", "cluster?")
    create.add_argument("--partitions", type=int)
    create.add_argument("--replication-factor", type=int)
    create.add_argument("--retention-time")
    create.add_argument("--compaction", action="store_true")
    add("kafka:topics", _topics, "cluster?")
    add("kafka:topics:info", _topics_info, "topic", "cluster?")
    destroy = add("kafka:topics:destroy", _topics_destroy, "topic", "cluster?")
    destroy.add_argument("--confirm")
    add("kafka:topics:retention-time", _topics_retention, "topic", "time", "cluster?")
    add("kafka:topics:compaction", _topics_compaction, "topic", "switch", "cluster?")
    add("kafka:consumer-groups", _groups, "cluster?")
    add("kafka:consumer-groups:create", _groups_create, "group", "cluster?")
    end = add("kafka:consumer-groups:destroy", _groups_destroy, "group", "cluster?")
    end.add_argument("--confirm")
    add("kafka:info", _kafka_info, "cluster?")
    add("kafka:wait", _kafka_wait, "cluster?")


def _add_the_rest(add: Add) -> None:
    add("pg:wait", _pg_wait, "database?")
    attach = add("addons:create", _addons_create, "plan")
    attach.add_argument("--as", dest="attachment")
    attach.add_argument("--wait", action="store_true")
    add("addons", _addons).add_argument("--json", action="store_true")
    add("addons:info", _addons_info, "addon")
    shown = add("config", _config)
    shown.add_argument("-s", "--shell", action="store_true")
    shown.add_argument("-j", "--json", action="store_true")
    add("config:get", _config_get, "name")
    add("config:set", _config_set).add_argument("pairs", nargs="+")
    add("ps:scale", _scale).add_argument("sizes", nargs="*")
    add("apps:create", _apps_create, "name")
    add("apps:info", _apps_info)
    add("auth:whoami", lambda _account, _options: ["nobody@example.com"])
    add("plugins:install", lambda _account, _options: [], "plugin")
    add("plugins", lambda _account, _options: ["heroku-kafka 3.0.3"])


def _app(account: Account, options: Options) -> App:
    if not options.app:
        raise StackError("Missing required flag app: name it by -a, or in HEROKU_APP")
    return account.app(options.app)


def _cluster(account: Account, options: Options) -> Cluster:
    return Cluster(_app(account, options).cluster(options.cluster), account.admin_bootstrap)


def _topics_create(account: Account, options: Options) -> list[str]:
    wish = Wish(
        name=options.topic,
        partitions=options.partitions,
        retention=options.retention_time,
        compaction=options.compaction,
        replication=options.replication_factor,
    )
    return [_cluster(account, options).create_topic(wish)]


def _topics(account: Account, options: Options) -> list[str]:
    cluster = _cluster(account, options)
    rows = [f"{name}  {count} partitions" for name, count in cluster.topics().items()]
    return [*rows] or ["No topics found on this Kafka cluster."]


def _topics_info(account: Account, options: Options) -> list[str]:
    return _cluster(account, options).describe_topic(options.topic)


def _topics_destroy(account: Account, options: Options) -> list[str]:
    _require_confirmed(options)
    _cluster(account, options).destroy_topic(options.topic)
    return [f"Deleting topic {options.topic}... done"]


def _topics_retention(account: Account, options: Options) -> list[str]:
    _cluster(account, options).set_retention(options.topic, options.time)
    return [f"Setting retention time of {options.topic} to {options.time}... done"]


def _topics_compaction(account: Account, options: Options) -> list[str]:
    if options.switch not in ("enable", "disable"):
        raise StackError("compaction is to be enable or disable")
    _cluster(account, options).set_compaction(options.topic, on=options.switch == "enable")
    return [f"Compaction of {options.topic}: {options.switch}d"]


def _groups(account: Account, options: Options) -> list[str]:
    return _cluster(account, options).groups() or ["No consumer groups found."]


def _groups_create(account: Account, options: Options) -> list[str]:
    return [_cluster(account, options).create_group(options.group)]


def _groups_destroy(account: Account, options: Options) -> list[str]:
    _require_confirmed(options)
    _cluster(account, options).destroy_group(options.group)
    return [f"Deleting consumer group {options.group}... done"]


def _require_confirmed(options: Options) -> None:
    if options.confirm != options.app:
        raise StackError(f"this destroys data: say --confirm {options.app}")


def _kafka_info(account: Account, options: Options) -> list[str]:
    lines: list[str] = []
    for add_on in _app(account, options).clusters(options.cluster):
        topics = Cluster(add_on, account.admin_bootstrap).topics()
        used = 3 * sum(topics.values())
        lines += [
            f"=== {add_on.attachment}_URL",
            f"Plan:       heroku-kafka:{add_on.plan.name}",
            "Status:     available",
            f"Topics:     {len(topics)}",
            f"Prefix:     {add_on.prefix or 'none'}",
            f"Partitions: {used} partition replicas of {add_on.plan.max_replicas}",
            f"Add-on:     {add_on.name}",
        ]
    return lines


def _kafka_wait(account: Account, options: Options) -> list[str]:
    _app(account, options).clusters(options.cluster)
    return []


def _pg_wait(account: Account, options: Options) -> list[str]:
    app = _app(account, options)
    if not any(name.startswith("heroku-postgresql") for name in app.add_ons):
        raise StackError(f"{app.name} has no databases")
    return []


def _addons_create(account: Account, options: Options) -> list[str]:
    app = _app(account, options)
    service, _, plan = options.plan.partition(":")
    if service == "heroku-kafka":
        account.add_kafka(app, plan_named(plan), attachment=options.attachment or "KAFKA")
    elif service == "heroku-postgresql":
        account.add_postgres(app, plan, options.attachment or "DATABASE")
    else:
        raise StackError(f"Couldn't find that add-on: {service}")
    return [f"Creating {options.plan} on {app.name}... done"]


def _addons(account: Account, options: Options) -> list[str]:
    app = _app(account, options)
    if options.json:
        named = [(plan.partition(":")[0], plan) for plan in app.add_ons]
        found = [{"addon_service": {"name": name}, "plan": {"name": plan}} for name, plan in named]
        return [json.dumps(found, indent=2)]
    return app.add_ons or [f"No add-ons for app {app.name}."]


def _addons_info(account: Account, options: Options) -> list[str]:
    app = _app(account, options)
    found = [name for name in app.add_ons if name.partition(":")[0] == options.addon]
    if not found:
        raise StackError(f"Couldn't find that add-on: {options.addon}")
    return [f"=== {found[0]}", "State: created"]


def _config(account: Account, options: Options) -> list[str]:
    app = _app(account, options)
    if options.json:
        return [json.dumps(app.config, indent=2)]
    if options.shell:
        return shell_assignments(app.config).splitlines()
    return [
        f"=== {app.name} Config Vars",
        *(f"{name}: {value}" for name, value in app.config.items()),
    ]


def _config_get(account: Account, options: Options) -> list[str]:
    return [_app(account, options).config.get(options.name, "")]


def _config_set(account: Account, options: Options) -> list[str]:
    app = _app(account, options)
    for pair in options.pairs:
        name, sign, value = pair.partition("=")
        if not sign or not name:
            raise StackError(f"{pair} is invalid. Must be in the format FOO=bar.")
        app.set(name, value)
    return [f"Setting {', '.join(pair.partition('=')[0] for pair in options.pairs)}... done"]


def _scale(account: Account, options: Options) -> list[str]:
    app = _app(account, options)
    if not app.formation:
        raise StackError(f"No process types on {app.name}: push code with a Procfile first")
    for size in options.sizes:
        name, sign, wanted = size.partition("=")
        count = wanted.partition(":")[0]
        if not sign or not count.isdigit():
            raise StackError(f"{size} is no NAME=NUMBER")
        if name not in app.formation:
            raise StackError(f"Couldn't find that process type ({name}).")
        app.formation[name] = int(count)
    return [" ".join(f"{name}={count}:Basic" for name, count in app.formation.items())]


def _apps_create(account: Account, options: Options) -> list[str]:
    account.add_app(options.name)
    return [f"Creating {options.name}... done"]


def _apps_info(account: Account, options: Options) -> list[str]:
    app = _app(account, options)
    return [f"=== {app.name}", f"Addons: {', '.join(app.add_ons)}"]
