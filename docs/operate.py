"""Looks at, resets and recounts the services. It reads the same environment variables as they do.

``python docs/operate.py --help`` lists the commands; OPERATIONS.md says when to use which.
"""

import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Annotated, Any, Final, NoReturn
from urllib.parse import quote

import psycopg
import tenacity
import typer
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException
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
from streamcore import StreamsConfig
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
    topics: Annotated[list[str], typer.Argument(help="Names as on the broker, with any prefix.")],
    partitions: Annotated[int, typer.Option(min=1)] = 4,
) -> None:
    """Create topics that keep their records for ever; those that exist are left as they are."""
    with tell_errors("create"):
        admin = AdminClient({**admin_settings(_config("ingest"))})
        wanted = [NewTopic(name, partitions, config={"retention.ms": "-1"}) for name in topics]
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
        group = Names(config.prefix, config.application_id).group
        if members := _members(admin, group):
            raise StreamsError(f"{group} has {members} members; stop all workers first")
        topics = sorted(
            topic
            for topic in admin.list_topics(timeout=TIMEOUT_S).topics
            if topic.startswith(f"{group}-") and topic.endswith(("-changelog", "-repartition"))
        )
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

    Feed nothing meanwhile and wait until nobody lags. Only what the topic still holds is counted.
    """
    with tell_errors("recount"):
        own, config = load(aggregator.settings.Settings)
        topic = Names(config.prefix, config.application_id).topic(own.words_topic)
        counted: Counter[tuple[str, int]] = Counter()
        clocks: dict[int, int] = {}
        late = 0
        for partition, word, stamp_ms in _records(config, topic):
            clock_ms = clocks[partition] = max(stamp_ms, clocks.get(partition, -1))
            start_ms = stamp_ms - stamp_ms % own.window_size_ms
            if start_ms + own.window_size_ms + own.grace_ms <= clock_ms:
                late += 1
            else:
                counted[storable(word), start_ms] += 1
        stored = _stored()
        differing = [key for key in counted if stored.get(key) != counted[key]]
        typer.echo(f"{sum(counted.values())} words in {len(counted)} rows, and {late} late words")
        typer.echo(f"{len(differing)} rows differ, {len(stored.keys() - counted)} only stored")
        for word, start_ms in sorted(differing)[:show]:
            said = stored.get((word, start_ms), "nothing")
            typer.echo(f"{word!r} {start_ms}: counted {counted[word, start_ms]}, stored {said}")
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
    match load(SERVICES[service], offline=True)[0]:
        case ingest.settings.Settings() as own:
            topology = ingest.topology.build(own)
        case aggregator.settings.Settings() as own:
            topology = aggregator.topology.build(own)
        case sink.settings.Settings() as own:
            topology = sink.topology.build(own, _no_store)
        case other:
            raise AssertionError(other)
    parts = topology.sub_topologies
    return [
        *(names.topic(topic) for part in parts for topic in part.source_topics),
        *(names.internal(topic) for part in parts for topic in part.repartition_sources),
    ]


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
            "isolation.level": "read_committed",
        }
    )


def _records(config: StreamsConfig, topic: str) -> Iterator[tuple[int, str, int]]:
    """Yield (partition, word, timestamp) of a topic from its begin to its present end."""
    consumer = _reader(config)
    try:
        partitions = consumer.list_topics(topic, timeout=TIMEOUT_S).topics[topic].partitions
        consumer.assign([Place(topic, partition, 0) for partition in partitions])
        unread = set(partitions)
        while unread:
            message = consumer.poll(TIMEOUT_S)
            if message is None:
                raise StreamsError(f"{topic} cannot be read: no answer")
            partition, value = message.partition(), message.value()
            assert partition is not None
            if message.error() is not None:  # the end of a partition, most often
                unread.discard(partition)
            elif value is not None and (stamp_ms := message.timestamp()[1]) >= 0:
                yield partition, value.decode(), stamp_ms
    finally:
        consumer.close()


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


def _connect() -> "psycopg.Connection[Any]":
    url = load(sink.settings.Settings, offline=True)[0].url.set(drivername="postgresql")
    return psycopg.connect(url.render_as_string(hide_password=False))


def _execute(statement: str, *values: str) -> None:
    with _connect() as connection:
        connection.execute(statement.encode(), values)


def _stored() -> dict[tuple[str, int], int]:
    with _connect() as connection:
        rows = connection.execute(
            "select word, (extract(epoch from window_start) * 1000)::bigint, count"
            " from windowed_counts"
        )
        return {(word, start_ms): count for word, start_ms, count in rows}


if __name__ == "__main__":
    cli(prog_name="python docs/operate.py")
