"""Cluster: what the in-memory broker holds, and what happens to it without a client."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from streamcore.errors import ProducerFencedError, RetriableError
from streamcore.model import TopicPartition
from streamcore.testing.clock import ManualClock
from streamcore.testing.faults import Faults
from streamcore.testing.group import Group
from streamcore.testing.partition_log import PartitionLog, Transaction

Right = Literal["create", "settings", "delete_records"]


@dataclass(slots=True)
class Topic:
    """A topic: its id changes when it is made anew."""

    id: str
    partitions: list[PartitionLog]
    settings: dict[str, str] = field(default_factory=dict)


class Cluster:
    """Topics, groups, transactions; ``max_poll_ms`` and ``session_ms`` hold for every consumer."""

    def __init__(
        self,
        clock: ManualClock,
        *,
        max_poll_ms: int = 300_000,
        session_ms: int = 10_000,
        transaction_ms: int = 10_000,
        queue_rows_max: int = 100_000,
    ) -> None:
        self.clock = clock
        self.max_poll_ms = max_poll_ms
        self.session_ms = session_ms
        self.transaction_ms = transaction_ms
        self.queue_rows_max = queue_rows_max
        self.faults = Faults()
        self.away = False
        self.refused: set[Right] = set()  # rights that no client has
        self.refused_groups: set[str] = set()
        self.late_markers = False
        self.lingers = False  # producers hold rows back until they are flushed
        self.topics: dict[str, Topic] = {}
        self.groups: dict[str, Group] = {}
        self.epochs: dict[str, int] = {}
        self.transactions: dict[str, Transaction] = {}  # the open one of each transactional.id
        self._unwritten: list[Transaction] = []
        self._ids = 0
        self.processes = 0

    # -- topics ------------------------------------------------------------------------------

    def create(
        self, topic: str, partitions: int, settings: Mapping[str, str] | None = None
    ) -> None:
        """Create a topic; one that exists stays as it is."""
        if topic not in self.topics:
            self._ids += 1
            logs = [self.new_log() for _ in range(partitions)]
            self.topics[topic] = Topic(f"id-{self._ids}", logs, dict(settings or {}))

    def new_log(self) -> PartitionLog:
        """Make the log of one partition; a checker's cluster may want to see what is written."""
        return PartitionLog()

    def compact(self, topic: str) -> None:
        """Compact a topic now, if its settings say that it is compacted at all."""
        made = self.topics[topic]
        if "compact" in made.settings.get("cleanup.policy", ""):
            for log in made.partitions:
                log.compact()

    def retain(self, topic: str, oldest_ms: int) -> None:
        """Delete the old records of a topic now, by its retention."""
        for log in self.topics[topic].partitions:
            log.retain(oldest_ms)

    def delete(self, topic: str) -> None:
        """Delete a topic with all it holds; a new one of that name gets another id."""
        del self.topics[topic]

    def log(self, tp: TopicPartition) -> PartitionLog:
        """Return one partition."""
        return self.topics[tp.topic].partitions[tp.partition]

    def must_answer(self, timeout_ms: int) -> None:
        """Let the time of a request pass in vain while the cluster is away."""
        if self.away:
            self.clock.advance(timeout_ms)
            raise RetriableError("the cluster is away")

    # -- groups and transactions -------------------------------------------------------------

    def group(self, name: str) -> Group:
        return self.groups.setdefault(name, Group(name))

    def put_out_the_silent(self) -> None:
        """Remove members that have not polled for too long, or have died."""
        now_ms = self.clock.now_ms()
        for group in self.groups.values():
            for member_id, member in list(group.members.items()):
                limit_ms = self.session_ms if member.dead else self.max_poll_ms
                if now_ms - member.polled_ms > limit_ms:
                    group.leave(member_id)

    def fence(self, transactional_id: str) -> int:
        """Begin a new epoch: whatever the one before left open is aborted."""
        self.epochs[transactional_id] = self.epochs.get(transactional_id, 0) + 1
        transaction = self.transactions.get(transactional_id)
        if transaction is not None:
            self.end(transaction, "aborted")
        return self.epochs[transactional_id]

    def check_epoch(self, transactional_id: str, epoch: int) -> None:
        """Refuse a producer that another one has replaced, or whose transaction has expired."""
        if self.epochs.get(transactional_id) != epoch:
            raise ProducerFencedError(f"producer {transactional_id} was fenced")

    def end(self, transaction: Transaction, outcome: str) -> None:
        """Decide a transaction; its markers follow at once, or late."""
        transaction.outcome = outcome
        del self.transactions[transaction.producer]
        self._unwritten.append(transaction)
        if not self.late_markers:
            self.write_markers()

    def write_markers(self) -> None:
        """Write the markers that are due, and settle the offsets that were sent with them."""
        while self._unwritten:
            self.write_marker(0)

    def complete(self, transactional_id: str) -> None:
        """Write all markers of a producer's last transaction: it can begin no other before."""
        for transaction in list(self._unwritten):
            if transaction.producer == transactional_id:
                for log in list(transaction.unmarked):
                    log.mark(transaction, self.clock.now_ms())
                for group in self.groups.values():
                    group.settle(transaction)
                self._unwritten.remove(transaction)

    def write_marker(self, which: int) -> None:
        """Write one of the markers that are due, each partition's and group's on its own."""
        due: list[tuple[Transaction, PartitionLog | Group]] = []
        for ended in self._unwritten:
            due += [(ended, log) for log in ended.unmarked]
            due += [(ended, group) for group in self.groups.values() if ended in group.pending]
        if due:
            transaction, place = due[which % len(due)]
            if isinstance(place, Group):
                place.settle(transaction)
            else:
                place.mark(transaction, self.clock.now_ms())
        self._unwritten = [
            transaction
            for transaction in self._unwritten
            if transaction.unmarked
            or any(transaction in group.pending for group in self.groups.values())
        ]

    def expire_transactions(self) -> None:
        """Abort transactions that are open for too long; their producers are done for."""
        oldest_ms = self.clock.now_ms() - self.transaction_ms
        for transactional_id, transaction in list(self.transactions.items()):
            if transaction.began_ms < oldest_ms:
                self.fence(transactional_id)
