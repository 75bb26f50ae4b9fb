"""The command lines that create or show what the add-ons give, ready to be copied into a shell.

Names in them are bare: the platform puts the prefix of a shared cluster on by itself. ``cluster``
names one of several Kafka add-ons of an app, as ``cluster_argument`` finds it.
"""

import shlex
from dataclasses import dataclass
from typing import Final

_HOUR_MS: Final = 3_600_000
_DAY_H: Final = 24
DATABASE_PLAN: Final = "heroku-postgresql:essential-0"


@dataclass(frozen=True, slots=True)
class App:
    """The application that commands are for; without a name the platform asks for it."""

    name: str | None = None


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic to be created. ``retention_ms`` None leaves it to the plan."""

    name: str
    partitions: int
    compaction: bool = False
    retention_ms: int | None = None

    def __post_init__(self) -> None:
        assert self.name, "a topic has a name"
        assert self.partitions > 0, f"{self.name} has {self.partitions} partitions"
        assert self.retention_ms is None or self.retention_ms > 0, f"{self.name}: {self}"


def kafka_command(
    name: str, *words: str, app: str | None = None, cluster: str | None = None
) -> str:
    """Return a line of the commands for Kafka; the cluster comes behind all that it is told.

    >>> kafka_command("topics:info", "flour", app="sushi", cluster="HEROKU_KAFKA_MAUVE_URL")
    'heroku kafka:topics:info flour HEROKU_KAFKA_MAUVE_URL --app sushi'
    """
    return _line(["heroku", f"kafka:{name}", *words, *_named(cluster)], app)


def topic_command(
    topic: Topic, app: str | None = None, prefix: str = "", cluster: str | None = None
) -> str:
    """Return the line that creates the topic; ``prefix`` is taken off its name.

    >>> topic_command(Topic("mill-1.flour", 4, compaction=True, retention_ms=129_600_000),
    ...               app="sushi", prefix="mill-1.")
    'heroku kafka:topics:create flour --partitions 4 --retention-time 36h --compaction --app sushi'
    """
    words = ["heroku", "kafka:topics:create", topic.name.removeprefix(prefix), *_named(cluster)]
    words += ["--partitions", str(topic.partitions)]
    if topic.retention_ms is not None:
        words += ["--retention-time", duration(topic.retention_ms)]
    if topic.compaction:
        words.append("--compaction")
    return _line(words, app)


def recreate_command(
    topic: Topic, app: str | None = None, prefix: str = "", cluster: str | None = None
) -> str:
    """Return the line that makes a topic anew, which takes its records with it.

    Nothing else changes the partitions of a topic. Without an app the platform asks for its name.

    >>> recreate_command(Topic("flour", 4), app="sushi")
    'heroku kafka:topics:destroy flour --app sushi --confirm sushi && \
heroku kafka:topics:create flour --partitions 4 --app sushi'
    """
    confirmed = [] if app is None else ["--app", app, "--confirm", app]
    words = ["heroku", "kafka:topics:destroy", topic.name.removeprefix(prefix), *_named(cluster)]
    create = topic_command(topic, app, prefix, cluster)
    return f"{shlex.join([*words, *confirmed])} && {create}"


def group_command(
    group: str, app: str | None = None, prefix: str = "", cluster: str | None = None
) -> str:
    """Return the line that grants the consumer group, which a shared cluster demands.

    >>> group_command("mill-1.millers", prefix="mill-1.")
    'heroku kafka:consumer-groups:create millers'
    """
    bare = group.removeprefix(prefix)
    return kafka_command("consumer-groups:create", bare, app=app, cluster=cluster)


def database_create_command(app: str | None = None) -> str:
    """Return the line that gives the app a database, in ``DATABASE_URL``."""
    return _line(["heroku", "addons:create", DATABASE_PLAN, "--as", "DATABASE"], app)


def database_info_command(app: str | None = None) -> str:
    """Return the line that shows the app's databases: their state, size and what they follow."""
    return _line(["heroku", "pg:info"], app)


def database_log_in_command(variable: str, app: str | None = None) -> str:
    """Return the line that gives the database behind a variable a new password, in it as well."""
    return _line(["heroku", "pg:credentials:rotate", variable], app)


def variable_command(variable: str, app: str | None = None) -> str:
    """Return the line that shows a variable."""
    return _line(["heroku", "config:get", variable], app)


def run_command(command: str, app: str | None = None) -> str:
    """Return the line that runs a command in a dyno of its own.

    >>> run_command("python -m mill grind", "sushi")
    'heroku run --app sushi -- python -m mill grind'
    """
    return f"{_line(['heroku', 'run'], app)} -- {command}"


def duration(ms: int) -> str:
    """Return a time as the command line takes it: hours, rounded up, or days from two on.

    >>> duration(86_400_000), duration(90_000_001), duration(604_800_000)
    ('24h', '26h', '7d')
    """
    assert ms > 0, f"{ms} ms is no time to keep anything"
    hours = -(-ms // _HOUR_MS)
    days, rest = divmod(hours, _DAY_H)
    return f"{hours}h" if rest or days < 2 else f"{days}d"


def _named(cluster: str | None) -> tuple[str, ...]:
    return (cluster,) if cluster else ()


def _line(words: list[str], app: str | None) -> str:
    return shlex.join([*words, *(("--app", app) if app else ())])
