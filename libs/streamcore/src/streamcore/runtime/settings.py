"""WorkerSettings: what one worker wants to know of the configuration, its tasks' share with it."""

from dataclasses import dataclass, field
from typing import Literal

from streamcore.task import TaskConfig

Guarantee = Literal["at_least_once", "exactly_once_v2"]
Policy = Literal["stop", "continue", "dead-letter"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """Checked already: it is made from a StreamsConfig (or by a test)."""

    task: TaskConfig
    guarantee: Guarantee = "at_least_once"
    commit_interval_ms: int = 1_000
    cache_max_bytes: int = 32 * 1024 * 1024
    offset_reset: str = "earliest"
    missing_records: Literal["stop", "continue"] = "stop"
    session_timeout_ms: int = 10_000
    num_standby_replicas: int = 0
    acceptable_recovery_lag: int = 10_000
    warmup_max_ms: int = 600_000
    production_error: Policy = "stop"
    replication_factor: int = -1
    repartition_purge_interval_ms: int = 30_000
    poll_rows_max: int = 10_000
    process_rows_max: int = 10_000
    restore_rows_max: int = 5_000
    poll_idle_ms: int = 100  # longest wait for records while there is nothing else to do
    poll_busy_ms: int = 5  # the same right after a turn that had rows
    commit_gap_min_ms: int = 100  # a full cache commits early, but not more often than this
    commit_budget_ms: int = 5_000  # what one commit may wait within one turn; it is taken up again
    revoke_budget_ms: int = 20_000  # what a commit may take inside the revoke callback
    stop_budget_ms: int = 25_000  # what the last commit may take after a signal
    markers_budget_ms: int = 1_000  # and the markers that follow it
    request_timeout_ms: int = 10_000  # one question to the cluster
    counts_check_interval_ms: int = 30_000  # how often partition counts are compared again
    labels: dict[str, str] = field(default_factory=dict)

    @property
    def exactly_once(self) -> bool:
        return self.guarantee == "exactly_once_v2"
