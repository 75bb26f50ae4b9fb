"""What tests on real servers share: services as processes, records in and out, patient waiting.

Nothing here is taken from the services: names, bytes and rules are spelled out once more, so that
a fault in them does not hide itself.
"""

import os
import shutil
import signal
import struct
import sys
import time
import urllib.request
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import psycopg
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_INVALID,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # not in its __all__
    AdminClient,
    ConfigResource,
    OffsetSpec,
)

from devstack.ports import free_port
from devstack.processes import Child
from devstack.topics import Topic, create_topics

PATIENCE_S: Final = 120.0  # for what comes at once, unless many share few processors
_OURS: Final = (
    "STREAMCORE_", "INGEST_", "AGGREGATOR_", "SINK_", "KAFKA_", "DATABASE_", "EMIT", "WINDOW_",
    "GRACE_", "LINES_", "WORDS_", "COUNTS_",
)  # fmt: skip

LINES: Final = "textlines"
WORDS: Final = "words"
COUNTS: Final = "windowed-counts"
REPARTITION: Final = "aggregator-app-windowed-counts-repartition"
CHANGELOG: Final = "aggregator-app-windowed-counts-changelog"
INGEST: Final = "ingest-app"
AGGREGATOR: Final = "aggregator-app"
SINK: Final = "sink-app"
INPUTS: Final = {INGEST: (LINES,), AGGREGATOR: (WORDS, REPARTITION), SINK: (COUNTS,)}

_NOT_YET: Final = (
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
)

T = TypeVar("T")
Counts = dict[tuple[str, int], int]
"""(word, start of the window in ms) -> count."""


class Record(NamedTuple):
    """A record as it stands in a topic, or shall stand there (then the offset means nothing)."""

    partition: int
    stamp_ms: int
    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    offset: int = -1


def line(partition: int, stamp_ms: int, text: str) -> Record:
    """Return a record with a null key and this text."""
    return Record(partition, stamp_ms, text.encode())


def wait_until(
    condition: Callable[[], Any],
    what: str | Callable[[], str],
    *,
    patience_s: float = PATIENCE_S,
    alive: Sequence[Child] = (),
) -> Any:
    """Return the first true value of the condition; fail when time is over or a child has ended."""
    deadline = time.monotonic() + patience_s
    while True:
        if found := condition():
            return found
        ended = [child for child in alive if child.returncode is not None]
        if ended or time.monotonic() > deadline:
            what = what if isinstance(what, str) else what()
        for child in ended:
            raise AssertionError(
                f"{child.name} ended ({child.returncode}) while waiting for {what}:\n"
                f"{child.tail(40)}"
            )
        if time.monotonic() > deadline:
            for child in alive:
                child.send(signal.SIGABRT)  # they tell where they are, see PYTHONFAULTHANDLER
                child.wait(5)
            tails = "\n".join(f"--- {child.name}\n{child.tail(50)}" for child in alive)
            raise AssertionError(f"not within {patience_s:.0f} s: {what}\n{tails}")
        time.sleep(0.05)


def pause_s(seconds: float) -> None:
    """Let time pass where its passing is the trial; never to wait for something to happen."""
    time.sleep(seconds)


@dataclass
class Stack:
    """Topics, groups and services of one test, apart from those of all others by a prefix."""

    bootstrap: str
    prefix: str
    folder: Path
    database_url: str = ""
    settings: dict[str, str] = field(default_factory=dict)
    children: list[Child] = field(default_factory=list)
    metrics_ports: dict[str, int] = field(default_factory=dict)

    # -- topics ------------------------------------------------------------------------------

    def name(self, bare: str) -> str:
        """Return the name on the broker."""
        return self.prefix + bare

    def create(self, *bare: str, partitions: int = 4, **settings: str) -> None:
        """Create topics that keep records of any age, unless told otherwise."""
        kept = {"retention.ms": "-1", **{k.replace("_", "."): v for k, v in settings.items()}}
        create_topics(
            {"bootstrap.servers": self.bootstrap},
            [Topic(self.name(topic), partitions, kept) for topic in bare],
        )

    def settings_of(self, bare: str) -> dict[str, str]:
        """Return a topic's settings as the broker has them."""
        resource = ConfigResource(ConfigResource.Type.TOPIC, self.name(bare))
        answer = self.admin.describe_configs([resource])[resource].result(timeout=20)
        return {name: entry.value for name, entry in answer.items()}

    @cached_property
    def admin(self) -> AdminClient:
        """One client for all: answers to a client that is gone never come."""
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    def partitions(self, bare: str) -> tuple[TopicPartition, ...]:
        """Return the partitions of a topic; none while it does not exist."""
        found = self.admin.list_topics(timeout=20).topics.get(self.name(bare))
        return (
            ()
            if found is None
            else tuple(
                TopicPartition(self.name(bare), number) for number in sorted(found.partitions)
            )
        )

    def ends(self, *bare: str, latest: bool = True) -> dict[tuple[str, int], int]:
        """Return the log end (open transactions included) or the start of each partition."""
        return _patiently(lambda: self._ends(bare, latest=latest))

    def _ends(self, bare: Sequence[str], *, latest: bool) -> dict[tuple[str, int], int]:
        wanted = [tp for topic in bare for tp in self.partitions(topic)]
        if not wanted:
            return {}
        spec: Any = OffsetSpec
        spec = spec.latest() if latest else spec.earliest()
        answers = self.admin.list_offsets(
            dict.fromkeys(wanted, spec),
            isolation_level=IsolationLevel.READ_UNCOMMITTED,
            request_timeout=20,
        )
        return {
            (tp.topic.removeprefix(self.prefix), tp.partition): future.result(timeout=20).offset
            for tp, future in answers.items()
        }

    def delete_records(self, before: Mapping[tuple[str, int], int]) -> None:
        """Delete what stands in front of these offsets."""
        wanted = [
            TopicPartition(self.name(topic), number, at) for (topic, number), at in before.items()
        ]
        for future in self.admin.delete_records(wanted).values():
            future.result(timeout=20)

    # -- records -----------------------------------------------------------------------------

    def produce(self, bare: str, records: Iterable[Record]) -> None:
        """Write the records, each to its partition, in order; all are acknowledged on return."""
        failed: list[Any] = []
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "enable.idempotence": True,
                "linger.ms": 20,
                "queue.buffering.max.messages": 500_000,
                "log_level": 0,
            }
        )

        def report(error: KafkaError | None, _message: object) -> None:
            if error is not None:
                failed.append(error)

        topic = self.name(bare)
        for record in records:
            while True:
                try:
                    producer.produce(
                        topic,
                        value=record.value,
                        key=record.key,
                        partition=record.partition,
                        on_delivery=report,
                        timestamp=record.stamp_ms,
                        headers=list(record.headers) or None,
                    )
                except BufferError:
                    producer.poll(0.1)
                else:
                    break
        assert producer.flush(60) == 0
        assert not failed, failed[:3]

    def read(self, bare: str) -> list[Record]:
        """Return all committed records of a topic, by partition and offset."""
        wanted = self.partitions(bare)
        consumer = self._consumer(f"{self.prefix}reader")
        records: list[Record] = []
        try:
            consumer.assign(
                [TopicPartition(tp.topic, tp.partition, OFFSET_BEGINNING) for tp in wanted]
            )
            open_partitions = {tp.partition for tp in wanted}
            deadline = time.monotonic() + PATIENCE_S
            while open_partitions:
                assert time.monotonic() < deadline, f"{bare} has no end"
                for message in consumer.consume(10_000, 0.2):
                    error = message.error()
                    if error is None:
                        records.append(_record(message))
                    elif error.code() == KafkaError._PARTITION_EOF:
                        open_partitions.discard(message.partition())
                    else:
                        raise KafkaException(error)
        finally:
            consumer.close()
        return sorted(records, key=lambda record: (record.partition, record.offset))

    # -- groups ------------------------------------------------------------------------------

    def committed(self, application: str, *bare: str) -> dict[tuple[str, int], int]:
        """Return the committed offsets of a group; partitions without one are left out."""
        wanted = [tp for topic in bare for tp in self.partitions(topic)]
        if not wanted:
            return {}
        consumer = self._consumer(self.name(application))
        try:
            found = _patiently(lambda: consumer.committed(wanted, timeout=20))
        finally:
            consumer.close()
        return {
            (tp.topic.removeprefix(self.prefix), tp.partition): tp.offset
            for tp in found
            if tp.offset != OFFSET_INVALID
        }

    def lag(self, *applications: str) -> dict[tuple[str, int], int]:
        """Return what is not yet committed, of each partition where that is not nothing.

        A partition without an offset counts as lagging even when it is empty.
        """
        lags: dict[tuple[str, int], int] = {}
        for application in applications:
            topics = INPUTS[application]
            done = self.committed(application, *topics)
            ends = self.ends(*topics)
            for topic in topics:
                if not any(name == topic for name, _ in ends):
                    lags[topic, -1] = -1  # it does not even exist
            for partition, end in ends.items():
                if done.get(partition) != end and (end > 0 or partition in done):
                    lags[partition] = end - done.get(partition, 0)
        return lags

    def wait_for_lag_0(
        self, *applications: str, alive: Sequence[Child], patience_s: float = PATIENCE_S
    ) -> None:
        """Wait until the committed offset is the log end in every partition of the groups.

        The services in front come first: what is at its end, in this order, stays at its end.
        """
        for application in applications:
            self._wait_for_lag_0(application, alive, patience_s)

    def _wait_for_lag_0(self, application: str, alive: Sequence[Child], patience_s: float) -> None:
        wait_until(
            lambda: not self.lag(application),
            lambda: f"lag 0 of {application}, it is {self.lag(application)}",
            patience_s=patience_s,
            alive=alive,
        )

    # -- services ----------------------------------------------------------------------------

    def start(self, service: str, instance: str = "", **settings: str) -> Child:
        """Start a service; settings are variables, such as EMIT="final"."""
        name = service + instance
        self.metrics_ports[name] = free_port()
        env = {k: v for k, v in os.environ.items() if not k.startswith(_OURS)}
        env |= {
            "KAFKA_URL": f"kafka://{self.bootstrap}",
            "KAFKA_PREFIX": self.prefix,
            "STREAMCORE_STATE_DIR": str(self.state_dir),
            "STREAMCORE_METRICS_PORT": str(self.metrics_ports[name]),
            "STREAMCORE_LOG_FORMAT": "console",
            "PYTHONFAULTHANDLER": "1",
            **({"DATABASE_URL": self.database_url} if self.database_url else {}),
            **self.settings,
            **settings,
        }
        child = Child(
            name,
            [sys.executable, "-m", service],
            log=self.folder / f"{name}.log",
            env=env,
            cwd=self.folder,
        )
        self.children.append(child)
        return child

    def migrate(self) -> None:
        """Make the sink's tables."""
        env = {k: v for k, v in os.environ.items() if not k.startswith(_OURS)}
        child = Child(
            "migrate",
            [sys.executable, "-m", "sink", "migrate"],
            log=self.folder / "migrate.log",
            env={**env, "DATABASE_URL": self.database_url},
            cwd=self.folder,
        )
        assert child.wait(30), "the migration does not end"
        assert child.returncode == 0, child.tail(40)

    @property
    def state_dir(self) -> Path:
        return self.folder / "state"

    def wipe(self) -> None:
        """Lose the disk of all that is stopped."""
        shutil.rmtree(self.state_dir)

    def stop(self, *children: Child, patience_s: float = 60) -> None:
        """End services as a process manager does; each must end by itself, with 0.

        One that does not come to its end in its own time (25 s) does so with another exit code.
        """
        for child in children:
            child.send(signal.SIGTERM)
        for child in children:
            assert child.wait(patience_s), f"{child.name} did not end:\n{child.tail(40)}"
            assert child.returncode == 0, f"{child.name}: {child.returncode}\n{child.tail(40)}"

    def metrics(self, name: str) -> dict[str, float]:
        """Return what a running service tells Prometheus; nothing while it does not answer."""
        url = f"http://127.0.0.1:{self.metrics_ports[name]}/metrics"
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                text = answer.read().decode()
        except OSError:
            return {}
        rows = (row.rpartition(" ") for row in text.splitlines() if not row.startswith("#"))
        return {series: float(value) for series, _, value in rows}

    def dropped(self, name: str) -> dict[str, int]:
        """Return how many records a service has dropped, by reason."""
        found: dict[str, int] = {}
        for series, value in self.metrics(name).items():
            if series.startswith("streamcore_rows_dropped_total{"):
                reason = series.partition('reason="')[2].partition('"')[0]
                found[reason] = found.get(reason, 0) + int(value)
        return found

    def processed(self, name: str) -> int:
        """Return how many records a service has processed since it started."""
        return int(self.metrics(name).get("streamcore_rows_processed_total", 0))

    def close(self) -> None:
        """End whatever still runs."""
        for child in self.children:
            child.kill()

    # -- counts ------------------------------------------------------------------------------

    def counts_in_topic(self) -> Counts:
        """Return the last value of each key in the output topic."""
        return fold(self.read(COUNTS), tail_bytes=8)

    def counts_in_changelog(self) -> Counts:
        """Return what the changelog says that the stores hold."""
        return fold(self.read(CHANGELOG), tail_bytes=12)

    def counts_in_database(self) -> Counts:
        """Return the sink's table."""
        with psycopg.connect(self.database_url) as connection:
            rows = connection.execute(
                "select word, (extract(epoch from window_start) * 1000)::bigint, count"
                " from windowed_counts"
            ).fetchall()
        return {(word, start_ms): count for word, start_ms, count in rows}

    def _consumer(self, group: str) -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": group,
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 50,
                "log_level": 0,
            }
        )


def _patiently(question: Callable[[], T]) -> T:
    """Ask again while the broker is busy with making what we ask about."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return question()
        except KafkaException as problem:
            if problem.args[0].code() not in _NOT_YET or time.monotonic() > deadline:
                raise
        time.sleep(0.05)


def _record(message: Any) -> Record:
    return Record(
        message.partition(),
        message.timestamp()[1],
        message.value(),
        message.key(),
        tuple(message.headers() or ()),
        message.offset(),
    )


def windowed_key(key: bytes, tail_bytes: int = 8) -> tuple[str, int]:
    """Return word and window start of a key: word, start (8 bytes), in changelogs 4 more."""
    start = key[len(key) - tail_bytes :][:8]
    return key[: len(key) - tail_bytes].decode(), struct.unpack(">q", start)[0]


def fold(records: Iterable[Record], tail_bytes: int) -> Counts:
    """Return the last value of each key; a null value removes it."""
    counts: Counts = {}
    for record in records:
        assert record.key is not None
        key = windowed_key(record.key, tail_bytes)
        if record.value is None:
            counts.pop(key, None)
        else:
            counts[key] = struct.unpack(">q", record.value)[0]
    return counts


def words_in(text: str) -> list[str]:
    """Split plain text as ingest should: runs of letters and digits, apostrophes inside."""
    found, word = [], ""
    for character in f"{text.lower().replace(chr(0x2019), chr(39))} ":
        if character.isalnum() or character == "'":
            word += character
            continue
        if word.strip("'"):
            found.append(word.strip("'"))
        word = ""
    return found


def recount(records: Iterable[Record], size_ms: int = 10_000, grace_ms: int = 0) -> Counts:
    """Count the words of lines per window; late by the clock of the line's own partition."""
    counts: Counts = {}
    clocks_ms: dict[int, int] = {}
    for record in records:
        words = words_in((record.value or b"").decode())
        if not words:
            continue
        clock_ms = max(record.stamp_ms, clocks_ms.get(record.partition, -1))
        clocks_ms[record.partition] = clock_ms
        start_ms = record.stamp_ms - record.stamp_ms % size_ms
        if start_ms + size_ms + grace_ms <= clock_ms:
            continue
        for word in words:
            counts[word, start_ms] = counts.get((word, start_ms), 0) + 1
    return counts


def difference(wanted: Mapping[Any, int], found: Mapping[Any, int]) -> dict[Any, tuple[Any, Any]]:
    """Return where two counts differ: (wanted, found), at most ten of them."""
    keys = [key for key in {**wanted, **found} if wanted.get(key) != found.get(key)]
    return {key: (wanted.get(key), found.get(key)) for key in sorted(keys)[:10]}
