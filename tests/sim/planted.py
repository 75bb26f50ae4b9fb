"""Bugs, planted from outside: each one is a mistake that somebody could make in the engine.

A bug takes the place of functions of the product for as long as its ``with`` lasts. The simulation
must find every one of them (``test_it_can_fail.py``).
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from typing import Any

from streamcore.errors import RetriableError, TransactionAbortedError
from streamcore.model import Position
from streamcore.operators.sink import RepartitionSink
from streamcore.operators.watermark import Mark
from streamcore.runtime import membership
from streamcore.runtime.beginnings import Beginnings
from streamcore.runtime.building import Builder
from streamcore.runtime.commit import Committer
from streamcore.runtime.membership import Membership
from streamcore.runtime.outbound import Outbound
from streamcore.runtime.recovery import Recoverer
from streamcore.runtime.restore import Restorer
from streamcore.runtime.tasks import Tasks
from streamcore.runtime.worker import Worker
from streamcore.state.window import WindowStore
from streamcore.task import Task, metadata
from streamcore.task.clocks import UpstreamClocks
from streamcore.testing.consumer import MemoryConsumer
from streamcore.testing.group import Group
from streamcore.testing.producer import MemoryAdmin

Bug = Callable[[], AbstractContextManager[None]]
BUGS: dict[str, Bug] = {}


@contextmanager
def _replaced(owner: Any, name: str, make: Callable[[Any], Any]) -> Iterator[None]:
    original = owner.__dict__[name]
    setattr(owner, name, make(original))
    try:
        yield
    finally:
        setattr(owner, name, original)


def _bug(*places: tuple[Any, str]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Plant what a function makes of the originals; it is called with each of them."""

    def plant(make: Callable[..., Any]) -> Callable[..., Any]:
        @contextmanager
        def planted() -> Iterator[None]:
            with ExitStack() as stack:
                for owner, name in places:
                    stack.enter_context(_replaced(owner, name, make))
                yield

        BUGS[make.__name__] = planted
        return make

    return plant


# --- commits --------------------------------------------------------------------------------------


@_bug((Committer, "_make_durable"))
def stores_before_offsets(durable: Any) -> Any:
    """Stores write before the offsets, and what is in them, are durable."""

    def make_durable(self: Any, deadline: Any) -> None:
        positions = self._positions(deadline)
        for task, point in self._points.items():
            self._tasks[task].committed(point, positions)
        durable(self, deadline)

    return make_durable


@_bug((Committer, "_end"))
def offsets_before_flush(end: Any) -> Any:
    """Offsets are committed before the broker has acknowledged what was sent."""

    def offsets_first(self: Any, deadline: Any, wait: Any) -> Any:
        try:
            self._make_durable(deadline)
        except RetriableError:
            return False
        return end(self, deadline, wait)

    return offsets_first


@_bug((Committer, "_positions"))
def positions_too_high(positions: Any) -> Any:
    """A store notes that it has applied one record more than was there."""

    def one_more(self: Any, deadline: Any) -> Any:
        found = positions(self, deadline)
        return {tp: Position(at.offset + 1, at.topic_id) for tp, at in found.items()}

    return one_more


@_bug((Task, "_offsets"))
def offset_of_the_last_record(offsets: Any) -> Any:
    """The offset of the last record is committed, instead of the next one."""

    def last(self: Any) -> Any:
        return {tp: replace(at, offset=max(0, at.offset - 1)) for tp, at in offsets(self).items()}

    return last


@_bug((Committer, "_commit_transaction"))
def no_answer_taken_for_yes(_commit: Any) -> Any:
    """A commit that was not answered counts as done."""

    def commit(self: Any, offsets: Any, deadline: Any) -> None:
        try:
            self._outbound.commit_transaction(offsets, self.group_metadata, deadline.share_ms(1))
        except RetriableError:
            self._outbound._in_transaction = False

    return commit


@_bug((Outbound, "discard"))
def fenced_producer_kept(discard: Any) -> Any:
    """After fencing the next transaction is begun with the same producer."""

    def keep(self: Any) -> None:
        self._waiting.clear()
        self._in_transaction = False
        self.unflushed = False

    return keep


@_bug((Recoverer, "_rebuild"))
def overlay_kept_after_an_abort(rebuild: Any) -> Any:
    """The transaction is aborted, and the tasks go on with what they had counted in it."""

    def go_on(self: Any, error: Any) -> None:
        if isinstance(error, TransactionAbortedError):
            self._committer.forget()
            self.abandon_sends()
        else:
            rebuild(self, error)

    return go_on


@_bug((Recoverer, "abandon_sends"))
def sends_kept_when_tasks_go(_abandon: Any) -> Any:
    """What was sent for a generation that ended without a commit goes into the next one's."""
    return lambda self: None


@_bug((Worker, "_last_commit"))
def stop_without_its_last_commit(last_commit: Any) -> Any:
    """Under at-least-once SIGTERM lets everything go as it is, and says that all is well."""

    def skip(self: Any, *args: Any, **named: Any) -> bool:
        if self._settings.exactly_once:
            return bool(last_commit(self, *args, **named))
        return True

    return skip


@_bug((Beginnings, "find"))
def start_in_front_of_the_last_commit(find: Any) -> Any:
    """Under at-least-once a task begins one record in front of what is committed."""

    def one_before(self: Any, tasks: Any, committed: Any, consumer: Any) -> Any:
        begins = find(self, tasks, committed, consumer)
        if self._blueprint.settings.exactly_once:
            return begins
        log = consumer._cluster.log
        return {
            tp: replace(at, offset=max(log(tp).start, at.offset - 1)) for tp, at in begins.items()
        }

    return one_before


# --- the group ------------------------------------------------------------------------------------


@_bug((Group, "check"), (MemoryConsumer, "member_id"))
def no_fencing(original: Any) -> Any:
    """Nobody looks who commits: neither the worker nor the broker."""
    if original.__name__ == "check":
        return lambda self, membership, offsets: None
    return lambda self: self._id


@_bug((Worker, "_feed"))
def rows_of_an_old_generation(feed: Any) -> Any:
    """A batch that was fetched before a rebalance is given to the task that came after it."""

    def feed_again(self: Any, fetched: Any) -> None:
        batches = list(fetched)
        feed(self, batches)
        kept = self.__dict__.setdefault("_planted", {})
        tasks = self._tasks.by_partition
        for source, (batch, task) in list(kept.items()):
            if source in tasks and tasks[source] is not task:
                tasks[source].accept(batch)
                del kept[source]
        kept.update({b.source: (b, tasks[b.source]) for b in batches if b.source in tasks})

    return feed_again


@_bug((Membership, "_record"))
def views_that_differ(record: Any) -> Any:
    """Some members decide without what the group has written down."""

    def forgotten(self: Any, consumer: Any) -> Any:
        return None if self._name.startswith("b") else record(self, consumer)

    return forgotten


@_bug((membership, "judge"))
def an_older_list(judge: Any) -> Any:
    """A member goes by the first list that it has seen."""
    first: dict[str, Any] = {}

    def remembered(view: Any, member_id: str, share: Any, partitions: Any) -> Any:
        if not view.stable or all(m.member_id != member_id for m in view.members):
            return judge(view, member_id, share, partitions)
        old = first.setdefault(member_id, view)
        then = next(m.shares for m in old.members if m.member_id == member_id)
        return judge(old, member_id, then, partitions)

    return remembered


@_bug((membership, "judge"))
def both_versions_work(judge: Any) -> Any:
    """In a rolling deploy each version thinks that the other one gets nothing."""

    def own_kind(view: Any, member_id: str, share: Any, partitions: Any) -> Any:
        kinds = {m.member_id: m.client_id.split(".")[1] for m in view.members if "." in m.client_id}
        listed = [
            m if kinds.get(m.member_id) == kinds.get(member_id) else replace(m, client_id="")
            for m in view.members
        ]
        return judge(replace(view, members=tuple(listed)), member_id, share, partitions)

    return own_kind


# --- restore --------------------------------------------------------------------------------------


@_bug((MemoryAdmin, "offsets"))
def restore_to_the_stable_end(offsets: Any) -> Any:
    """A restore ends at the last stable offset, where later commits may still wait for markers."""

    def stable(self: Any, partitions: Any, where: str, timeout_ms: int) -> Any:
        found = offsets(self, partitions, where, timeout_ms)
        if where == "latest":
            return {tp: min(at, self._cluster.log(tp).stable_end) for tp, at in found.items()}
        return found

    return stable


@_bug((Builder, "_starts"))
def standby_promoted_without_its_tail(starts: Any) -> Any:
    """A store that is there is taken as it is."""

    def as_it_is(self: Any, task: Any, found: Any, now_ms: int) -> Any:
        begins, fits = starts(self, task, found, now_ms)
        for tp, state in task.changelogs().items():
            if fits and state.position is not None:
                begins[tp] = found[tp].end
        return begins, fits

    return as_it_is


@_bug((Restorer, "_apply"))
def end_judged_by_the_last_record(apply: Any) -> Any:
    """Markers and what compaction took are waited for as if they were records."""

    def last_record(self: Any, fetched: Any, reading: Any) -> Any:
        before = reading.next_offset
        rows = apply(self, fetched, reading)
        reading.next_offset = fetched.offsets[-1] + 1 if fetched.offsets else before
        return rows

    return last_record


@_bug((Tasks, "rebuild"), (Tasks, "_start"))
def buffers_kept_over_a_rebuild(original: Any) -> Any:
    """A task that is rebuilt finds the rows that were fetched for the one before."""

    def rebuild(self: Any, tasks: Any, *, clean: bool = False) -> None:
        ids = list(tasks)
        kept = self.__dict__.setdefault("_planted", {})
        for task in ids:
            if task in self.running and task in self._wanted:
                kept[task] = self.running[task]._buffers
        original(self, ids, clean=clean)

    def start(self: Any, task: Any, now_ms: int) -> None:
        original(self, task, now_ms)
        kept = self.__dict__.setdefault("_planted", {})
        if task in kept:
            self.running[task]._buffers = kept.pop(task)

    return start if original.__name__ == "_start" else rebuild


@_bug((WindowStore, "_local_changes"))
def expired_windows_resurrected(changes: Any) -> Any:
    """What has expired stays on the disk, and is there again after the next start."""

    def without_deletes(self: Any) -> Any:
        self._gone = {}
        return changes(self)

    return without_deletes


# --- event time -----------------------------------------------------------------------------------


@_bug((UpstreamClocks, "mark"))
def maximum_for_minimum(_mark: Any) -> Any:
    """The watermark follows the fastest of the inputs."""

    def fastest(self: Any) -> Mark:
        return Mark(max(self.marks_ms, default=-1), False)

    return fastest


@_bug((UpstreamClocks, "mark"))
def idle_mark_kept(mark: Any) -> Any:
    """Who said once that it is idle holds nothing back any more."""

    def without_the_idle(self: Any) -> Mark:
        pairs = zip(self.marks_ms, self.idle_until_ms, strict=True)
        awake = [ms for ms, until_ms in pairs if until_ms < 0]
        return Mark(min(awake), False) if awake else Mark(max(self.marks_ms, default=-1), True)

    return without_the_idle


@_bug((metadata, "decode"))
def clock_lost_at_a_restart(decode: Any) -> Any:
    """Clocks and watermarks begin anew wherever a task does."""
    return lambda text: decode("")


@_bug((RepartitionSink, "process"))
def marker_before_its_records(process: Any) -> Any:
    """A task tells how far it has come in front of the rows that it has yet to write."""

    def marker_first(self: Any, rows: Any) -> None:
        if len(rows):
            self._tell(Mark(max(rows.clocks_ms), False))
        process(self, rows)

    return marker_first
