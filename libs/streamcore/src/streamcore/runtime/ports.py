"""Ports: what a worker needs from the world. Adapters implement them, and the in-memory broker.

Every port is called by one thread. Errors of the world come as ``streamcore.errors`` classes, never
as a client library's. Timeouts are upper bounds, given by the caller.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from streamcore.clock import Clock
from streamcore.model import Fetched, OffsetAndMetadata, Send, TaskId, TopicPartition
from streamcore.state.engine import Engine


class RebalanceListener(Protocol):
    """What a worker does inside the consumer's callbacks; all of it runs inside ``poll``."""

    def on_assigned(self, shares: Sequence[TopicPartition]) -> None:
        """New generation; ``shares`` may be empty. Must call ``assign`` on every way out."""

    def on_revoked(self, shares: Sequence[TopicPartition]) -> None:
        """Commit now or never: after the return the partitions belong to others."""

    def on_lost(self, shares: Sequence[TopicPartition]) -> None:
        """The partitions belong to others already: drop everything, commit nothing."""


class Consumer(Protocol):
    """One member of the group named application.id."""

    def subscribe(self, topics: Sequence[str], listener: RebalanceListener) -> None: ...

    def poll(self, rows_max: int, timeout_ms: int) -> list[Fetched]:
        """Return what came, one batch per partition (end-of-partition events as ``at_end``).

        Rebalance callbacks run inside. Rows of partitions revoked meanwhile are not returned.

        :raises FetchPositionGoneError: if a position is out of the log's range.
        """

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """Read these partitions from these offsets, and no others; none of them is paused then."""

    def pause(self, partitions: Iterable[TopicPartition]) -> None: ...

    def resume(self, partitions: Iterable[TopicPartition]) -> None: ...

    def seek(self, partition: TopicPartition, offset: int) -> None: ...

    def unread(self, positions: Mapping[TopicPartition, int]) -> set[TopicPartition]:
        """Return those of the partitions that are known to hold more in front of us than that.

        Asks nobody: what was fetched is told with the log's end, long before ``poll`` returns it.
        """

    def high_watermarks(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the end of each partition as last seen, left out where nothing was seen yet.

        Asks nobody: ends come with what is fetched.
        """

    def committed(
        self, partitions: Iterable[TopicPartition], timeout_ms: int
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return what the group has committed; waits while a transaction's offsets are pending."""

    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], timeout_ms: int) -> None:
        """Commit synchronously.

        :raises MemberFencedError: if the group does not know this member or generation any more.
        :raises RetriableError: if the coordinator did not answer in time.
        """

    def member_id(self) -> str | None:
        """Return this member's id, None while it is not (or no longer) in the group."""

    def group_metadata(self) -> Any:
        """Return the opaque proof of membership that a transaction's offsets need."""

    def close(self) -> None:
        """Leave the group at once."""


class ChangelogReader(Protocol):
    """Reads changelogs for restore; never subscribes, never commits, isolation as in the app."""

    def assign(self, positions: Mapping[TopicPartition, int]) -> None: ...

    def poll(self, rows_max: int, timeout_ms: int) -> list[Fetched]:
        """As ``Consumer.poll``; raises FetchPositionGoneError with ``partition`` set."""

    def close(self) -> None: ...


class Producer(Protocol):
    """One producer for all tasks of a worker; idempotent, or transactional."""

    def send(self, send: Send) -> Send | None:
        """Queue the rows; return what did not fit (the same order, to be sent first), or None."""

    def flush(self, timeout_ms: int) -> bool:
        """Return True when everything queued is acknowledged, False while something is not yet.

        :raises ProductionError: if records were refused; it is raised once for all that are known.
            Where it names them (``refused``) all others are acknowledged.
        :raises ProducerFencedError: if the producer can only be thrown away.
        """

    def init_transactions(self, timeout_ms: int) -> None: ...

    def begin_transaction(self) -> None: ...

    def commit_transaction(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        group_metadata: Any,
        timeout_ms: int,
    ) -> None:
        """Send the offsets into the transaction and commit it.

        :raises RetriableError: outcome unknown; call again.
        :raises TransactionAbortedError: it must be aborted (``abort_transaction``).
        :raises MemberFencedError: the group's generation has moved on.
        :raises ProducerFencedError: only a new producer goes on.
        """

    def abort_transaction(self, timeout_ms: int) -> None: ...

    def close(self) -> None:
        """Throw away what is queued and let go."""


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """A topic that must exist: name on the broker, partitions, settings."""

    name: str
    partitions: int
    settings: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class GroupMember:
    """One member of a group as its coordinator describes it."""

    member_id: str
    client_id: str
    shares: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class GroupView:
    """What a coordinator answers about a group.

    ``stable`` only when every member has joined the current generation; ``members`` is empty for a
    group that nobody is in.
    """

    stable: bool
    members: tuple[GroupMember, ...]


class Admin(Protocol):
    """Questions and orders to the cluster."""

    def group(self, name: str, timeout_ms: int) -> GroupView | None:
        """Describe a group; None while there is no answer yet, so ask again (it goes on).

        Never waits longer than ``timeout_ms``, whatever the coordinator does.

        :raises GroupRefusedError: if this client may not ask.
        """

    def partitions(self, topics: Iterable[str], timeout_ms: int) -> dict[str, int | None]:
        """Return the partition count of each topic, None for one that does not exist."""

    def topic_ids(self, topics: Iterable[str], timeout_ms: int) -> dict[str, str]:
        """Return the id of each topic ('' where the broker does not tell)."""

    def settings(self, topics: Iterable[str], timeout_ms: int) -> dict[str, dict[str, str]]:
        """Return the settings of each topic; a topic whose settings we may not see is left out."""

    def create(
        self, topics: Iterable[TopicSpec], timeout_ms: int, *, only_ask: bool = False
    ) -> None:
        """Create the topics; one that exists already is fine. ``only_ask``: create none of them.

        :raises TopicCreationRefusedError: names those that this client may not create; all others
            are made.
        """

    def offsets(
        self, partitions: Iterable[TopicPartition], where: str, timeout_ms: int
    ) -> dict[TopicPartition, int]:
        """Return the ``"earliest"`` or ``"latest"`` offsets (READ_UNCOMMITTED), or the ``"stable"``
        ones: in front of the first transaction that is not decided.
        """

    def delete_records(
        self, before: Mapping[TopicPartition, int], timeout_ms: int
    ) -> frozenset[str]:
        """Delete the records before these offsets; return the topics where we may not.

        Any other failure is told now and then, and never raised.
        """

    def close(self) -> None: ...


class StateDir(Protocol):
    """The folders in which stores live; one process has the lock on a task's folder."""

    def open(self, task: TaskId, store: str) -> Engine:
        """Open (or make) the engine of a store; a damaged one is set aside and begun anew.

        :raises StateDirLockedError: if another process holds the task's folder.
        """

    def discard(self, task: TaskId, store: str) -> None:
        """Set the store's files aside and forget them; it must not be open."""

    def clean_up(self, keep: Collection[TaskId]) -> None:
        """Remove what is left of all other tasks, as far as that can be done; none is open."""

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Process:
    """Who this worker is.

    ``slot`` stays the same over a restart (host, state folder, number in it). ``run`` is different
    in every start of every process. ``predecessor`` is the ``run`` that had this slot before, and
    is certainly dead; empty if unknown. Both are made of letters, digits and ``-_.``, ``run`` holds
    no dot.
    """

    slot: str
    run: str
    started_ms: int
    predecessor: str = ""


@dataclass(frozen=True, slots=True)
class World:
    """All that one worker reaches the world through.

    The makers give new clients: a fenced producer or member can only be replaced. ``consumer``
    takes the client id, by which the members of a group know each other; ``producer`` takes a
    transactional id, or None for a plain one.
    """

    process: Process
    consumer: Callable[[str], Consumer]
    producer: Callable[[str | None], Producer]
    reader: Callable[[], ChangelogReader]
    admin: Admin
    state_dir: StateDir
    clock: Clock
