"""Looks at, resets and recounts the services. It reads the same environment variables as they do.

``python docs/operate.py --help`` lists the commands; OPERATIONS.md says when to use which.
"""

import math
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple, NoReturn
from urllib.parse import quote

import psycopg
import tenacity
import typer
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, KafkaException
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

import aggregator.settings
import aggregator.topology
import ingest.settings
import ingest.topology
import sink.settings
import sink.topology
from sink.text import storable
from streamcore import StreamsConfig, Topology
from streamcore.adapters.kafka_errors import error_of, translate
from streamcore.adapters.kafka_settings import admin_settings
from streamcore.errors import RetriableError, StreamsError
from streamcore.service import tell_errors
from streamcore.settings import ServiceSettings, load
from streamcore.topology.naming import Names

SERVICES: Final[Mapping[str, type[ServiceSettings]]] = {
    "ingest": ingest.settings.Settings,
    "aggregator": aggregator.settings.Settings,
    "sink": sink.settings.Settings,
}
TIMEOUT_S: Final = 20.0
FORGET: Final = "delete from source_positions where application = %s"

Service = Annotated[str, typer.Argument(help=f"One of {', '.join(SERVICES)}.")]
cli = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Look at, reset and recount the services. Reads the same variables as they do.",
)


@cli.command()
def lag(service: Service) -> None:
    """Print how far a service's group is behind in each partition that it reads."""
    with tell_errors("lag"):
        config = _config(service)
        admin = AdminClient({**admin_settings(config)})
        names = Names(config.prefix, config.application_id)
        members, committed = _members(admin, names.group), _committed(admin, names.group)
        total = 0
        for place, (begin, end) in _ends(config, _inputs(service, names)).items():
            done = committed.get(place)
            behind = end - (begin if done is None else done)
            total += behind
            said = "nothing" if done is None else done
            typer.echo(f"{place[0]}-{place[1]}: committed {said}, end {end}, behind {behind}")
        typer.echo(f"{names.group}: {members} members, {total} records behind")


@cli.command()
def create(
    topics: Annotated[list[str], typer.Argument(help="Names; KAFKA_PREFIX is put on once.")],
    partitions: Annotated[int, typer.Option(min=1)] = 4,
) -> None:
    """Create topics that keep their records for ever; those that exist are left as they are."""
    with tell_errors("create"):
        config = _config("ingest")
        admin = AdminClient({**admin_settings(config)})
        named = map(Names(config.prefix, config.application_id).topic, topics)
        wanted = [NewTopic(name, partitions, config={"retention.ms": "-1"}) for name in named]
        for name, future in admin.create_topics(wanted, request_timeout=TIMEOUT_S).items():
            _done(future, f"creating {name}", but="TOPIC_ALREADY_EXISTS")
            typer.echo(f"{name} is there")


@cli.command()
def reset(
    service: Service,
    yes: Annotated[bool, typer.Option("--yes", help="Do it; else it is only told.")] = False,
) -> None:
    """Make a service begin anew: its offsets, internal topics and local state are deleted.

    All its workers must be stopped. Topics of others and the counts in the database stay.
    """
    with tell_errors("reset"):
        config = _config(service)
        admin = AdminClient({**admin_settings(config)})
        names = Names(config.prefix, config.application_id)
        group = names.group
        if members := _members(admin, group):
            raise StreamsError(f"{group} has {members} members; stop all workers first")
        # No look at beginnings of names: aggregator-app-2 is another application.
        there = admin.list_topics(timeout=TIMEOUT_S).topics
        topics = [topic for topic in _internal(service, names) if topic in there]
        state = Path(config.state_dir) / quote(group, safe="")
        typer.echo(f"{'deleting' if yes else 'would delete'}: group {group}")
        for what in (*topics, str(state)):
            typer.echo(f"{'deleting' if yes else 'would delete'}: {what}")
        if yes:
            _reset(admin, group, topics, state)
            if service == "sink":  # its positions are in the database, and they win
                _execute(FORGET, group)


@cli.command()
def recount(
    show: Annotated[int, typer.Option(help="How many differences to list.")] = 20,
) -> None:
    """Count the words topic anew and compare with the database; exit code 1 if they differ.

    Feed nothing meanwhile and wait until nobody lags. Where the topic has lost its first records,
    the windows that they may have been counted in are left out, and the exit code is 1 as well.
    """
    with tell_errors("recount"):
        own, config = load(aggregator.settings.Settings)
        topic = Names(config.prefix, config.application_id).topic(own.words_topic)
        found = _counted(config, topic, own.window_size_ms, own.grace_ms)
        counted, stored = found.counts, _stored()
        judged = {key for key in stored.keys() | counted if key[1] > found.whole_after_ms}
        differing = sorted(key for key in judged if stored.get(key) != counted.get(key))
        unexplained = sum(key not in counted for key in differing)
        passed_over = f", {found.unusable} that cannot be used" if found.unusable else ""
        typer.echo(
            f"{counted.total()} words in {len(counted)} rows, and {found.late} late words"
            f"{passed_over}"
        )
        typer.echo(f"{len(differing)} rows differ, {unexplained} of them only stored")
        for word, start_ms in differing[:show]:
            here, there = (rows.get((word, start_ms), "nothing") for rows in (counted, stored))
            typer.echo(f"{word!r} {start_ms}: counted {here}, stored {there}")
        if found.lost:
            left = len((stored.keys() | counted) - judged)
            raise StreamsError(
                f"{topic} does not hold its first records any more (partition: first offset held: "
                f"{', '.join(f'{number}: {first}' for number, first in found.lost.items())}); "
                f"{len(judged)} rows were compared, and of {left} rows of older windows nobody "
                "can say whether they are right"
            )
    raise typer.Exit(1 if differing else 0)


# A broker that has just started, or whose group moves to another node, asks for patience.
_PATIENT: Final = tenacity.retry(
    retry=tenacity.retry_if_exception_type(RetriableError),
    wait=tenacity.wait_fixed(0.5),
    stop=tenacity.stop_after_delay(TIMEOUT_S),
    reraise=True,
)


# --- Kafka --------------------------------------------------------------------------------------


def _config(service: str) -> StreamsConfig:
    if service not in SERVICES:
        raise StreamsError(f"there is no service {service!r}; there are {', '.join(SERVICES)}")
    return load(SERVICES[service])[1]


@_PATIENT
def _members(admin: AdminClient, group: str) -> int:
    future = admin.describe_consumer_groups([group], request_timeout=TIMEOUT_S)[group]
    description = _done(future, f"asking for {group}", but="GROUP_ID_NOT_FOUND")
    return 0 if description is None else len(description.members)


@_PATIENT
def _committed(admin: AdminClient, group: str) -> dict[tuple[str, int], int]:
    asked = [ConsumerGroupTopicPartitions(group)]
    future = admin.list_consumer_group_offsets(asked, request_timeout=TIMEOUT_S)[group]
    found = _done(future, f"asking for {group}", but="GROUP_ID_NOT_FOUND")
    known = [] if found is None else found.topic_partitions or []
    return {(p.topic, p.partition): p.offset for p in known if p.offset >= 0}


def _inputs(service: str, names: Names) -> list[str]:
    """Return the topics that a service reads, by their names on the broker."""
    parts = _topology(service).sub_topologies
    return [
        *(names.topic(topic) for part in parts for topic in part.source_topics),
        *(names.internal(topic) for part in parts for topic in part.repartition_sources),
    ]


def _internal(service: str, names: Names) -> list[str]:
    """Return the topics that are a service's own, by their names on the broker."""
    parts = _topology(service).sub_topologies
    return sorted(
        {
            *(names.internal(topic) for part in parts for topic in part.repartition_sources),
            *(names.internal(store.changelog) for part in parts for store in part.changelogged),
        }
    )


def _topology(service: str) -> Topology:
    match load(SERVICES[service], offline=True)[0]:
        case ingest.settings.Settings() as own:
            return ingest.topology.build(own)
        case aggregator.settings.Settings() as own:
            return aggregator.topology.build(own)
        case sink.settings.Settings() as own:
            return sink.topology.build(own, _no_store)
        case other:
            raise AssertionError(other)


def _no_store() -> NoReturn:
    raise AssertionError("nothing is run here")


def _ends(config: StreamsConfig, topics: Iterable[str]) -> dict[tuple[str, int], tuple[int, int]]:
    """Return begin and end of each partition."""
    consumer = _reader(config)
    try:
        known = consumer.list_topics(timeout=TIMEOUT_S).topics
        if missing := [topic for topic in topics if topic not in known]:
            raise StreamsError(f"missing topics: {', '.join(missing)}")
        return {
            (topic, partition): consumer.get_watermark_offsets(
                Place(topic, partition), timeout=TIMEOUT_S
            )
            for topic in topics
            for partition in sorted(known[topic].partitions)
        }
    except KafkaException as failure:
        raise translate(failure, "asking for the ends") from failure
    finally:
        consumer.close()


def _reader(config: StreamsConfig) -> Consumer:
    return Consumer(
        {
            **admin_settings(config),
            "group.id": "unused",  # nothing is joined and nothing committed
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",  # else what was deleted meanwhile is left out in silence
            "isolation.level": "read_committed",
        }
    )


class _Counted(NamedTuple):
    """Rows counted from a topic; ``lost``: first offsets of partitions that do not begin at 0.

    Windows that begin up to ``whole_after_ms`` may have had words that are gone.
    """

    counts: Counter[tuple[str, int]]
    late: int
    unusable: int
    lost: dict[int, int]
    whole_after_ms: float


def _counted(config: StreamsConfig, topic: str, size_ms: int, grace_ms: int) -> _Counted:
    """Count the words of a topic from its begin to its present end.

    Time is taken not to run backwards from what was deleted to what is held.
    """
    begins = {number: begin for (_, number), (begin, _) in _ends(config, [topic]).items()}
    counts: Counter[tuple[str, int]] = Counter()
    clocks_ms: dict[int, int] = {}
    firsts_ms: dict[int, int] = {}
    late = unusable = 0
    for place, stamp_ms, word in _records(config, topic, begins):
        if isinstance(word, _Unusable):
            if getattr(config, word.policy) == "stop":
                raise StreamsError(
                    f"record {topic} partition {place.partition} offset {place.offset} cannot be "
                    f"counted: {word.reason}; with {word.policy} 'stop' the aggregator stops there"
                )
            unusable += 1
            continue
        firsts_ms.setdefault(place.partition, stamp_ms)
        clock_ms = clocks_ms[place.partition] = max(stamp_ms, clocks_ms.get(place.partition, -1))
        start_ms = stamp_ms - stamp_ms % size_ms
        if word is None:
            continue
        if start_ms + size_ms + grace_ms <= clock_ms:
            late += 1
        else:
            counts[storable(word), start_ms] += 1
    lost = {number: begin for number, begin in begins.items() if begin > 0}
    whole_after_ms = max((firsts_ms.get(number, math.inf) for number in lost), default=-math.inf)
    return _Counted(counts, late, unusable, lost, whole_after_ms)


class _Unusable(NamedTuple):
    """Why a record cannot be counted, and the setting that says what becomes of it."""

    reason: str
    policy: str


def _records(
    config: StreamsConfig, topic: str, begins: Mapping[int, int]
) -> Iterator[tuple[Place, int, str | _Unusable | None]]:
    """Yield place, timestamp and word of each record; None is a null value."""
    consumer = _reader(config)
    try:
        consumer.assign([Place(topic, number, begin) for number, begin in begins.items()])
        unread = set(begins)
        while unread:
            message = consumer.poll(TIMEOUT_S)
            if message is None:
                raise StreamsError(f"{topic} cannot be read: no answer")
            number, offset, error = message.partition(), message.offset(), message.error()
            if error is not None and error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001 - how the binding spells it
                raise translate(error, f"reading {topic}")
            assert number is not None
            assert offset is not None
            if error is not None:
                unread.discard(number)
                continue
            stamp_ms = message.timestamp()[1]
            word = _word(message.key(), message.value(), stamp_ms)
            yield Place(topic, number, offset), stamp_ms, word
    finally:
        consumer.close()


def _word(key: bytes | None, value: bytes | None, stamp_ms: int) -> str | _Unusable | None:
    """Return a record's word as the aggregator reads it: text is UTF-8, and so is the key."""
    try:
        _, word = (None if data is None else data.decode() for data in (key, value))
    except UnicodeDecodeError as error:
        return _Unusable(f"it is no valid UTF-8 ({error.reason})", "deserialization_error")
    if stamp_ms < 0:
        return _Unusable(f"its timestamp is {stamp_ms}", "timestamp_error")
    return word


def _reset(admin: AdminClient, group: str, topics: list[str], state: Path) -> None:
    futures = dict(admin.delete_topics(topics, operation_timeout=TIMEOUT_S)) if topics else {}
    futures |= admin.delete_consumer_groups([group], request_timeout=TIMEOUT_S)
    for what, future in futures.items():
        _done(future, f"deleting {what}", but="GROUP_ID_NOT_FOUND")
    shutil.rmtree(state, ignore_errors=True)


def _done(future: "Future[Any]", doing: str, but: str) -> Any:
    """Return the answer, None for an error of the name ``but``."""
    try:
        return future.result(TIMEOUT_S)
    except KafkaException as failure:
        if error_of(failure).name() == but:
            return None
        raise translate(failure, doing) from failure
    except TimeoutError:
        raise StreamsError(f"{doing}: no answer") from None


# --- PostgreSQL ---------------------------------------------------------------------------------


@contextmanager
def _connected() -> Iterator["psycopg.Connection[Any]"]:
    url = load(sink.settings.Settings, offline=True)[0].address.url.set(drivername="postgresql")
    try:
        with psycopg.connect(url.render_as_string(hide_password=False)) as connection:
            yield connection
    except psycopg.Error as failure:
        raise StreamsError(f"the database: {' '.join(str(failure).split())}") from None


def _execute(statement: str, *values: str) -> None:
    with _connected() as connection:
        connection.execute(statement.encode(), values)


def _stored() -> dict[tuple[str, int], int]:
    with _connected() as connection:
        rows = connection.execute(
            "select word, (extract(epoch from window_start) * 1000)::bigint, count"
            " from windowed_counts"
        )
        return {(word, start_ms): count for word, start_ms, count in rows}


if __name__ == "__main__":
    cli(prog_name="python docs/operate.py")
