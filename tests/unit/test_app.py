"""StreamsApp over the broker in memory: from its start to its end, and what it hands to whom."""

import re
import signal
from collections.abc import Callable
from pathlib import Path
from urllib.request import urlopen

import pytest
import structlog
from structlog.testing import capture_logs
from tests.unit.runtime.simulated import NAMES, START_MS, Cluster, word_count

from streamcore.adapters.log_output import configure_logging
from streamcore.adapters.system import StopSignals
from streamcore.app import LagInfo, StreamsApp, instance_name, slot_name, worker_settings
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
    assert app.moves[:2] == [WorkerState.WARMING_UP, WorkerState.REBALANCING]
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
    assert 1_000 <= app.cluster.clock.now_ms() - before_ms <= 2_000
    assert app.moves[-1] is WorkerState.NOT_RUNNING


def test_what_went_by_since_the_signal_is_not_there_for_the_last_commit() -> None:
    app = App(shutdown_timeout_ms=20_000, commit_interval_ms=1_000_000)
    app.cluster.feed(["a"], OLD_MS)

    class Late(StopAfter):
        def left_ms(self, budget_ms: int) -> int:
            assert budget_ms == 18_500
            return 700

    def go_away(left: int) -> None:
        app.cluster.broker.away = left <= 0

    before_ms = app.cluster.clock.now_ms()
    assert app.run(Late(20, go_away)) == 1
    assert 700 <= app.cluster.clock.now_ms() - before_ms <= 4_000


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

    def look(left: int) -> None:
        app.cluster.clock.advance(100)
        if left == 1:
            (url,) = [told["url"] for told in logs if told["event"] == "metrics"]
            worker_metrics.append(urlopen(url, timeout=10).read().decode())

    with capture_logs() as logs:
        assert app.run(StopAfter(80, look)) == 0
    (text,) = worker_metrics
    assert "\nstreamcore_rows_processed_total 4.0\n" in text
    assert 'streamcore_task_watermark_ms{task="1_0"}' in text
    assert "# TYPE streamcore_tasks gauge" in text


def test_lags_of_stores_can_be_asked_while_it_runs_and_listeners_hear_of_a_restore() -> None:
    app = App()
    app.cluster.feed(["a", "b", "c", "d"], OLD_MS)
    assert app.run(app.passing(40)) == 0
    assert app.app.all_local_store_partition_lags() == {}

    told: list[str] = []
    asked: list[dict[str, dict[int, LagInfo]]] = []

    class Listener:
        def restore_started(self, *facts: object) -> None:
            told.append("started")

        def batch_restored(self, *facts: object) -> None:
            told.append("batch")

        def restore_ended(self, *facts: object) -> None:
            told.append("ended")

    again = App(app.cluster)
    again.app = StreamsApp(
        word_count(), again.app._config, restore_listeners=[Listener()]
    )  # its state is gone: each call of `world` has a new folder

    def look(left: int) -> None:
        app.cluster.clock.advance(100)
        asked.append(again.app.all_local_store_partition_lags())

    assert again.run(StopAfter(40, look)) == 0
    assert set(told) == {"started", "batch", "ended"}
    seen = [lags["windowed-counts"] for lags in asked if "windowed-counts" in lags]
    assert set(seen[-1]) == {0, 1}
    assert all(lag.end > 0 and lag.lag == 0 for lag in seen[-1].values())
    assert again.app.all_local_store_partition_lags() == {}


def test_a_worker_is_told_what_the_configuration_says() -> None:
    config = StreamsConfig(
        application_id="app", bootstrap_servers="h:1", prefix="p.",
        commit_interval_ms=77, shutdown_timeout_ms=5_000, cache_max_bytes=0,
        max_poll_interval_ms=12_000, processing_error="dead-letter", dead_letter_topic="dead",
        production_error="continue", auto_offset_reset="latest", session_timeout_ms=9_000,
        num_standby_replicas=2, acceptable_recovery_lag=7, warmup_max_ms=11,
        missing_records="continue",
    )  # fmt: skip
    settings = worker_settings(config, Names(config.prefix, config.application_id))
    assert settings.commit_interval_ms == 77
    assert settings.stop_budget_ms == 3_500  # the rest is for leaving
    assert settings.revoke_budget_ms == 6_000
    assert settings.cache_max_bytes > 0
    assert settings.task.forward_each_update
    assert settings.task.dead_letter_topic == "p.dead"
    assert (settings.production_error, settings.offset_reset) == ("continue", "latest")
    assert not settings.exactly_once
    assert settings.session_timeout_ms == 9_000
    assert settings.num_standby_replicas == 2
    assert (settings.acceptable_recovery_lag, settings.warmup_max_ms) == (7, 11)
    assert settings.missing_records == "continue"


def test_the_name_of_a_slot_is_legal_everywhere_and_one_folders_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def slot(instance: str, folder: str, number: int) -> str:
        config = StreamsConfig(application_id="a", bootstrap_servers="h:1", instance=instance)
        return slot_name(instance_name(config), folder, number)

    name = slot("worker.1", str(tmp_path), 3)
    assert re.fullmatch(r"worker\.1-[0-9a-f]{8}-3", name)
    assert slot("worker.1", str(tmp_path / "other"), 3) != name
    monkeypatch.chdir(tmp_path)
    assert slot("worker.1", ".", 3) == name
    assert re.fullmatch(
        r"worker-23z34x56y-w78k9-[0-9a-f]{8}-0", slot("worker-23z34x56y-w78k9", ".", 0)
    )
    monkeypatch.setenv("DYNO", "worker.2")  # the environment is read where settings are
    assert "worker.2" not in slot("", ".", 0)
    assert re.fullmatch(r"[A-Za-z0-9._-]+-[0-9a-f]{8}-0", slot("", ".", 0))


def test_a_program_that_has_set_up_its_log_keeps_it() -> None:
    before = structlog.get_config()
    structlog.configure(processors=[])
    try:
        configure_logging("json")
        assert structlog.get_config()["processors"] == []
    finally:
        structlog.configure(**before)
