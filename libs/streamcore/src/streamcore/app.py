"""StreamsApp: a topology, a configuration and the real world put together, until a signal comes.

It wires and leaves: no decision about records is taken here. ``run`` blocks, drains on SIGTERM and
SIGINT, and raises a ``StreamsError`` when nothing that may be done is safe.
"""

import os
import platform
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar
from zlib import crc32

import structlog
import tenacity
from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from streamcore.adapters.kafka_cluster import KafkaCluster
from streamcore.adapters.state_dir import FileStateDir
from streamcore.adapters.system import StopSignals, SystemClock
from streamcore.config import StreamsConfig
from streamcore.errors import RetriableError, TopicError
from streamcore.model import Send
from streamcore.runtime.lifecycle import StateListener, WorkerState
from streamcore.runtime.metrics import DESCRIPTIONS, Metrics
from streamcore.runtime.ports import World
from streamcore.runtime.settings import WorkerSettings
from streamcore.runtime.worker import Worker, create_worker
from streamcore.task import TaskConfig
from streamcore.topology.graph import Topology
from streamcore.topology.naming import Names

__all__ = ["LineProducer", "StateListener", "StreamsApp", "WorkerState", "open_producer"]

_log = structlog.get_logger("streamcore.app")

RETRY_MAX_S = 5
FEED_PATIENCE_S = 30

T = TypeVar("T")


class StreamsApp:
    """One worker of one application, in this process."""

    def __init__(
        self,
        topology: Topology,
        config: StreamsConfig,
        listeners: Iterable[StateListener] = (),
    ) -> None:
        self._topology = topology
        self._config = config
        self._listeners = tuple(listeners)
        self._names = Names(config.prefix, config.application_id)

    def run(self) -> int:
        """Run until SIGTERM or SIGINT, then commit and leave the group.

        Returns 0; 1 if the last commit did not end in time (what it held is done again by whoever
        comes next). Call it in the main thread.

        :raises StreamsError: if the worker had to stop; the message says why and what to do.
        """
        configure_logging(self._config.log_format)
        clock = SystemClock()
        with StopSignals() as signals:
            state_dir = FileStateDir(Path(self._config.state_dir), self._names.group)
            slot = _slot(self._config, state_dir)
            cluster = KafkaCluster(self._config, self._names.group)
            try:
                world = World(
                    consumer=cluster.consumer,
                    producer=lambda: cluster.producer(slot if self._config.exactly_once else None),
                    reader=cluster.changelog_reader,
                    admin=cluster.admin(),
                    state_dir=state_dir,
                    clock=clock,
                )
                return self._run(world, signals)
            finally:
                state_dir.close()

    def _run(self, world: World, signals: StopSignals) -> int:
        settings = worker_settings(self._config, self._names)
        worker = _until_answered(
            lambda: create_worker(self._topology, self._names, settings, world, self._listeners),
            signals,
        )
        if worker is None:
            return 0
        try:
            self._serve_metrics(worker.metrics)
            _until_answered(lambda: worker.start(world.clock.now_ms()), signals)
            if worker.state is WorkerState.CREATED:
                return 0
            return _drive(worker, world, signals)
        finally:
            worker.close()

    def _serve_metrics(self, metrics: Metrics) -> None:
        port = self._config.metrics_port
        if port is None:
            return
        registry = CollectorRegistry()
        registry.register(_Published(metrics))
        server, _ = start_http_server(port, addr="127.0.0.1", registry=registry)
        _log.info("metrics", url=f"http://127.0.0.1:{server.server_port}/metrics")


def _drive(worker: Worker, world: World, signals: StopSignals) -> int:
    clock = world.clock
    while not signals.requested:
        worker.turn(clock.now_ms())
    _log.info("stopping", signal=signals.received.name if signals.received else "")
    clean = worker.stop(clock.now_ms())
    _log.info("stopped", committed=clean)
    return 0 if clean else 1


def _until_answered(call: Callable[[], T], signals: StopSignals) -> T | None:
    """Call until the cluster answers, with longer and longer waits; None once we are to stop."""

    def pause(seconds: float) -> None:
        for _ in range(max(1, round(seconds * 10))):
            if not signals.requested:
                tenacity.nap.sleep(0.1)

    def tell(state: tenacity.RetryCallState) -> None:
        if state.attempt_number in (1, 3) or state.attempt_number % 5 == 0:
            reason = state.outcome.exception() if state.outcome else None
            _log.warning("the cluster does not answer yet", reason=str(reason))

    attempts = tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(RetriableError),
        wait=tenacity.wait_exponential(multiplier=0.5, max=RETRY_MAX_S),
        stop=lambda _state: signals.requested,
        sleep=pause,
        before_sleep=tell,
        reraise=True,
    )
    try:
        return attempts(call)
    except RetriableError:
        return None


def worker_settings(config: StreamsConfig, names: Names) -> WorkerSettings:
    """Return the part of the configuration that a worker looks at."""
    dead_letters = config.dead_letter_topic
    return WorkerSettings(
        task=TaskConfig(
            event_time=config.event_time,
            idle_after_ms=config.idle_after_ms,
            max_timestamp_ahead_ms=config.max_timestamp_ahead_ms,
            deserialization_error=config.deserialization_error,
            timestamp_error=config.timestamp_error,
            processing_error=config.processing_error,
            dead_letter_topic=None if dead_letters is None else names.topic(dead_letters),
            cache_max_bytes=config.cache_max_bytes,
            markers_in_cut=config.exactly_once,
            forward_each_update=config.cache_max_bytes == 0,
            buffered_rows_max=config.buffered_rows_max,
        ),
        guarantee=config.processing_guarantee,
        commit_interval_ms=config.commit_interval_ms,
        cache_max_bytes=config.cache_max_bytes or 32 * 1024 * 1024,
        offset_reset=config.auto_offset_reset,
        production_error=config.production_error,
        repartition_purge_interval_ms=config.repartition_purge_interval_ms,
        poll_rows_max=config.poll_rows_max,
        revoke_budget_ms=min(20_000, config.max_poll_interval_ms // 2),
        stop_budget_ms=config.shutdown_timeout_ms,
    )


def _slot(config: StreamsConfig, state_dir: FileStateDir) -> str:
    """Return a name for this worker that is the same after a restart, and nobody else's.

    Under exactly-once it is the transactional.id: a restart ends its predecessor's transaction.
    """
    host = os.environ.get("DYNO") or platform.node() or "localhost"
    folder = crc32(str(Path(config.state_dir).resolve()).encode())
    names = Names(config.prefix, config.application_id)
    return f"{names.group}-{host}-{folder:08x}-{state_dir.slot}"


def configure_logging(log_format: str) -> None:
    """Send the engine's log to stderr, unless the program has set structlog up already."""
    if structlog.is_configured():
        return
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer()
        if log_format == "json"
        else structlog.dev.ConsoleRenderer(colors=log_format == "auto" and sys.stderr.isatty())
    )
    structlog.configure(
        processors=[
            structlog.stdlib.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger("info"),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )


class _Published(Collector):
    """The worker's numbers in Prometheus' words; read by the server's own thread."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        families: dict[str, Metric] = {}
        for name, labels, value in self._metrics.samples():
            if name not in families:
                kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
                families[name] = kind(name, DESCRIPTIONS[name])
            families[name].add_sample(name, dict(labels), value)
        yield from families.values()


# -- writing without a topology ----------------------------------------------------------------


def open_producer(config: StreamsConfig) -> "LineProducer":
    """Return a plain producer for bare topic names; the prefix is put on inside."""
    configure_logging(config.log_format)
    return LineProducer(config)


class LineProducer:
    """Writes records into topics that exist, with the engine's own settings and partitioning."""

    def __init__(self, config: StreamsConfig) -> None:
        self._names = Names(config.prefix, config.application_id)
        cluster = KafkaCluster(config, self._names.group)
        self._admin = cluster.admin()
        self._producer = cluster.producer()

    def partitions(self, topic: str) -> int:
        """Return the partitions of a topic.

        :raises TopicError: if it does not exist.
        :raises RetriableError: if the cluster did not answer.
        """
        name = self._names.topic(topic)
        count = self._admin.partitions([name], FEED_PATIENCE_S * 1_000)[name]
        if count is None:
            raise TopicError(f"missing topic: {name}; create it")
        return count

    def send(self, send: Send) -> Send | None:
        """Queue the rows; return what did not fit."""
        rest = self._producer.send(
            Send(
                self._names.topic(send.topic),
                send.keys,
                send.values,
                send.stamps_ms,
                send.headers,
                send.partition,
                send.partition_keys,
            )
        )
        if rest is not None:
            rest.topic = send.topic
        return rest

    def flush(self, timeout_ms: int) -> bool:
        """Return True when everything queued is acknowledged."""
        return self._producer.flush(timeout_ms)

    def close(self) -> None:
        """Throw away what is queued and let go."""
        self._producer.close()
        self._admin.close()
