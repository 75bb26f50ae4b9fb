"""Beginnings: at which offset each input of a task begins, and whether what lies before is counted.

That is where the group has committed, or what the reset policy says. Where state is built from an
input, by the task that reads it (a **keeper**) or behind a repartition topic (a **feeder** reads
it), two things are no ordinary beginning: the state is there, but how far the input was read is
forgotten; and the log lost records in front of which the group stands. Going on would count records
twice, or leave some out, without a word; ``missing_records`` decides.
"""

from collections.abc import Collection, Iterable, Mapping

import structlog

from streamcore.errors import (
    FetchPositionGoneError,
    MissingRecordsError,
    RetriableError,
    TopicError,
)
from streamcore.model import NO_TIME_MS, OffsetAndMetadata, TaskId, TopicPartition
from streamcore.runtime.blueprint import Blueprint
from streamcore.runtime.ports import Admin, Consumer
from streamcore.task.metadata import decode

_log = structlog.get_logger("streamcore.beginnings")

NAMED_MAX = 5
"""Partitions that a message names; of more it says how many there are."""

Committed = Mapping[TopicPartition, OffsetAndMetadata | None]
Begins = dict[TopicPartition, OffsetAndMetadata]


Held = tuple[int, int]
"""What a log holds: [start, end)."""

_EFFECTS = {
    "earliest": "are counted again",
    "latest": "are left out",
    "error": "are not touched: its reset policy is to stop",
}


class Beginnings:
    """Where inputs begin."""

    def __init__(self, blueprint: Blueprint, admin: Admin) -> None:
        self._blueprint = blueprint
        self._admin = admin
        self._timeout_ms = blueprint.settings.request_timeout_ms
        self._stops = blueprint.settings.missing_records == "stop"
        self._resets = blueprint.offset_resets()
        self._tasks = blueprint.tasks()
        self._keepers = blueprint.keepers()
        self._feeders = blueprint.feeders()
        self._watched = self._keepers | self._feeders.keys()  # state is built from their inputs
        self._suspects: set[TopicPartition] = set()  # a fetch failed; no commit has come since
        self.gone: set[TopicPartition] = set()
        """Inputs that begin by the reset policy until they commit."""

    def forget(self) -> None:
        """Let what is committed hold again: a new generation begins."""
        self.gone.clear()
        self._suspects.clear()

    def committed(self, partitions: Iterable[TopicPartition]) -> None:
        """Let what is committed hold again for these inputs: it is new."""
        self.gone.difference_update(partitions)
        self._suspects.difference_update(partitions)

    def find(self, tasks: Collection[TaskId], committed: Committed, consumer: Consumer) -> Begins:
        """Return where each input of the tasks begins.

        Where a keeper or feeder has nothing committed, its beginning is committed first: from then
        on an input without one was forgotten, and is not merely new.

        :raises MissingRecordsError: if input is gone that the state does not hold.
        :raises TopicError: if nothing is committed and the reset policy is to stop.
        :raises RetriableError, MemberFencedError: as the ports do.
        """
        self._check_forgotten(tasks, committed, consumer)
        self._check_deleted(tasks, committed, consumer)
        begins = {tp: at for tp, at in committed.items() if at is not None and tp not in self.gone}
        fresh: dict[str, list[TopicPartition]] = {}
        for tp in committed.keys() - begins.keys():
            fresh.setdefault(self._resets[tp.topic], []).append(tp)
        for where, partitions in fresh.items():
            if where == "error":
                raise TopicError(
                    f"no offset is committed for {listed(partitions)}, and auto_offset_reset is "
                    "'error'"
                )
            offsets = self._admin.offsets(partitions, where, self._timeout_ms)
            for tp in partitions:
                at = committed[tp]  # of a log that lost that offset: its clocks still hold
                begins[tp] = OffsetAndMetadata(offsets[tp], "" if at is None else at.metadata)
        first = {
            tp: begins[tp] for tp in self._inputs(tasks, self._watched) if committed[tp] is None
        }
        if first:
            consumer.commit(first, self._timeout_ms)
        return begins

    def lost(self, gone: FetchPositionGoneError) -> bool:
        """Let a partition begin by the reset policy, whatever is committed or kept in an external
        store: its log lost that. False where the policy is to stop.

        Where state is built from it, the task goes back to its last commit first, and ``find``
        judges: this worker may be the one that is behind, and another one has read on and purged.

        :raises MissingRecordsError: if the state does not hold what is gone.
        """
        partition = gone.partition
        policy = self._resets[partition.topic]
        if self._reader_of(partition) in self._watched:
            if partition not in self._suspects:
                self._suspects.add(partition)
                return True
            if self._stops:
                raise _deleted({partition: (gone.offset, self._holds(partition))})
        if policy == "error":
            return False
        held = self._holds(partition)
        _log.warning(
            "the log does not hold the position where reading should go on",
            partition=str(partition),
            position=gone.offset,
            log_holds="unknown" if held is None else f"offsets {held[0]} to {held[1]}",
            begins_at=policy,
        )
        self.gone.add(partition)
        return True

    # -- what is missing ---------------------------------------------------------------------

    def _check_forgotten(
        self, tasks: Collection[TaskId], committed: Committed, consumer: Consumer
    ) -> None:
        """Look for inputs without an offset whose state is there."""
        forgetful = [
            task
            for task in tasks
            if task in self._watched and any(committed[tp] is None for tp in self._tasks[task])
        ]
        if not forgetful:
            return
        spans = self._spans({log for task in forgetful for log in self._logs(task)})
        filled = {log for log, (start, end) in spans.items() if start < end}
        suspects = {
            task: held for task in forgetful if (held := filled.intersection(self._logs(task)))
        }
        if suspects.keys() - self._keepers:
            known = consumer.committed(self._inputs(self._tasks), self._timeout_ms)
            for task in suspects.keys() - self._keepers:
                if not self._had_begun(task, known, spans):
                    del suspects[task]
        if not suspects:
            return
        inputs = [tp for tp in self._inputs(suspects) if committed[tp] is None]
        self._must_still_be(dict.fromkeys(inputs), consumer)
        self._judge_forgotten(inputs, sorted(set().union(*suspects.values())))

    def _logs(self, task: TaskId) -> Iterable[TopicPartition]:
        """Return the logs that hold what was made of a task's input."""
        if task in self._keepers:
            return self._blueprint.changelogs([task])
        return self._feeders[task].union(self._blueprint.outlets(task))

    def _had_begun(
        self, task: TaskId, known: Committed, spans: Mapping[TopicPartition, Held]
    ) -> bool:
        """Tell whether a feeder had once committed where it begins: then that was forgotten.

        Not each one without an offset had: in a first generation a worker may merely be slower
        than others, and a new input may have come beside older ones. What proves it was written
        after such a commit, and so must be read before the offsets are.
        """
        if any(known[tp] is not None for tp in self._tasks[task]):
            return False
        outlets = self._blueprint.outlets(task)
        alike = [other for other in self._tasks if other.sub_topology == task.sub_topology]
        if all(known[tp] is None for tp in self._inputs(alike)):
            return any(spans[outlet][1] > 0 for outlet in outlets)  # by whom, if by none of these?
        return any(_has_heard_of(known.get(outlet), task.partition) for outlet in outlets)

    def _judge_forgotten(
        self, inputs: Collection[TopicPartition], held: Iterable[TopicPartition]
    ) -> None:
        spans = self._spans(inputs)
        records = {tp: end - start for tp, (start, end) in spans.items()}
        effect = ", ".join(
            f"{tp}: {records[tp]} {_EFFECTS[self._resets[tp.topic]]}"
            for tp in sorted(inputs, key=records.__getitem__, reverse=True)[:NAMED_MAX]
        )
        if self._stops:
            raise MissingRecordsError(
                f"the group has no committed offset for {listed(inputs)}, but what was made of "
                f"them is in {listed(held)}. By auto_offset_reset of the records "
                f"there, {effect}. Set the group's offsets to where the counting stood; or delete "
                "the internal topics and local state to count everything anew; or, if these "
                "inputs are new or the numbers do not matter, set missing_records to 'continue'",
                records,
            )
        _log.warning(
            "committed offsets are gone while there is state; going on by auto_offset_reset",
            inputs=listed(inputs),
            changelogs=listed(held),
            effect=effect,
        )

    def _must_still_be(self, committed: Committed, consumer: Consumer) -> None:
        """Make sure that nobody has read on since we asked: then it is we who are behind.

        :raises RetriableError: if somebody has; ask everything again.
        """
        if consumer.committed(committed, self._timeout_ms) != committed:
            raise RetriableError("the committed offsets have just changed")

    def _check_deleted(
        self, tasks: Iterable[TaskId], committed: Committed, consumer: Consumer
    ) -> None:
        """Look for records that were deleted before keepers and feeders have read them."""
        inputs = {
            tp: at.offset
            for tp in self._inputs(tasks, self._watched)
            if (at := committed[tp]) is not None and tp not in self.gone
        }
        spans = self._spans(inputs)
        lost = {tp: (at, spans[tp]) for tp, at in inputs.items() if at < spans[tp][0]}
        if not lost:
            return
        self._must_still_be({tp: committed[tp] for tp in lost}, consumer)
        if self._stops or any(self._resets[tp.topic] == "error" for tp in lost):
            raise _deleted(lost)
        for tp, (offset, (start, _)) in lost.items():
            _log.warning(
                "records were deleted before they were read; going on by auto_offset_reset",
                partition=str(tp),
                committed=offset,
                log_begins=start,
                records_missing=start - offset,
            )
        self.gone |= lost.keys()

    def _inputs(
        self, tasks: Iterable[TaskId], among: Collection[TaskId] | None = None
    ) -> list[TopicPartition]:
        return [tp for task in tasks if among is None or task in among for tp in self._tasks[task]]

    def _reader_of(self, partition: TopicPartition) -> TaskId | None:
        return next((task for task, inputs in self._tasks.items() if partition in inputs), None)

    def _spans(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Held]:
        if not partitions:
            return {}
        starts = self._admin.offsets(partitions, "earliest", self._timeout_ms)
        ends = self._admin.offsets(partitions, "latest", self._timeout_ms)
        return {tp: (starts[tp], ends[tp]) for tp in sorted(partitions)}

    def _holds(self, partition: TopicPartition) -> Held | None:
        try:
            return self._spans([partition])[partition]
        except RetriableError:
            return None


def _has_heard_of(committed: OffsetAndMetadata | None, upstream_task: int) -> bool:
    """Tell whether a commit on a repartition partition knows the clock of a task that writes it."""
    marks_ms = () if committed is None else decode(committed.metadata).upstream_ms
    return upstream_task < len(marks_ms) and marks_ms[upstream_task] != NO_TIME_MS


def listed(partitions: Iterable[object]) -> str:
    """Return names for a message, not too many of them.

    >>> listed([TopicPartition("words", 0), TopicPartition("words", 1)])
    'words-0, words-1'
    >>> listed([])
    'nothing'
    """
    names = [str(partition) for partition in partitions]
    more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    return (", ".join(names[:NAMED_MAX]) or "nothing") + more


def _deleted(lost: Mapping[TopicPartition, tuple[int, Held | None]]) -> MissingRecordsError:
    """Return the error for positions that logs do not hold any more (or not yet)."""
    facts: list[str] = []
    records: dict[TopicPartition, int] = {}
    for tp, (at, held) in lost.items():
        if held is None:
            facts.append(f"{tp} does not hold offset {at}, where reading should go on")
        elif at < held[0]:
            records[tp] = held[0] - at
            facts.append(
                f"{records[tp]} records of {tp} are missing: reading should go on at offset {at}, "
                f"and the log begins at {held[0]}"
            )
        else:
            facts.append(
                f"{tp} ends at offset {held[1]}, and reading should go on at {at}: it lost "
                "records, or was made anew"
            )
    return MissingRecordsError(
        f"{'; '.join(facts[:NAMED_MAX])}. The counts would have a gap. Bring the records back, or "
        "set missing_records to 'continue' to go on as auto_offset_reset says",
        records,
    )
