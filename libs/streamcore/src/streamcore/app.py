"""StreamsApp: a topology, a configuration and the real world put together, until a signal comes.

It wires and leaves: no decision about records is taken here. ``run`` blocks, drains on SIGTERM and
SIGINT, and raises a ``StreamsError`` when nothing that may be done is safe.
"""

import os
import platform
import re
import secrets
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

import structlog

from streamcore.adapters.kafka_cluster import KafkaCluster
from streamcore.adapters.kafka_probe import look_at_cluster
from streamcore.adapters.line_producer import LineProducer
from streamcore.adapters.log_output import configure_logging
from streamcore.adapters.memory import SoftLimit, rss_bytes
from streamcore.adapters.metrics_log import MetricsLog, MetricsLogThread
from streamcore.adapters.metrics_server import serve_metrics
from streamcore.adapters.parent_link import Lags, ParentLink
from streamcore.adapters.patience import unless_stopped, until_answered
from streamcore.adapters.processes import WorkerProcesses, command_of_this_program
from streamcore.adapters.state_dir import FileStateDir
from streamcore.adapters.system import StopSignals, SystemClock
from streamcore.adapters.watchdog import Watchdog
from streamcore.config import StreamsConfig
from streamcore.errors import ConfigError, StreamsError
from streamcore.heroku import on_heroku, release_of
from streamcore.remedies import mending_commands, prefix_problem
from streamcore.runtime.lifecycle import StateListener, WorkerState
from streamcore.runtime.metrics import Sample
from streamcore.runtime.ports import Process, World
from streamcore.runtime.restore import RestoreListener, RestoreProgress
from streamcore.runtime.settings import WorkerSettings
from streamcore.runtime.worker import Worker, create_worker
from streamcore.task import TaskConfig
from streamcore.topology.graph import Topology
from streamcore.topology.naming import Names

__all__ = [
    "LagInfo",
    "LineProducer",
    "RestoreListener",
    "RestoreProgress",
    "StateListener",
    "StreamsApp",
    "WorkerState",
    "look_at_cluster",
    "open_producer",
]

LEAVING_MS = 1_500
"""What is left of ``shutdown_timeout_ms`` for leaving when the last commit has had its time; who
has not left by then is ended hard."""

STACKS_MS = 40
"""What a process that is ended hard needs to write the stacks of its threads."""

CHILDREN_MS = 500
"""Worker processes are ended so much later by their parent, should they not end themselves."""

_log = structlog.get_logger("streamcore.app")


class LagInfo(NamedTuple):
    """Where a store stands in its changelog, and where that ends."""

    position: int
    end: int

    @property
    def lag(self) -> int:
        """How many offsets the store is behind; not all of them need be records."""
        return max(0, self.end - self.position)


class StreamsApp:
    """The workers of one application that run here: one, in this process, or several under it.

    Listeners are called by the worker that they hear of, which with ``num_stream_threads`` above 1
    is in another process each; there this program runs once more, from its beginning up to ``run``.
    """

    def __init__(
        self,
        topology: Topology,
        config: StreamsConfig,
        listeners: Iterable[StateListener] = (),
        restore_listeners: Iterable[RestoreListener] = (),
    ) -> None:
        self._topology = topology
        self._config = config
        self._listeners = tuple(listeners)
        self._restore_listeners = tuple(restore_listeners)
        self._names = Names(config.prefix, config.application_id)
        self._lags: Callable[[], Lags] = dict
        self._cluster: KafkaCluster | None = None

    def run(self) -> int:
        """Run until SIGTERM or SIGINT, then commit and leave the group.

        Returns 0; 1 if the last commit did not end in time (what it held is done again by whoever
        comes next), or a worker process did not end well. A process that does not come back from
        user code is ended with exit code 1 in time. Call it in the main thread.

        :raises StreamsError: if the worker had to stop; the message says why and what to do.
        """
        configure_logging(self._config.log_format)
        link = ParentLink.inherited(self._names.group)
        if link is not None:
            return self._run_child(link)
        self._introduce()
        if self._config.num_stream_threads > 1:
            return self._run_parent()
        with self._signals() as signals:
            return self._run_worker(signals)

    def all_local_store_partition_lags(self) -> dict[str, dict[int, LagInfo]]:
        """Return how far each store here is behind its changelog: by store and partition.

        Active and standby stores of all workers that run here; of several for one partition, the
        nearest. It is the latest that they have told, so it may be asked in any thread.
        """
        return {
            store: {partition: LagInfo(lag.position, lag.end) for partition, lag in found.items()}
            for store, found in self._lags().items()
        }

    def _introduce(self) -> None:
        _log.info(
            "starting",
            application=self._names.group,
            instance=instance_name(self._config),
            engine=version("streamcore"),
            guarantee=self._config.processing_guarantee,
            worker_processes=self._config.num_stream_threads,
            **release_of(os.environ),
        )

    @contextmanager
    def _published(self, samples: Callable[[], Iterable[Sample]]) -> Iterator[None]:
        """Have the metrics of this process seen by whom the settings say."""
        config = self._config
        serve_metrics(config.metrics_port, samples)
        if config.metrics_log_interval_ms is None:
            yield
            return
        log = MetricsLog(instance_name(config), samples)
        with MetricsLogThread(log, config.metrics_log_interval_ms):
            yield

    def _signals(self, extra_ms: int = 0, parent: int | None = None) -> StopSignals:
        return StopSignals(self._config.shutdown_timeout_ms + extra_ms, parent, to_the_end=True)

    def _run_parent(self) -> int:
        config = self._config
        command = command_of_this_program(config.num_stream_threads)
        with self._signals(CHILDREN_MS + 1_500) as signals:
            workers = WorkerProcesses(
                self._names.group,
                command,
                config.num_stream_threads,
                signals,
                replace=config.worker_failure == "replace",
                stop_ms=config.shutdown_timeout_ms + CHILDREN_MS,
            )
            self._lags = workers.lags
            try:
                with (
                    self._published(lambda: _with_parent(workers.samples())),
                    Watchdog(config.stall_timeout_ms, signals.back_up) as watchdog,
                ):
                    return workers.run(watchdog.beat)
            finally:
                self._lags = dict

    def _run_child(self, link: ParentLink) -> int:
        # One after the other: they write their stacks into the same log.
        extra_ms = min(STACKS_MS * link.number, CHILDREN_MS // 2)
        with link, self._signals(extra_ms, link.fileno()) as signals:
            link.ready()
            return self._run_worker(signals, link)

    def _run_worker(self, signals: StopSignals, link: ParentLink | None = None) -> int:
        config, group, clock = self._config, self._names.group, SystemClock()
        run = secrets.token_hex(4)
        state_dir = FileStateDir(Path(config.state_dir), group, run)
        cluster = self._cluster = KafkaCluster(config, group, _client_id(config, group))
        try:
            world = World(
                process=Process(
                    slot=slot_name(instance_name(config), config.state_dir, state_dir.slot),
                    run=run,
                    started_ms=clock.now_ms(),
                    predecessor=state_dir.predecessor,
                ),
                consumer=cluster.consumer,
                producer=cluster.producer,
                reader=cluster.changelog_reader,
                admin=cluster.admin(),
                state_dir=state_dir,
                clock=clock,
            )
            return self._run(world, signals, link)
        except StreamsError as error:
            for command in self._commands(error):
                error.add_note(command)
            raise
        finally:
            state_dir.close()

    def _commands(self, error: StreamsError) -> tuple[str, ...]:
        return mending_commands(error, self._config, os.environ)

    def _waits(self, link: ParentLink | None) -> Callable[[StreamsError], tuple[str, ...]] | None:
        """Return what is told while missing topics are waited for; None: they end the start.

        Of several processes the first speaks for all: the others wait until it ends them, or not.
        """
        if link is not None and link.number > 1:
            return lambda _error: ()
        return self._commands if self._config.wait_for_topics else None

    def _run(self, world: World, signals: StopSignals, link: ParentLink | None = None) -> int:
        settings = worker_settings(self._config, self._names)

        def asked_to_stop() -> bool:
            if self._cluster is not None:  # while we wait, too, nothing may pile up in clients
                self._cluster.serve()
            return signals.requested

        def create() -> Worker:
            try:
                return create_worker(
                    self._topology, self._names, settings, world, self._listeners,
                    restore_listeners=self._restore_listeners,
                )  # fmt: skip
            except StreamsError as error:  # a setting that is missing is not waited for
                problem = prefix_problem(error, self._config, os.environ)
                if problem is not None and on_heroku(os.environ):
                    raise ConfigError([problem]) from error
                raise

        worker = until_answered(
            lambda: unless_stopped(create, lambda: signals.requested),
            asked_to_stop,
            self._waits(link),
        )
        if worker is None:
            return 0
        self._lags = lambda: worker.store_lags
        try:
            if link is not None:
                return self._drive(worker, world, signals, asked_to_stop, link)
            with self._published(lambda: self._samples(worker)):
                return self._drive(worker, world, signals, asked_to_stop)
        finally:
            self._lags = dict
            worker.close()

    def _drive(
        self,
        worker: Worker,
        world: World,
        signals: StopSignals,
        asked_to_stop: Callable[[], bool],
        link: ParentLink | None = None,
    ) -> int:
        clock, config = world.clock, self._config
        memory = SoftLimit(config.memory_limit_bytes, worker.caches)
        with Watchdog(config.stall_timeout_ms, signals.back_up) as watchdog:
            if not self._start(worker, world, signals, asked_to_stop, watchdog):
                return 0
            while not signals.requested:
                watchdog.beat()
                worker.turn(clock.now_ms())
                memory.look()
                if link is not None:
                    at_once = worker.metrics.take_shrunk()  # others tell of these from now on
                    link.tell(lambda: self._samples(worker), worker.store_lags, at_once=at_once)
        _log.info("stopping", reason=signals.reason)
        began_ms = clock.steady_ms()
        budget_ms = worker_settings(config, self._names).stop_budget_ms
        clean = worker.stop(clock.now_ms(), budget_ms=signals.left_ms(budget_ms))
        if link is not None:
            link.tell(lambda: self._samples(worker), worker.store_lags, at_once=True)
        took_ms = clock.steady_ms() - began_ms
        _log.info("stopped", committed=clean, took_ms=took_ms, rss_bytes=rss_bytes())
        return 0 if clean else 1

    def _start(
        self,
        worker: Worker,
        world: World,
        signals: StopSignals,
        asked_to_stop: Callable[[], bool],
        watchdog: Watchdog,
    ) -> bool:
        """Have the worker come to the group; return False if we are to stop before it does."""

        def start() -> None:
            # Each attempt ends in time, however often it is to be made.
            watchdog.beat()
            unless_stopped(worker.connect, lambda: signals.requested)
            worker.start(world.clock.now_ms())

        def goes_round() -> bool:
            watchdog.beat()
            return asked_to_stop()

        until_answered(start, goes_round)
        return worker.state is not WorkerState.CREATED

    def _samples(self, worker: Worker) -> Iterator[Sample]:
        """Yield the worker's numbers and those of this process, which are asked now: a turn, or the
        last commit, may last for long where a quota holds it back.
        """
        yield from worker.metrics.samples()
        yield Sample("streamcore_process_rss_bytes", (), rss_bytes())
        if self._cluster is not None:
            yield Sample("streamcore_throttle_ms_total", (), self._cluster.throttled_ms)


def _with_parent(samples: Iterable[Sample]) -> Iterator[Sample]:
    """Yield these, and what the parent itself takes of the memory that all of them share."""
    yield from samples
    yield Sample("streamcore_process_rss_bytes", (("worker", "parent"),), rss_bytes())


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
        missing_records=config.missing_records,
        session_timeout_ms=config.session_timeout_ms,
        num_standby_replicas=config.num_standby_replicas,
        acceptable_recovery_lag=config.acceptable_recovery_lag,
        warmup_max_ms=config.warmup_max_ms,
        production_error=config.production_error,
        repartition_purge_interval_ms=config.repartition_purge_interval_ms,
        poll_rows_max=config.poll_rows_max,
        revoke_budget_ms=min(20_000, config.max_poll_interval_ms // 2),
        stop_budget_ms=max(
            config.shutdown_timeout_ms // 2, config.shutdown_timeout_ms - LEAVING_MS
        ),
    )


def instance_name(config: StreamsConfig) -> str:
    """Return how this process is called; of two that run at once, both may be called the same."""
    return re.sub(r"[^A-Za-z0-9._-]", "-", config.instance or platform.node() or "localhost")


def slot_name(instance: str, state_dir: str, number: int) -> str:
    """Return a name for a slot of a state folder: the same after a restart.

    Another process has the same only where hosts share a name, as while an instance is replaced.
    """
    folder = crc32(str(Path(state_dir).resolve()).encode())
    return f"{instance}-{folder:08x}-{number}"


def _client_id(config: StreamsConfig, group: str) -> str:
    return f"{group}.{instance_name(config)}" if config.instance else group


def open_producer(config: StreamsConfig, topology: Topology) -> LineProducer:
    """Return a plain producer for bare topic names; the prefix is put on inside.

    The topology is that of the service whose topics are written: it knows what they must be like.
    """
    configure_logging(config.log_format)
    return LineProducer(config, topology)
