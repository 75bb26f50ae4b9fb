"""What a group must do behind the ports, as tests: the list of its members, and what they may do.

Workers assign tasks by themselves. So everything here is relied on: that all see the same list,
that a member may read and commit what the coordinator gave to somebody else, and that whoever is
not in the present generation may not.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

import pytest

from streamcore.errors import MemberFencedError
from streamcore.model import OffsetAndMetadata, TopicPartition
from streamcore.runtime.ports import Admin, Consumer, GroupView
from streamcore.testing.contracts.broker import (
    POLL_MS,
    TIMEOUT_MS,
    BrokerContract,
    Cluster,
    Log,
    Member,
    poll_until,
    rows_of,
    send_all,
)

NOBODY = GroupView(stable=True, members=())
PROMPTLY = 60
"""Polls, of POLL_MS each: much sooner than any transaction expires."""


def ask(admin: Admin, group: str) -> GroupView:
    """Return what the coordinator says; it is asked again until it says something."""
    views: list[GroupView] = []
    poll_until(
        lambda: bool(views),
        lambda: views.extend(view for view in [admin.group(group, 1_000)] if view is not None),
    )
    return views[-1]


class GroupContract(BrokerContract):
    """The whole suite: what is here, and ``BrokerContract``."""

    @contextmanager
    def group(self) -> Iterator[tuple[str, Cluster, Admin]]:
        """A fresh group, and somebody to ask about it."""
        name = self.name("group")
        cluster = self.cluster(name)
        admin = cluster.admin()
        yield name, cluster, admin
        admin.close()

    @contextmanager
    def members(
        self, cluster: Cluster, topics: Sequence[str], *client_ids: str
    ) -> Iterator[list[Member]]:
        """Members of one generation."""
        with ExitStack() as stack:
            members = [Member(cluster.consumer(client_id)) for client_id in client_ids]
            for member in members:
                stack.callback(member.consumer.close)
                member.consumer.subscribe(topics, member)
            self.let_join(members, sum(self.count(cluster, topic) for topic in topics))
            yield members

    def count(self, cluster: Cluster, topic: str) -> int:
        """Return the partitions of a topic."""
        admin = cluster.admin()
        count = admin.partitions([topic], TIMEOUT_MS)[topic]
        admin.close()
        assert count is not None
        return count

    def let_join(self, members: Sequence[Member], partitions: int) -> None:
        """Poll until all have a share, and all shares together are everything once."""

        def all_in() -> bool:
            shares = [member.share for member in members if member.share is not None]
            given = [source for share in shares for source in share]
            return len(shares) == len(members) and len(given) == len(set(given)) == partitions

        poll_until(all_in, *[member.poll for member in members])

    # -- the list

    def test_the_list_has_every_member_with_its_share(self) -> None:
        with (
            self.topic(3) as one, self.topic(4) as two, self.group() as (group, cluster, admin),
            self.members(cluster, [one, two], "tag.z", "tag.a", "tag.m") as members,
        ):  # fmt: skip
            view = ask(admin, group)
            assert view.stable
            assert {(m.member_id, m.client_id, m.shares) for m in view.members} == {
                (member.consumer.member_id(), client_id, member.share)
                for member, client_id in zip(members, ["tag.z", "tag.a", "tag.m"], strict=True)
            }
            # Dealt out like cards, by member id.
            places = sorted(
                TopicPartition(topic, i) for topic, n in ((one, 3), (two, 4)) for i in range(n)
            )
            by_id = sorted(view.members, key=lambda member: member.member_id)
            for i, member in enumerate(by_id):
                assert list(member.shares) == places[i::3]
            assert ask(admin, group) == view

    def test_the_list_is_not_stable_while_somebody_joins(self) -> None:
        with (
            self.topic(2) as topic, self.group() as (group, cluster, admin),
            self.members(cluster, [topic], "first") as (first,),
        ):  # fmt: skip
            assert ask(admin, group).stable
            second = Member(cluster.consumer("second"))
            second.consumer.subscribe([topic], second)
            poll_until(lambda: not ask(admin, group).stable, second.poll)
            assert {m.client_id for m in ask(admin, group).members} == {"first", "second"}
            self.let_join([first, second], 2)
            view = ask(admin, group)
            assert view.stable
            assert {m.client_id for m in view.members} == {"first", "second"}
            second.consumer.close()
            poll_until(lambda: len(first.share or ()) == 2, first.poll)
            assert [m.client_id for m in ask(admin, group).members] == ["first"]

    def test_a_group_that_nobody_is_in_is_stable_and_empty(self) -> None:
        with self.topic(1) as topic, self.group() as (group, cluster, admin):
            assert ask(admin, group) == NOBODY
            guest = cluster.consumer("guest")
            assert guest.committed([TopicPartition(topic, 0)], TIMEOUT_MS)
            assert ask(admin, group) == NOBODY
            with self.members(cluster, [topic], "only"):
                assert ask(admin, group) != NOBODY
            assert ask(admin, group) == NOBODY
            guest.close()

    def test_no_answer_tells_of_a_generation_before_ours(self) -> None:
        """Whoever has got a share decides by the list, so the list must not be older."""
        with self.topic(2) as topic, self.group() as (group, cluster, admin):
            assert ask(admin, group) == NOBODY  # the connection is up, answers come at once
            admin.group(group, 0)  # this question is under way, and answered before we are in
            with self.members(cluster, [topic], "first"):
                assert [m.client_id for m in ask(admin, group).members] == ["first"]

    def test_a_repeated_client_id_is_two_members(self) -> None:
        with (
            self.topic(2) as topic, self.group() as (group, cluster, admin),
            self.members(cluster, [topic], "same", "same") as members,
        ):  # fmt: skip
            view = ask(admin, group)
            assert [m.client_id for m in view.members] == ["same", "same"]
            ids = {member.consumer.member_id() for member in members}
            assert {m.member_id for m in view.members} == ids
            assert len(ids) == 2

    # -- what members may do

    def test_a_member_without_a_share_hears_of_each_generation_and_may_read_anything(self) -> None:
        with (
            self.topic(1) as topic, self.plain() as (_, plain, _reader),
            self.group() as (_, cluster, _admin),
            self.members(cluster, [topic], "a", "b") as members,
        ):  # fmt: skip
            source = TopicPartition(topic, 0)
            send_all(plain, rows_of(topic, [b"1", b"2"]))
            idle = next(member for member in members if member.share == ())
            busy = next(member for member in members if member is not idle)
            idle.consumer.assign({source: 0})
            poll_until(lambda: idle.log.values(source) == [b"1", b"2"], idle.poll, busy.poll)
            idle.consumer.commit({source: OffsetAndMetadata(2, "by the idle one")}, TIMEOUT_MS)
            kept = busy.consumer.committed([source], TIMEOUT_MS)
            assert kept == {source: OffsetAndMetadata(2, "by the idle one")}
            idle.history.clear()
            third = Member(cluster.consumer("c"))
            third.consumer.subscribe([topic], third)
            self.let_join([*members, third], 1)
            assert idle.history == ["revoked", "assigned"]
            third.consumer.close()

    def test_a_member_that_assigns_nothing_reads_nothing(self) -> None:
        class Forgetful(Member):
            def on_assigned(self, shares: Sequence[TopicPartition]) -> None:
                self.share = tuple(shares)

        with self.topic() as topic, self.plain() as (cluster, producer, _):
            source = TopicPartition(topic, 0)
            send_all(producer, rows_of(topic, [b"x"]))
            member = Forgetful(cluster.consumer())
            member.consumer.subscribe([topic], member)
            poll_until(lambda: member.share is not None, member.poll)
            for _ in range(10):
                member.poll()
            assert member.log.rows == {}
            member.consumer.assign({source: 0})
            poll_until(lambda: member.log.values(source) == [b"x"], member.poll)
            member.consumer.close()

    def test_two_members_of_a_generation_may_both_commit_a_partition(self) -> None:
        """So everybody must compute the same: the broker does not tell them apart."""
        with (
            self.topic(2) as topic, self.group() as (_, cluster, _admin),
            self.members(cluster, [topic], "a", "b") as members,
        ):  # fmt: skip
            source = TopicPartition(topic, 0)
            for i, member in enumerate([*members, members[0]]):
                at = {source: OffsetAndMetadata(7 - i, f"{i}")}
                member.consumer.commit(at, TIMEOUT_MS)
                assert members[1].consumer.committed([source], TIMEOUT_MS) == at
            for i, member in enumerate(members):
                at = {source: OffsetAndMetadata(i, f"transaction {i}")}
                with self.transactional(cluster, self.name("txn")) as producer:
                    producer.begin_transaction()
                    proof = member.consumer.group_metadata()
                    producer.commit_transaction(at, proof, TIMEOUT_MS)
                assert members[1 - i].consumer.committed([source], TIMEOUT_MS) == at

    def test_a_guest_reads_what_is_committed_and_commits_nothing(self) -> None:
        with (
            self.topic(2) as topic, self.group() as (group, cluster, admin),
            self.members(cluster, [topic], "member") as (member,),
        ):  # fmt: skip
            one, two = (TopicPartition(topic, i) for i in range(2))
            kept = OffsetAndMetadata(3, "clock é")
            member.consumer.commit({one: kept}, TIMEOUT_MS)
            guest = cluster.consumer("guest")
            assert guest.member_id() is None
            assert guest.committed([one, two], TIMEOUT_MS) == {one: kept, two: None}
            self.refuses(guest, {one: OffsetAndMetadata(1)})
            with pytest.raises(MemberFencedError):
                guest.group_metadata()
            assert guest.committed([one], TIMEOUT_MS) == {one: kept}
            assert [m.client_id for m in ask(admin, group).members] == ["member"]
            guest.close()

    def test_long_metadata_is_kept_on_a_partition_that_nobody_reads(self) -> None:
        with (
            self.topic(2) as topic, self.topic(1) as other,
            self.group() as (_, cluster, _admin),
            self.members(cluster, [topic], "a", "b") as (a, b),
        ):  # fmt: skip
            at, record = TopicPartition(other, 0), OffsetAndMetadata(0, "r" * 4_000)
            guest = cluster.consumer("guest")
            a.consumer.commit({at: record}, TIMEOUT_MS)
            for reader in (a.consumer, b.consumer, guest):
                assert reader.committed([at], TIMEOUT_MS) == {at: record}
            newer = OffsetAndMetadata(0, "s" * 4_000)
            b.consumer.commit({at: newer}, TIMEOUT_MS)
            assert a.consumer.committed([at], TIMEOUT_MS) == {at: newer}
            a.consumer.close()
            self.refuses(a.consumer, {at: record})
            assert guest.committed([at], TIMEOUT_MS) == {at: newer}
            guest.close()

    def refuses(self, consumer: Consumer, offsets: dict[TopicPartition, OffsetAndMetadata]) -> None:
        """Commit what must not be taken."""
        with pytest.raises(MemberFencedError):
            consumer.commit(offsets, TIMEOUT_MS)

    # -- what the dead leave

    def test_what_a_dead_producer_left_open_ends_when_somebody_takes_its_id(self) -> None:
        with self.topic() as topic, self.plain() as (cluster, plain, reader):
            source, name, log = TopicPartition(topic, 0), self.name("txn"), Log()
            with self.transactional(cluster, name) as dead:
                dead.begin_transaction()
                send_all(dead, rows_of(topic, [b"of the dead"]))
                send_all(plain, rows_of(topic, [b"behind"]))
                reader.assign({source: 0})
                for _ in range(10):
                    log.add(reader.poll(10, POLL_MS))
                assert log.values(source) == []
                with self.transactional(cluster, name):
                    pass
                poll_until(
                    lambda: log.values(source) == [b"behind"],
                    lambda: log.add(reader.poll(10, POLL_MS)),
                    polls_max=PROMPTLY,
                )
