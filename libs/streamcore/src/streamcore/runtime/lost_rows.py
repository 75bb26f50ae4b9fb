"""Lost rows: what it means that a changelog does not begin at 0, for a store that reads all of it.

Compaction leaves the start of a log where it is. So what lies in front of it was deleted by time
(shared clusters do that to compacted topics, too) or by somebody, and no right is needed to see it.
While events are about as old as the clock says, only rows of closed windows can be that old; but
rows of old records count as old, and go within minutes while their windows are open.
"""

from dataclasses import dataclass
from typing import Final

import structlog

from streamcore.errors import MissingRecordsError
from streamcore.model import NO_TIME_MS, Fetched, TopicPartition
from streamcore.runtime.changelogs import Span
from streamcore.task.parts import ChangelogState

_log = structlog.get_logger("streamcore.lost_rows")

DELETED_AFTER_MS: Final = 24 * 3_600_000
"""No row is taken to be deleted by time that is younger than this, or than twice the time that its
window is open: for so long at least a changelog must be kept anyway."""


@dataclass(frozen=True, slots=True)
class Doubt:
    """Rows of open windows may be among the deleted ones; the first row that is left will tell."""

    log: TopicPartition
    gone: int
    watermark_ms: int
    open_ms: int
    stops: bool

    def look(self, fetched: Fetched, *, at_end: bool) -> "Doubt | None":
        """Look for the first row with a value; return None when there is no doubt any more.

        A row is stamped with a record of its window, and was written while that was open. So what
        was written before it belongs to windows that began less than ``open_ms`` behind it.

        :raises MissingRecordsError: if rows are missing and the policy is to stop.
        """
        for value, stamp_ms in zip(fetched.values, fetched.stamps_ms, strict=True):
            if value is not None:
                if stamp_ms + 2 * self.open_ms > self.watermark_ms:
                    _meet(self.log, self.gone, self._reason(), stops=self.stops)
                else:
                    _tell_harmless(self.log, self.gone)
                return None
        if at_end:
            _meet(self.log, self.gone, self._reason(), stops=self.stops)
            return None
        return self

    def _reason(self) -> str:
        return (
            f"the store had come to event time {self.watermark_ms} ms, and rows of windows that "
            "are open there are missing"
        )


def judge(
    log: TopicPartition, state: ChangelogState, span: Span, now_ms: int, *, stops: bool
) -> Doubt | None:
    """Judge what is gone from a changelog that a store must read from its start, and say so.

    To be asked where inputs of the task are committed: before that nothing is missed.

    :raises MissingRecordsError: if it is needed and the policy is to stop.
    """
    spec, gone = state.spec, span.earliest
    if gone == 0:
        return None
    is_empty = span.earliest >= span.end
    if spec.windows is None and spec.retention_ms is None:
        if is_empty and not state.until_committed:
            _meet(log, gone, "the store keeps every key, and had some", stops=stops)
        else:
            _log.warning(
                "the changelog lost its oldest records; the store lacks what was not written again",
                changelog=str(log),
                store=spec.name,
                offsets_gone=gone,
            )
        return None
    if state.watermark_ms == NO_TIME_MS:  # no row was counted in what is committed
        _tell_harmless(log, gone)
        return None
    windows, kept_ms = spec.windows, spec.retention_ms or 0
    open_ms = kept_ms if windows is None else windows.size_ms + windows.grace_ms
    behind_ms = max(DELETED_AFTER_MS, 2 * open_ms)
    if state.watermark_ms - open_ms >= now_ms - behind_ms:
        _tell_harmless(log, gone)
        return None
    if state.watermark_ms - open_ms >= (state.moved_ms or now_ms) - behind_ms:
        # Live, and then nothing came for long: what comes next is live again and closes them.
        _meet(log, gone, "nothing has come for longer than it is kept", stops=False)
        return None
    doubt = Doubt(log, gone, state.watermark_ms, open_ms, stops)
    return doubt.look(_nothing(log, span), at_end=True) if is_empty else doubt


def _nothing(log: TopicPartition, span: Span) -> Fetched:
    return Fetched(log, [], [], [], [], None, span.end, at_end=True)


def _tell_harmless(log: TopicPartition, gone: int) -> None:
    _log.info(
        "the changelog lost its oldest records; no open window needs them",
        changelog=str(log),
        offsets_gone=gone,
    )


def _meet(log: TopicPartition, gone: int, reason: str, *, stops: bool) -> None:
    if not stops:
        _log.warning(
            "rows of a changelog are gone; what they counted begins at nothing",
            changelog=str(log),
            offsets_gone=gone,
            reason=reason,
        )
        return
    raise MissingRecordsError(
        f"changelog {log} does not hold its first {gone} offsets any more: {reason}. A topic with "
        "cleanup.policy=compact,delete loses records by their own timestamps, so it cannot hold "
        "the state of records that are older than its retention.ms; 'compact' alone can. Begin "
        "anew, or set missing_records to 'continue' for one start to count on without these rows",
        {log: gone},
    )
