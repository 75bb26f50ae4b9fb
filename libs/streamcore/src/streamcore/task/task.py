"""Task: one sub-topology on one partition. It does no I/O, never blocks, and one thread calls it.

===================  ==================  ========================================================
call                 legal in            what it does
===================  ==================  ========================================================
changelogs           CREATED             where each logged store wants to go on reading
restored_watermarks  CREATED             tells stores what the last commit had closed
restore              CREATED             applies changelog rows to a store
external_positions   CREATED             asks external stores where reading begins
start                CREATED -> RUNNING  takes offsets, clocks and watermarks of the last commit
accept               RUNNING             buffers what the broker gave
process              RUNNING             runs buffered rows; the outbox grows
punctuate            RUNNING             fires wall-clock timers
drain                RUNNING             hands over the sends so far
doubt_idleness       RUNNING             takes time from the silence of inputs
read_to_end          RUNNING             says which inputs seem to be read to their ends
expect_more          RUNNING             hears that one of these has more
cut                  RUNNING             empties overlays, lets time pass, names what to commit
committed            RUNNING             writes what was cut into the stores
close                any                 drops whatever is not committed; engines stay open
===================  ==================  ========================================================

A commit is cut, drain, send, wait, the offsets, committed, in this order and by the owner. After
any failure between two of them the task is thrown away and built anew from the last commit.
"""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import cast

from streamcore.errors import ProcessingError, RecordError, StreamsError
from streamcore.model import (
    CommitPoint,
    Fetched,
    OffsetAndMetadata,
    Position,
    Rows,
    Send,
    TaskId,
    TopicPartition,
)
from streamcore.operators.base import Drops
from streamcore.state.build import Store
from streamcore.task import metadata
from streamcore.task.buffer import Buffers
from streamcore.task.config import TaskConfig
from streamcore.task.event_time import EventTime
from streamcore.task.intake import Chunk, Fault, Gap, Heard, Intake, Item
from streamcore.task.lifecycle import TaskState, move
from streamcore.task.parts import ChangelogState, TaskParts
from streamcore.task.policy import decide
from streamcore.task.user_code import pass_on, user_code

ENTRY_BYTES = 400
"""What a changed key costs until it is committed, about: overlay, changelog row and result."""


class Task:
    """See the module. Made by ``build_task`` alone."""

    __test__ = False

    def __init__(self, task_id: TaskId, parts: TaskParts, config: TaskConfig) -> None:
        self.id = task_id
        self.state = TaskState.CREATED
        self.inputs = tuple(parts.inputs)
        self.stopped_at: RecordError | None = None
        self.counters: Drops = parts.drops
        self.rows_processed = 0
        self._parts = parts
        self._config = config
        self._pipeline = parts.pipeline
        self._outbox = parts.outbox
        self._poisoned: dict[TopicPartition, dict[int, ProcessingError]] = {}
        self._intakes: dict[TopicPartition, Intake] = {}
        self._buffers = Buffers(self.inputs)
        self._time = EventTime(parts.inputs, parts.upstream_tasks, config)
        self._next: dict[TopicPartition, int] = {}
        self._committed: dict[TopicPartition, OffsetAndMetadata] = {}
        self._began: dict[TopicPartition, int] = {}
        self._logged: set[TopicPartition] = set()
        self._now_ms = 0

    # --- restoring ---------------------------------------------------------------------------

    def changelogs(self) -> dict[TopicPartition, ChangelogState]:
        """Return each logged store's changelog partition and how far the store has applied it."""
        found: dict[TopicPartition, ChangelogState] = {}
        for at, name in self._parts.changelogs.items():
            store = self._parts.stores[name]
            mark = self._pipeline.watermark_of(name), self._time.moved_ms
            found[at] = ChangelogState(name, store.spec, store.position, False, *mark)
        for at, name in self._parts.source_changelogs.items():
            store = self._parts.stores[name]
            found[at] = ChangelogState(name, store.spec, store.position, until_committed=True)
        return found

    def restored_watermarks(
        self, committed: Mapping[TopicPartition, OffsetAndMetadata | None]
    ) -> None:
        """Take the watermarks of the last commit before the first ``restore``."""
        states = [metadata.decode(c.metadata) for c in committed.values() if c is not None]
        self._time.remember(states)
        keepers = self._pipeline.keepers
        for keeper, ms in zip(keepers, metadata.latest(states, len(keepers)), strict=True):
            keeper.restore_time(ms)

    def restore(self, store: str, fetched: Fetched, topic_id: str) -> int:
        """Apply changelog rows; return how many. Windows that are closed are skipped."""
        assert self.state is TaskState.CREATED, self.state
        position = Position(fetched.next_offset, topic_id)
        keys, values, stamps_ms = fetched.keys, fetched.values, fetched.stamps_ms
        if None in keys:  # only a table's source topic can hold null keys
            keyed = [row for row, key in enumerate(keys) if key is not None]
            keys = [keys[row] for row in keyed]
            values = [values[row] for row in keyed]
            stamps_ms = [stamps_ms[row] for row in keyed]
        return self._parts.stores[store].restore(
            cast("Sequence[bytes]", keys),
            values,
            stamps_ms,
            position,
            self._pipeline.watermark_of(store),
        )

    # --- running -----------------------------------------------------------------------------

    def external_positions(
        self, topic_ids: Mapping[TopicPartition, str]
    ) -> dict[TopicPartition, int]:
        """Return where external stores say that reading begins; they win over committed offsets.

        :raises RetriableError: if one of them is away.
        """
        found: dict[TopicPartition, int] = {}
        for external in self._pipeline.externals:
            for partition, position in external.start(topic_ids).items():
                found[partition] = min(position.offset, found.get(partition, position.offset))
        return found

    def poison(self, partition: TopicPartition, offset: int, error: ProcessingError) -> None:
        """Treat that row as the policy for processing errors says, instead of running it."""
        self._poisoned.setdefault(partition, {})[offset] = error

    def start(self, positions: Mapping[TopicPartition, OffsetAndMetadata], now_ms: int) -> None:
        """Begin at these offsets (of every input) with the clocks in their metadata."""
        self.state = move(self.id, self.state, TaskState.RUNNING)
        self._now_ms = now_ms
        self.restored_watermarks(positions)
        for partition, source in self._parts.inputs.items():
            own = positions[partition]
            self._time.start(partition, metadata.decode(own.metadata), now_ms)
            self._next[partition] = self._began[partition] = own.offset
            self._intakes[partition] = Intake(partition, source, self._poisoned.get(partition, {}))
        for speaker in self._pipeline.speakers:
            speaker.start(now_ms)
        with user_code(self.id, "in a processor's init"):
            for processor in self._pipeline.processors:
                processor.start(now_ms)

    def accept(self, fetched: Fetched) -> None:
        """Buffer a batch; it is decoded here and processed later."""
        assert self.state is TaskState.RUNNING, self.state
        partition = fetched.source
        source = self._parts.inputs[partition]
        limit_ms = self._now_ms + self._config.max_timestamp_ahead_ms
        if source.internal:
            limit_ms = 1 << 62  # what entered through a source topic was judged there
        try:
            items = self._intakes[partition].items(fetched, limit_ms)
        except StreamsError as error:
            pass_on(self.id, error)
        self._buffers[partition].add(items, at_end=fetched.at_end)

    @property
    def full(self) -> tuple[TopicPartition, ...]:
        """The inputs that hold enough rows; the owner should pause them."""
        return self._buffers.over(self._config.buffered_rows_max)

    def process(self, now_ms: int, rows_max: int) -> int:
        """Process up to ``rows_max`` buffered rows; return how many.

        Where user code fails before anything was changed or sent, the rows are tried one by one,
        and the policy for processing errors decides about those that fail.

        :raises ProcessingError: if it failed later; with ``rows_max`` 1 it names the very row.
        """
        assert self.state is TaskState.RUNNING, self.state
        self._now_ms = now_ms
        done = 0
        while done < rows_max and self.stopped_at is None:
            found = self._buffers.next(1 if self._pipeline.row_by_row else rows_max - done)
            if found is None:
                break
            done += self._take(*found)
        self.rows_processed += done
        return done

    def _take(self, partition: TopicPartition, item: Item) -> int:
        if isinstance(item, Chunk):
            failed = self._run(partition, item)
            if failed is None:
                self._next[partition] = item.next_offset
                return item.rows
            if item.rows > 1:
                self._buffers[partition].put_back(item.apart())
                return 0
            item = item.as_fault(failed)
        if isinstance(item, Heard):
            self._time.hear(partition, item.marker, item.said_at_ms)
        elif isinstance(item, Gap):
            if item.drop is not None:
                self.counters[item.drop] += 1
        elif not decide(item, self._config, self.counters, self._outbox, self._now_ms):
            self.stopped_at = item.error
            return 0
        self._next[partition] = item.next_offset
        return 1 if isinstance(item, Fault) else 0

    def _run(self, partition: TopicPartition, chunk: Chunk) -> ProcessingError | None:
        """Run the rows; return what user code raised if that left everything as it was."""
        source, trace = self._parts.inputs[partition], self._pipeline.trace
        trace.left, dropped = False, dict(self.counters)
        clocks_ms, clock = chunk.clocks_ms, self._time.clock_of(partition)
        if clock is not None:
            clocks_ms = clock.read(chunk.stamps_ms, self._now_ms)
        assert clocks_ms is not None, "rows of a repartition topic come with their clocks"
        rows = Rows(chunk.keys, chunk.values, chunk.stamps_ms, clocks_ms, chunk.headers)
        if self._pipeline.needs_offsets:
            rows.source, rows.offsets = partition, chunk.offsets
        try:
            self._pipeline.entries[source.name](rows)
        except StreamsError as error:
            pass_on(self.id, error)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            failed = ProcessingError(partition, chunk.offsets[0], reason)
            if trace.left:
                raise failed from error
            failed.__cause__ = error
            self.counters.clear()
            self.counters.update(dropped)
            if clock is not None:
                clock.take_back()
            return failed
        return None

    def punctuate(self, now_ms: int) -> int:
        """Fire the wall-clock timers that are due; return how many."""
        assert self.state is TaskState.RUNNING, self.state
        self._now_ms = now_ms
        if self.stopped_at is not None:
            return 0
        with user_code(self.id, "in a wall-clock timer"):
            return sum(processor.punctuate(now_ms) for processor in self._pipeline.processors)

    def drain(self) -> list[Send]:
        """Return the sends so far, in order; they are the owner's from here on."""
        sends = self._outbox[:]
        self._outbox.clear()
        return sends

    def doubt_idleness(self, now_ms: int, unheard_ms: int) -> None:
        """Take so much from how long inputs have been silent: it was not they who were silent."""
        self._time.doubt_idleness(now_ms, unheard_ms)

    def read_to_end(self) -> dict[TopicPartition, int]:
        """Return the inputs that seem to be read to their ends, and where those were."""
        return {at: self._next[at] for at in self.inputs if self._buffers[at].caught_up}

    def expect_more(self, partition: TopicPartition) -> None:
        """An input has grown since it was read to its end: it is not idle, only not yet heard."""
        self._buffers[partition].at_end = False

    # --- committing --------------------------------------------------------------------------

    def cut(self, now_ms: int) -> CommitPoint | None:
        """Empty the overlays into stores and outbox, let time pass, and name what to commit.

        None: nothing has moved since the last commit. ``drain`` afterwards.

        :raises RetriableError: if an external store is away; the same call again goes on.
        """
        assert self.state is TaskState.RUNNING, self.state
        self._now_ms = now_ms
        marks = self._time.marks(self._buffers, now_ms)
        with user_code(self.id, "at the commit"):
            self._pipeline.flush_and_advance(marks, now_ms)
        for external in self._pipeline.externals:
            external.write_out(self._next)
        self._log_changes()
        offsets = self._offsets()
        owed = any(speaker.owes_marker for speaker in self._pipeline.speakers)
        if offsets == self._committed and not (self._logged or self._outbox or owed):
            return None
        return CommitPoint(self.id, offsets, frozenset(self._logged))

    def _log_changes(self) -> None:
        """Move the stores' changes into their changelogs' sends."""
        for at, name in self._parts.changelogs.items():
            rows = self._parts.stores[name].cut()
            if len(rows):
                self._logged.add(at)
                self._outbox.append(
                    Send(at.topic, rows.keys, rows.values, rows.stamps_ms, partition=at.partition)
                )
        for name in self._parts.stores.keys() - set(self._parts.changelogs.values()):
            self._parts.stores[name].cut()

    def _offsets(self) -> dict[TopicPartition, OffsetAndMetadata]:
        watermarks_ms = tuple(keeper.watermark_ms for keeper in self._pipeline.keepers)
        return {
            at: OffsetAndMetadata(
                self._next[at], metadata.encode(self._time.state(at, watermarks_ms, self._now_ms))
            )
            for at in self.inputs
        }

    def committed(self, point: CommitPoint, positions: Mapping[TopicPartition, Position]) -> None:
        """Note that the point is durable: stores write what was cut, with their new positions.

        ``positions`` are the ends of the changelog partitions after the flush. The outbox may grow
        by markers that vouch for what is acknowledged now.
        """
        assert point.task == self.id, (point.task, self.id)
        self._committed = point.offsets
        self._logged.clear()
        for at, name in self._parts.changelogs.items():
            self._parts.stores[name].committed(positions.get(at))
        for at, name in self._parts.source_changelogs.items():
            old = self._parts.stores[name].position
            topic_id = positions[at].topic_id if at in positions else old.topic_id if old else ""
            self._parts.stores[name].committed(Position(self._next[at], topic_id))
        tracked = {*self._parts.changelogs.values(), *self._parts.source_changelogs.values()}
        for name in self._parts.stores:
            if name not in tracked:
                self._parts.stores[name].committed(None)
        for operator in self._pipeline.operators.values():
            operator.committed()

    # --- facts -------------------------------------------------------------------------------

    @property
    def dirty_bytes(self) -> int:
        """About how much memory waits for the next commit."""
        live = sum(operator.live_entries for operator in self._pipeline.operators.values())
        return live * ENTRY_BYTES + sum(store.dirty_bytes for store in self._parts.stores.values())

    @property
    def watermark_ms(self) -> int:
        return self._pipeline.watermark_ms

    @property
    def committed_offsets(self) -> dict[TopicPartition, int]:
        """How far every input is committed; before the first commit, where it began."""
        return {**self._began, **{at: own.offset for at, own in self._committed.items()}}

    def purgeable(self) -> dict[TopicPartition, int]:
        """Return the repartition inputs and the offsets in front of which nobody needs a record."""
        return {
            partition: self._committed[partition].offset
            for partition, source in self._parts.inputs.items()
            if source.internal and partition in self._committed
        }

    @property
    def stores(self) -> Mapping[str, Store]:
        """The stores of this task, to be read."""
        return self._parts.stores

    def store(self, name: str) -> Store:
        """Return a store of this task, to be read."""
        return self._parts.stores[name]

    # --- the end -----------------------------------------------------------------------------

    def close(self, *, clean: bool) -> None:
        """Let go of processors and external stores; uncommitted changes are forgotten.

        The engines stay open: they belong to the owner. ``clean`` says that everything was
        committed; it is checked.

        :raises UserCodeError: if a processor's ``close`` failed; all else is closed even so.
        """
        if self.state is TaskState.CLOSED:
            return
        if clean:
            assert not self._outbox, f"task {self.id} closed clean with sends waiting"
        started = self.state is not TaskState.CREATED
        self.state = move(self.id, self.state, TaskState.CLOSED)
        with ExitStack() as closing:  # all of it, whatever one of them raises
            for external in reversed(self._pipeline.externals):
                closing.callback(external.close)
            closing.enter_context(user_code(self.id, "in a processor's close"))
            for processor in reversed(self._pipeline.processors if started else ()):
                closing.callback(processor.close)
