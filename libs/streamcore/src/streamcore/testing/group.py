"""Group: a consumer group as the coordinator keeps it: members, generations, committed offsets.

Eager and classic: whenever somebody comes or goes, every member gives everything up in its next
poll and gets a new share when all have done so. Fencing is by member and generation, never by
partition. A member that does not poll in time is put out, and learns of it in its next poll.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from typing import Protocol

from streamcore.errors import MemberFencedError, StreamsError
from streamcore.model import OffsetAndMetadata, TopicPartition
from streamcore.runtime.ports import GroupMember, GroupView
from streamcore.testing.partition_log import Transaction

METADATA_MAX = 4_095
"""Characters of metadata with an offset that a broker takes."""


class Member(Protocol):
    """What the group sees of a consumer."""

    client_id: str
    topics: Sequence[str]
    polled_ms: int
    dead: bool


@dataclass(frozen=True, slots=True)
class Membership:
    """Proof of membership, as a transaction carries it."""

    group: str
    member_id: str | None
    generation: int


@dataclass(slots=True)
class Group:
    """One group. ``shares`` are those of the current generation."""

    name: str
    members: dict[str, Member] = field(default_factory=dict)
    generation: int = 0
    joining: bool = False
    joined: set[str] = field(default_factory=set)
    shares: dict[str, tuple[TopicPartition, ...]] = field(default_factory=dict)
    offsets: dict[TopicPartition, OffsetAndMetadata] = field(default_factory=dict)
    pending: dict[Transaction, dict[TopicPartition, OffsetAndMetadata]] = field(
        default_factory=dict
    )
    ids: int = 0

    def enter(self, member: Member) -> str:
        """Let a new member in; everybody has to join anew."""
        self.ids += 1
        member_id = f"{member.client_id}-{self.ids}"
        self.members[member_id] = member
        self.rebalance()
        return member_id

    def leave(self, member_id: str) -> None:
        """Let a member go, or put it out."""
        if self.members.pop(member_id, None) is not None:
            self.joined.discard(member_id)
            self.rebalance()

    def rebalance(self) -> None:
        self.joining = True
        self.joined.clear()

    def join(self, member_id: str, partitions: Mapping[str, int]) -> None:
        """Take a member into the coming generation, which begins when all are in."""
        self.joined.add(member_id)
        if self.joined >= self.members.keys():
            self.joining = False
            self.generation += 1
            self.shares = self._roundrobin(partitions)

    def describe(self) -> GroupView:
        """Return what the coordinator tells of it: old shares for as long as somebody must join."""
        members = tuple(
            GroupMember(
                member_id, self.members[member_id].client_id, self.shares.get(member_id, ())
            )
            for member_id in sorted(self.members)
        )
        return GroupView(stable=not members or not self.joining, members=members)

    def check(self, membership: Membership, offsets: Mapping[TopicPartition, object]) -> None:
        """Refuse offsets of who is not, or no longer, a member of this generation."""
        known = membership.member_id is not None and membership.member_id in self.members
        if not known:
            raise MemberFencedError(f"UNKNOWN_MEMBER_ID {membership.member_id}")
        if membership.generation != self.generation:
            raise MemberFencedError(
                f"ILLEGAL_GENERATION {membership.generation}, it is {self.generation}"
            )
        for tp, at in offsets.items():
            if isinstance(at, OffsetAndMetadata) and len(at.metadata) > METADATA_MAX:
                raise StreamsError(f"OFFSET_METADATA_TOO_LARGE for {tp}: {len(at.metadata)}")

    def settle(self, transaction: Transaction) -> None:
        """A transaction has ended: its offsets hold, or never were."""
        offsets = self.pending.pop(transaction, {})
        if transaction.outcome == "committed":
            self.offsets |= offsets

    def unstable(self, tp: TopicPartition) -> bool:
        """Tell whether a transaction that has not ended has an offset for this partition."""
        return any(tp in offsets for offsets in self.pending.values())

    def _roundrobin(self, partitions: Mapping[str, int]) -> dict[str, tuple[TopicPartition, ...]]:
        """Deal all partitions, sorted, to the members, sorted; who does not read it is passed."""
        shares: dict[str, list[TopicPartition]] = {member: [] for member in sorted(self.members)}
        turn = cycle(shares)
        for topic in sorted({t for member in self.members.values() for t in member.topics}):
            for partition in range(partitions.get(topic, 0)):
                reader = next(m for m in turn if topic in self.members[m].topics)
                shares[reader].append(TopicPartition(topic, partition))
        return {member: tuple(share) for member, share in shares.items()}
