"""TaskConfig: the settings that a task looks at; checked where they were read."""

from dataclasses import dataclass

STOP, CONTINUE, DEAD_LETTER = "stop", "continue", "dead-letter"

IDLE_RENEWAL_MAX_MS = 5_000
"""The longer an idle mark holds, the more closes in front of what waits for a lost owner."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskConfig:
    """Settings of a task. ``dead_letter_topic`` is a name on the broker.

    ``event_time`` is ``"source"`` (docs/SEMANTICS.md) or ``"operator"`` (Kafka Streams' rule).
    ``markers_in_cut``: markers go out with the rows that they vouch for, in one transaction; else
    after the broker has acknowledged those rows. ``forward_each_update``: no result waits in an
    overlay for the commit. ``commit_interval_ms``: markers come no more often than that.
    """

    event_time: str = "source"
    idle_after_ms: int = 60_000
    max_timestamp_ahead_ms: int = 3_600_000
    deserialization_error: str = STOP
    timestamp_error: str = STOP
    processing_error: str = STOP
    dead_letter_topic: str | None = None
    cache_max_bytes: int = 32 * 1024 * 1024
    marker_interval_ms: int = 1_000
    commit_interval_ms: int = 1_000
    markers_in_cut: bool = False
    forward_each_update: bool = False
    buffered_rows_max: int = 20_000

    @property
    def idle_renewal_ms(self) -> int:
        """How often an idle mark is repeated."""
        return max(1, min(self.idle_after_ms // 2, IDLE_RENEWAL_MAX_MS))

    @property
    def idle_lease_ms(self) -> int:
        """How long an idle mark is believed: its owner may be gone, and records may wait there."""
        return 2 * self.idle_renewal_ms + 3 * max(self.marker_interval_ms, self.commit_interval_ms)
