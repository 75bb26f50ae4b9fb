"""StreamsApp over the broker in memory: from its start to its end, and what it hands to whom."""

import signal
from collections.abc import Callable
from urllib.request import urlopen

import pytest
import structlog
from tests.unit.runtime.simulated import NAMES, START_MS, Cluster, word_count

from streamcore.adapters.system import StopSignals
from streamcore.app import StreamsApp, configure_logging, worker_settings
from streamcore.config import StreamsConfig
from streamcore.errors import DeserializationError, TopicError
from streamcore.runtime.lifecycle import WorkerState
from streamcore.topology.naming import Names

OLD_MS = START_MS - 86_400_000


class StopAfter(StopSignals):
    """SIGTERM comes when it was asked for so often; ``each`` runs at each question."""

    def __init__(self, questions: int, each: Callable[[int], None] = lambda _left: None) -> None:
        super().__init__()
        self._left = questions
        self._each = each

    @property
    def requested(self) -> bool:
        self._left -= 1
        self._each(self._left)
        if self._left <= 0:
            self.received = signal.SIGTERM
        return self._left <= 0


class App:
    """The word count on a cluster in memory."""

    def __init__(self, cluster: Cluster | None = None, **settings: object) -> None:
        self.cluster = cluster or Cluster(partitions=2)
        self.moves: list[WorkerState] = []
        self.app = StreamsApp(
            word_count(),
            StreamsConfig(application_id="app", bootstrap_servers="h:1", **settings),  # type: ignore[arg-type]
            [lambda _before, after: self.moves.append(after)],
        )

    def run(self, signals: StopSignals) -> int:
        return self.app._run(self.cluster.broker.world(NAMES.group), signals)

    def passing(self, turns: int) -> StopAfter:
        """Return a signal that comes after so many turns of 100 ms."""
        return StopAfter(turns, lambda _left: self.cluster.clock.advance(100))


def test_it_counts_until_the_signal_comes_commits_and_leaves() -> None:
    app = App()
    app.cluster.feed(["to", "be", "or", "not", "to", "be"], OLD_MS)
    assert app.run(app.passing(80)) == 0
    assert app.cluster.counts() == dict(app.cluster.fed)
    assert app.cluster.lag() == 0
    assert app.cluster.broker.group(NAMES.group).members == {}
    assert app.moves[0] is WorkerState.REBALANCING
    assert app.moves[-3:] == [
        WorkerState.RUNNING, WorkerState.PENDING_SHUTDOWN, WorkerState.NOT_RUNNING,
    ]  # fmt: skip


def test_a_last_commit_that_does_not_end_is_exit_code_1() -> None:
    app = App(shutdown_timeout_ms=2_000, commit_interval_ms=1_000_000)
    app.cluster.feed(["a"], OLD_MS)

    def go_away(left: int) -> None:
        app.cluster.broker.away = left <= 0

    before_ms = app.cluster.clock.now_ms()
    assert app.run(StopAfter(20, go_away)) == 1
    assert 2_000 <= app.cluster.clock.now_ms() - before_ms <= 4_000
    assert app.moves[-1] is WorkerState.NOT_RUNNING


def test_a_fault_is_raised_and_everything_let_go_of() -> None:
    app = App()
    app.cluster.broker.write("words", None, b"\xff", OLD_MS, 0)
    with pytest.raises(DeserializationError, match="offset 0"):
        app.run(app.passing(80))
    assert app.moves[-2:] == [WorkerState.ERROR, WorkerState.NOT_RUNNING]
    assert app.cluster.broker.group(NAMES.group).members == {}


def test_a_cluster_that_is_away_at_the_start_is_waited_for() -> None:
    app = App()
    app.cluster.broker.away = True
    asked: list[int] = []

    def come_back(left: int) -> None:
        asked.append(left)
        app.cluster.clock.advance(100)
        if len(asked) == 4:
            app.cluster.broker.away = False

    assert app.run(StopAfter(60, come_back)) == 0
    assert WorkerState.RUNNING in app.moves


def test_a_signal_ends_the_wait_for_a_cluster() -> None:
    app = App()
    app.cluster.broker.away = True
    assert app.run(StopAfter(3)) == 0
    assert app.moves == []


def test_missing_topics_are_not_waited_for() -> None:
    app = App()
    app.cluster.broker.delete("words")
    with pytest.raises(TopicError, match="words"):
        app.run(StopAfter(100))


def test_metrics_are_served_where_they_are_asked_for() -> None:
    app = App(metrics_port=0)
    app.cluster.feed(["a", "b"], OLD_MS)
    worker_metrics: list[str] = []
    said: list[str] = []

    def look(left: int) -> None:
        app.cluster.clock.advance(100)
        if left == 1:
            worker_metrics.append(urlopen(said[0], timeout=10).read().decode())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("streamcore.app._log.info", lambda _event, **facts: said.extend(
            [facts["url"]] if "url" in facts else []
        ), raising=False)  # fmt: skip
        assert app.run(StopAfter(80, look)) == 0
    (text,) = worker_metrics
    assert "\nstreamcore_rows_processed_total 4.0\n" in text
    assert 'streamcore_task_watermark_ms{task="1_0"}' in text
    assert "# TYPE streamcore_tasks gauge" in text


def test_a_worker_is_told_what_the_configuration_says() -> None:
    config = StreamsConfig(
        application_id="app", bootstrap_servers="h:1", prefix="p.",
        commit_interval_ms=77, shutdown_timeout_ms=5_000, cache_max_bytes=0,
        max_poll_interval_ms=12_000, processing_error="dead-letter", dead_letter_topic="dead",
        production_error="continue", auto_offset_reset="latest",
    )  # fmt: skip
    settings = worker_settings(config, Names(config.prefix, config.application_id))
    assert settings.commit_interval_ms == 77
    assert settings.stop_budget_ms == 5_000
    assert settings.revoke_budget_ms == 6_000
    assert settings.cache_max_bytes > 0
    assert settings.task.forward_each_update
    assert settings.task.dead_letter_topic == "p.dead"
    assert (settings.production_error, settings.offset_reset) == ("continue", "latest")
    assert not settings.exactly_once


def test_a_program_that_has_set_up_its_log_keeps_it() -> None:
    before = structlog.get_config()
    structlog.configure(processors=[])
    try:
        configure_logging("json")
        assert structlog.get_config()["processors"] == []
    finally:
        structlog.configure(**before)
