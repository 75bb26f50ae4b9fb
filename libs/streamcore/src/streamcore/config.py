"""StreamsConfig: every setting of the engine, checked all at once; no I/O and no environment.

Where the settings come from (environment, code, a file) is somebody else's business. What can be
wrong about them is told here, in one ``ConfigError`` with a line for each problem, before anything
is started.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, get_args

from streamcore.errors import ConfigError

Guarantee = Literal["at_least_once", "exactly_once_v2"]
Policy = Literal["stop", "continue", "dead-letter"]
EventTime = Literal["source", "operator"]
OffsetReset = Literal["earliest", "latest", "error"]
MissingRecords = Literal["stop", "continue"]
WorkerFailure = Literal["stop", "replace"]
LogFormat = Literal["auto", "console", "json", "logfmt"]

FORBIDDEN_KAFKA_SETTINGS: Mapping[str, str] = {
    # Each of these would break a promise, or has a setting of its own.
    "bootstrap.servers": "set bootstrap_servers or kafka_url",
    "metadata.broker.list": "set bootstrap_servers or kafka_url",
    "client.id": "the engine names its clients",
    "group.id": "set application_id",
    "group.instance.id": "static members leave their partitions idle when they stop",
    "group.protocol": "assigning inside the rebalance callback needs the classic protocol",
    "group.remote.assignor": "assigning inside the rebalance callback needs the classic protocol",
    "partition.assignment.strategy": "the engine chooses it",
    "enable.auto.commit": "the engine commits",
    "auto.commit.interval.ms": "set commit_interval_ms",
    "enable.auto.offset.store": "the engine commits",
    "auto.offset.reset": "set auto_offset_reset",
    "session.timeout.ms": "set session_timeout_ms",
    "max.poll.interval.ms": "set max_poll_interval_ms",
    "isolation.level": "uncommitted records are never read",
    "enable.partition.eof": "the engine needs the ends of partitions",
    "transactional.id": "the engine chooses it",
    "transaction.timeout.ms": "set transaction_timeout_ms",
    "enable.idempotence": "retries without it write records twice",
    "enable.gapless.guarantee": "the engine goes back to its last commit instead",
    "acks": "a record counts as written when all replicas in sync have it",
    "request.required.acks": "a record counts as written when all replicas in sync have it",
    "message.timeout.ms": "it follows from session_timeout_ms and transaction_timeout_ms",
    "delivery.timeout.ms": "it follows from session_timeout_ms and transaction_timeout_ms",
    "partitioner": "keys must go where Kafka's own clients put them",
    "delivery.report.only.error": "the engine needs failed deliveries, and no others",
}
SCOPES = ("consumer", "restore", "producer", "admin")

_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+")
_BROKER = re.compile(r"(?P<host>\[[0-9a-fA-F:.]+\]|[a-zA-Z0-9._-]+):(?P<port>[0-9]{1,5})")
_HARMLESS = re.compile(r"[a-zA-Z0-9._-]*(:[a-zA-Z0-9]*)?/?")
_PEM_LINE = re.compile(r"-----(BEGIN|END) ([A-Z0-9 ]+)-----")


class Brokers(NamedTuple):
    """Where the brokers are: ``host:port,host:port``, and whether they speak TLS."""

    servers: str
    tls: bool


def parse_kafka_url(url: str, name: str = "KAFKA_URL") -> Brokers:
    """Return the brokers of a ``KAFKA_URL``; spaces and a trailing comma are tolerated.

    >>> parse_kafka_url("kafka+ssl://one:9096, kafka+ssl://two:9096,")
    Brokers(servers='one:9096,two:9096', tls=True)

    :raises ConfigError: what is wrong, in one line that begins with ``name``. Of the value nothing
        is repeated but what looks like a host and a port: a password may stand anywhere.
    """
    items = [item.strip() for item in url.split(",")]
    if len(items) > 1 and not items[-1]:
        items.pop()
    servers, schemes = [], set()
    for number, item in enumerate(items, 1):
        scheme, separator, address = item.partition("://")
        if not item:
            raise ConfigError([f"{name}: broker {number} of {len(items)} is empty"])
        if not separator or scheme not in {"kafka", "kafka+ssl"}:
            raise ConfigError([f"{name}: broker {number} must begin with kafka:// or kafka+ssl://"])
        if "@" in address:
            raise ConfigError([f"{name}: broker {number} holds a user; brokers take none there"])
        match = _BROKER.fullmatch(address.rstrip("/"))
        if match is None or not 0 < int(match["port"]) < 65_536:
            shown = f" ({address})" if _HARMLESS.fullmatch(address) else ""
            raise ConfigError([f"{name}: broker {number}{shown} must be host:port"])
        schemes.add(scheme)
        servers.append(match[0])
    if len(schemes) > 1:
        raise ConfigError([f"{name}: kafka:// and kafka+ssl:// are mixed; all must be the same"])
    return Brokers(",".join(servers), schemes == {"kafka+ssl"})


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsConfig:
    """Settings of one application, frozen and checked.

    Names follow Kafka Streams where it has the setting. Brokers come from ``kafka_url`` (as on
    Heroku, ``kafka+ssl://`` with the certificates beside it) or ``bootstrap_servers`` (plain).
    ``kafka_settings`` are handed to librdkafka; a key may begin with ``consumer.``, ``restore.``,
    ``producer.`` or ``admin.`` to reach that kind of client only.

    ``num_stream_threads`` is the article's word; in Python a thread adds no core, so that many
    worker processes are started under this one. ``worker_failure`` says whether the death of one of
    them ends all, or it is replaced. A worker that comes into a running application reads the state
    of the tasks that it will get before it joins: until it lags by ``acceptable_recovery_lag``
    records at most, for ``warmup_max_ms`` at most. ``missing_records`` is for input that is gone
    while the state built from it is not.

    ``cache_max_bytes`` is the memory of a worker that has all tasks. Half of it is for what changed
    since the last commit (a commit comes early when that is full), half for reading; 0 sends each
    update on at once. ``memory_limit_bytes`` is for the whole process: above it the caches shrink.

    ``instance`` names this process where somebody looks (log, metrics, client ids); it need not be
    unique, and empty means the host's name. A worker whose loop is silent for ``stall_timeout_ms``
    (0: for ever) writes the stacks of its threads and ends with exit code 1. With
    ``wait_for_topics`` missing topics and group rights are waited for; without it they end the
    start. ``metrics_log_interval_ms`` is how often the metrics are written to the log.

    :raises ConfigError: with every problem found.
    """

    application_id: str
    prefix: str = ""
    instance: str = ""

    kafka_url: str = ""
    bootstrap_servers: str = ""
    # PEM text, never a path. Out of the repr: a key must not get into a log by way of it.
    kafka_trusted_cert: str = field(default="", repr=False)
    kafka_client_cert: str = field(default="", repr=False)
    kafka_client_cert_key: str = field(default="", repr=False)
    kafka_settings: Mapping[str, str] = field(default_factory=dict, repr=False)

    processing_guarantee: Guarantee = "at_least_once"
    commit_interval_ms: int = 1_000
    state_dir: str = "state"
    num_stream_threads: int = 1
    worker_failure: WorkerFailure = "stop"
    num_standby_replicas: int = 0
    acceptable_recovery_lag: int = 10_000
    warmup_max_ms: int = 600_000

    session_timeout_ms: int = 10_000
    max_poll_interval_ms: int = 300_000
    transaction_timeout_ms: int = 10_000
    shutdown_timeout_ms: int = 25_000
    auto_offset_reset: OffsetReset = "earliest"
    missing_records: MissingRecords = "stop"
    wait_for_topics: bool = False

    deserialization_error: Policy = "stop"
    timestamp_error: Policy = "stop"
    processing_error: Policy = "stop"
    production_error: Policy = "stop"
    dead_letter_topic: str | None = None

    event_time: EventTime = "source"
    max_timestamp_ahead_ms: int = 3_600_000
    idle_after_ms: int = 60_000

    cache_max_bytes: int = 32 * 1024 * 1024
    poll_rows_max: int = 1_000
    buffered_rows_max: int = 10_000
    replication_factor: int = -1
    repartition_purge_interval_ms: int = 30_000

    memory_limit_bytes: int | None = None
    stall_timeout_ms: int = 60_000
    metrics_port: int | None = None
    metrics_log_interval_ms: int | None = None
    log_format: LogFormat = "auto"

    def __post_init__(self) -> None:
        problems = [*_problems(self)]
        if problems:
            raise ConfigError(problems)

    @property
    def exactly_once(self) -> bool:
        """Whether everything between two commits is one transaction."""
        return self.processing_guarantee == "exactly_once_v2"

    @property
    def brokers(self) -> Brokers:
        """Where the brokers are, from whichever of the two settings was given."""
        if self.kafka_url:
            return parse_kafka_url(self.kafka_url)
        return Brokers(self.bootstrap_servers, tls=False)


def _problems(config: StreamsConfig) -> Iterator[str]:
    yield from _names(config)
    yield from _connection(config)
    yield from _choices(config)
    yield from _numbers(config)
    yield from _optional_numbers(config)
    yield from _relations(config)
    yield from _kafka_settings(config.kafka_settings)


def _names(config: StreamsConfig) -> Iterator[str]:
    if not config.application_id:
        yield "application_id is empty"
    for name in ("application_id", "prefix", "instance", "dead_letter_topic"):
        value = getattr(config, name)
        if value and not _LEGAL_NAME.fullmatch(value):
            yield f"{name} is {value!r}; Kafka allows letters, digits, '.', '_' and '-'"
    # Internal topics append store names to it, and Kafka's limit for a topic is 249.
    if len(config.prefix) + len(config.application_id) > 150:
        yield "application_id with its prefix is longer than 150 characters"
    if not config.state_dir:
        yield "state_dir is empty"


def _connection(config: StreamsConfig) -> Iterator[str]:
    if bool(config.kafka_url) == bool(config.bootstrap_servers):
        yield "exactly one of kafka_url and bootstrap_servers must be set"
    if not config.kafka_url:
        return
    try:
        tls = parse_kafka_url(config.kafka_url, "kafka_url").tls
    except ConfigError as error:
        yield from error.problems
        return
    pems = ("kafka_trusted_cert", "kafka_client_cert", "kafka_client_cert_key")
    for name in pems if tls else ():
        value = getattr(config, name)
        if not value:
            yield f"kafka+ssl:// needs {name} ({name.upper()})"
        else:
            yield from _pem_problems(name, value)


def _pem_problems(name: str, text: str) -> Iterator[str]:
    """Yield what is wrong with a PEM text; it may be a key, so nothing of it is shown."""
    lines = _PEM_LINE.findall(text)
    begun = [what for place, what in lines if place == "BEGIN"]
    ended = [what for place, what in lines if place == "END"]
    if "-----BEGIN " not in text:  # a path, most often
        yield f"{name} must be PEM text, and it has no BEGIN line"
    elif not begun or begun != ended or "-----BEGIN " in text.rpartition("-----END ")[2]:
        yield f"{name} must be PEM text, and it is cut off: a BEGIN line has no END line"
    elif name.endswith("_key") != any("PRIVATE KEY" in what for what in begun):
        wanted = "a private key" if name.endswith("_key") else "certificates"
        yield f"{name} must be {wanted}, and that is not what its BEGIN line says"


def _choices(config: StreamsConfig) -> Iterator[str]:
    policies = ("deserialization_error", "timestamp_error", "processing_error", "production_error")
    legal: dict[str, tuple[str, ...]] = {
        "processing_guarantee": get_args(Guarantee),
        "auto_offset_reset": get_args(OffsetReset),
        "missing_records": get_args(MissingRecords),
        "worker_failure": get_args(WorkerFailure),
        "event_time": get_args(EventTime),
        "log_format": get_args(LogFormat),
        **dict.fromkeys(policies, get_args(Policy)),
    }
    for name, values in legal.items():
        if getattr(config, name) not in values:
            yield f"{name} is {getattr(config, name)!r}; it must be one of {', '.join(values)}"
    if config.exactly_once and config.production_error != "stop":
        yield (
            f"production_error is {config.production_error!r}; under exactly_once_v2 it must be "
            "'stop': a refused record takes its whole transaction with it"
        )
    dead_lettered = [name for name in policies if getattr(config, name) == "dead-letter"]
    if dead_lettered and not config.dead_letter_topic:
        yield f"{dead_lettered[0]} is 'dead-letter', and dead_letter_topic is not set"


# Smallest and largest legal value; None: no limit.
_BOUNDS: Mapping[str, tuple[int, int | None]] = {
    "commit_interval_ms": (1, None),
    "session_timeout_ms": (1_000, 3_600_000),
    "max_poll_interval_ms": (1_000, 86_400_000),
    "transaction_timeout_ms": (1_000, 900_000),  # the broker's own default limit
    "shutdown_timeout_ms": (1, 26_000),  # platforms kill after 30 s, and ending takes its time
    "max_timestamp_ahead_ms": (0, None),
    "idle_after_ms": (0, None),
    "cache_max_bytes": (0, None),
    "poll_rows_max": (1, 1_000_000),  # librdkafka's limit for one call
    "buffered_rows_max": (1, None),
    "repartition_purge_interval_ms": (1, None),
    "num_stream_threads": (1, None),
    "num_standby_replicas": (0, None),
    "acceptable_recovery_lag": (0, None),
    "warmup_max_ms": (0, None),
    "stall_timeout_ms": (0, None),
}


def _numbers(config: StreamsConfig) -> Iterator[str]:
    for name, (smallest, largest) in _BOUNDS.items():
        value = getattr(config, name)
        if value < smallest:
            yield f"{name} is {value}; it must be at least {smallest}"
        elif largest is not None and value > largest:
            yield f"{name} is {value}; it must be at most {largest}"
    if config.replication_factor != -1 and not 1 <= config.replication_factor <= 32_767:
        yield (
            f"replication_factor is {config.replication_factor}; "
            "it must be at least 1, or -1 for the broker's default"
        )
    if config.metrics_port is not None and not 0 <= config.metrics_port < 65_536:
        yield f"metrics_port is {config.metrics_port}; it must be a port, 0 for any free one"


def _optional_numbers(config: StreamsConfig) -> Iterator[str]:
    for name, smallest in (("memory_limit_bytes", 1), ("metrics_log_interval_ms", 1_000)):
        value = getattr(config, name)
        if value is not None and value < smallest:
            yield f"{name} is {value}; it must be at least {smallest}"


def _relations(config: StreamsConfig) -> Iterator[str]:
    if config.max_poll_interval_ms < config.session_timeout_ms:
        yield "max_poll_interval_ms must not be below session_timeout_ms"
    if config.exactly_once and config.commit_interval_ms >= config.transaction_timeout_ms:
        yield "commit_interval_ms must be below transaction_timeout_ms under exactly_once_v2"


def _kafka_settings(settings: Mapping[str, str]) -> Iterator[str]:
    for key in settings:
        scope, _, rest = key.partition(".")
        name = rest if scope in SCOPES else key
        if name in FORBIDDEN_KAFKA_SETTINGS:
            yield f"kafka_settings may not hold {key}: {FORBIDDEN_KAFKA_SETTINGS[name]}"
        elif not isinstance(settings[key], str | int | float):
            yield f"kafka_settings: the value of {key} must be text or a number"
