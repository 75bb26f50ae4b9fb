"""Changelogs: what they hold, and where a store that is there already goes on to read."""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, MutableMapping
from dataclasses import dataclass

from streamcore.model import Fetched, OffsetAndMetadata, Position, TopicPartition
from streamcore.runtime.ports import Admin
from streamcore.task import Task

DELETES_KEPT_MS = 23 * 3_600_000
"""A broker keeps tombstones for 24 h (``delete.retention.ms``) and may drop them then: a store that
did not follow for longer would keep for ever what was deleted meanwhile."""


@dataclass(frozen=True, slots=True)
class Span:
    """What a changelog partition holds: [earliest, end), in the topic of that id."""

    earliest: int
    end: int
    topic_id: str


@dataclass(frozen=True, slots=True)
class Beginning:
    """Where a store starts to read; with a reason if it must be thrown away first."""

    offset: int
    discard: str | None = None


def beginning(position: Position | None, span: Span, now_ms: int) -> Beginning:
    """Judge a store's position against its changelog.

    >>> beginning(Position(7, "a"), Span(0, 9, "a"), 0)
    Beginning(offset=7, discard=None)
    >>> beginning(Position(7, "a"), Span(0, 5, "a"), 0)
    Beginning(offset=0, discard='its position 7 lies beyond the end 5')
    """
    if position is None:
        return Beginning(span.earliest)
    if position.topic_id and span.topic_id and position.topic_id != span.topic_id:
        return Beginning(span.earliest, "the topic was deleted and made anew")
    if position.offset > span.end:
        return Beginning(
            span.earliest, f"its position {position.offset} lies beyond the end {span.end}"
        )
    if position.offset < span.earliest:
        return Beginning(
            span.earliest, f"records from its position {position.offset} on were deleted"
        )
    age_ms = now_ms - position.written_ms if position.written_ms else 0
    if age_ms > DELETES_KEPT_MS and position.offset < span.end:
        return Beginning(
            span.earliest,
            f"it was left {age_ms // 3_600_000} h ago: the log may not hold what was deleted since",
        )
    return Beginning(position.offset)


def spans(
    tasks: Iterable[Task],
    committed: Mapping[TopicPartition, OffsetAndMetadata | None],
    topic_ids: MutableMapping[str, str],
    admin: Admin,
    timeout_ms: int,
) -> dict[TopicPartition, Span]:
    """Ask what the tasks' changelogs hold; ``topic_ids`` learns the ids of all their topics.

    A table over its own source ends where the group has committed: no further than consumed.

    :raises RetriableError: if the cluster did not answer.
    """
    tasks = tuple(tasks)
    logs = [tp for task in tasks for tp in task.changelogs()]
    topics = {tp.topic for tp in logs} | {tp.topic for task in tasks for tp in task.inputs}
    topic_ids.update(admin.topic_ids(topics, timeout_ms))
    if not logs:
        return {}
    ends = admin.offsets(logs, "latest", timeout_ms)
    earliest = admin.offsets(logs, "earliest", timeout_ms)
    for task in tasks:
        for tp, state in task.changelogs().items():
            if state.until_committed:
                at = committed.get(tp)
                ends[tp] = earliest[tp] if at is None else min(ends[tp], at.offset)
    return {tp: Span(earliest[tp], ends[tp], topic_ids.get(tp.topic, "")) for tp in logs}


def up_to(fetched: Fetched, end: int) -> Fetched:
    """Return the rows in front of ``end``: what lies behind it the task has not consumed yet."""
    if fetched.next_offset <= end:
        return fetched
    rows = bisect_left(fetched.offsets, end)
    return Fetched(
        fetched.source,
        fetched.offsets[:rows],
        fetched.keys[:rows],
        fetched.values[:rows],
        fetched.stamps_ms[:rows],
        None if fetched.headers is None else fetched.headers[:rows],
        end,
    )


def bytes_of(fetched: Fetched) -> int:
    """Return how many bytes keys and values have."""
    return sum(sum(map(len, filter(None, column))) for column in (fetched.keys, fetched.values))
