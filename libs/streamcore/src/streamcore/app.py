"""StreamsApp: a topology, a configuration and the real world put together, until a signal comes.

It wires and leaves: no decision about records is taken here. ``run`` blocks, drains on SIGTERM and
SIGINT, and raises a ``StreamsError`` when nothing that may be done is safe.
"""

import os
import platform
import re
import secrets
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

import structlog

from streamcore.adapters.kafka_cluster import KafkaCluster
from streamcore.adapters.line_producer import LineProducer
from streamcore.adapters.log_output import configure_logging
from streamcore.adapters.metrics_server import serve_metrics
from streamcore.adapters.parent_link import Lags, ParentLink
from streamcore.adapters.patience import until_answered
from streamcore.adapters.processes import WorkerProcesses, command_of_this_program
from streamcore.adapters.state_dir import FileStateDir
from streamcore.adapters.system import StopSignals, SystemClock
from streamcore.config import StreamsConfig
from streamcore.runtime.lifecycle import StateListener, WorkerState
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
            serve_metrics(config.metrics_port, workers.samples)
            try:
                return workers.run()
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
        cluster = KafkaCluster(config, group)
        try:
            world = World(
                process=Process(
                    slot=slot_name(config.state_dir, state_dir.slot),
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
        finally:
            state_dir.close()

    def _run(self, world: World, signals: StopSignals, link: ParentLink | None = None) -> int:
        settings = worker_settings(self._config, self._names)
        worker = until_answered(
            lambda: create_worker(
                self._topology,
                self._names,
                settings,
                world,
                self._listeners,
                restore_listeners=self._restore_listeners,
            ),
            lambda: signals.requested,
        )
        if worker is None:
            return 0
        self._lags = lambda: worker.store_lags
        try:
            if link is None:
                serve_metrics(self._config.metrics_port, worker.metrics.samples)
            until_answered(lambda: worker.start(world.clock.now_ms()), lambda: signals.requested)
            if worker.state is WorkerState.CREATED:
                return 0
            return _drive(worker, world, signals, settings.stop_budget_ms, link)
        finally:
            self._lags = dict
            worker.close()


def _drive(
    worker: Worker, world: World, signals: StopSignals, stop_ms: int, link: ParentLink | None
) -> int:
    clock = world.clock
    while not signals.requested:
        worker.turn(clock.now_ms())
        if link is not None:
            link.tell(worker.metrics.samples, worker.store_lags)
    _log.info("stopping", reason=signals.reason)
    clean = worker.stop(clock.now_ms(), budget_ms=signals.left_ms(stop_ms))
    if link is not None:
        link.tell(worker.metrics.samples, worker.store_lags, at_last=True)
    _log.info("stopped", committed=clean)
    return 0 if clean else 1


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


def slot_name(state_dir: str, number: int) -> str:
    """Return a name for a slot of a state folder: the same after a restart, and nobody else's."""
    host = re.sub(r"[^A-Za-z0-9._-]", "-", os.environ.get("DYNO") or platform.node() or "localhost")
    folder = crc32(str(Path(state_dir).resolve()).encode())
    return f"{host}-{folder:08x}-{number}"


def open_producer(config: StreamsConfig) -> LineProducer:
    """Return a plain producer for bare topic names; the prefix is put on inside."""
    configure_logging(config.log_format)
    return LineProducer(config)
