"""Membership: which tasks are ours in a generation. Everybody computes it, from the same inputs.

The list of members comes from the coordinator, the former owners from the group's *record*: the
metadata of the offset that it has committed on a changelog partition, where nothing else commits.
Within a generation the record can only turn into one made from that same list, and that one is
obeyed as written; a member of an older generation can write it no more. So two members never act
on different inputs, whenever they read. Losing the record costs moves that were not needed.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

import structlog

from streamcore.errors import RetriableError
from streamcore.model import OffsetAndMetadata, TaskId, TopicPartition
from streamcore.runtime.assignment import assign, place_standbys
from streamcore.runtime.blueprint import Blueprint
from streamcore.runtime.decision import Decision, decode, encode
from streamcore.runtime.members import (
    Agreed,
    Tag,
    encode_tag,
    fingerprint,
    guest_list,
    judge,
    process_name,
    transactional_id,
)
from streamcore.runtime.orphans import Orphans
from streamcore.runtime.ports import Consumer, GroupMember, GroupView, World

_log = structlog.get_logger("streamcore.membership")

ASK_MS = 1_000
"""The longest wait for the coordinator's answer in one turn; the question goes on behind it."""

PUBLISH_AGAIN_MS = 3_600_000
"""A broker forgets offsets of partitions that the group does not read after some days."""

TELL_MS = 10_000


@dataclass(frozen=True, slots=True)
class Plan:
    """What one worker does in a generation."""

    active: frozenset[TaskId]
    standby: frozenset[TaskId]


class Membership:
    """The group as one worker sees it."""

    def __init__(self, blueprint: Blueprint, world: World) -> None:
        self._world = world
        self._settings = blueprint.settings
        self._group = blueprint.names.group
        self._tasks = blueprint.tasks()
        self._partitions = frozenset(tp for inputs in self._tasks.values() for tp in inputs)
        self._stateful = sorted(blueprint.stateful())
        self._record_at = blueprint.record_partition()
        widths = {**blueprint.counts.topics, **blueprint.counts.repartitions}
        mark = fingerprint(blueprint.topology.describe(), widths)
        self.tag = encode_tag(mark, world.process)
        self._name = process_name(world.process)
        self._last: Decision | None = None
        self._unpublished: Decision | None = None
        self._published_ms = 0
        self._publishes = False
        self._told_ms = -TELL_MS
        self.orphans = Orphans(lambda name: world.producer(transactional_id(self._group, name)))
        if world.process.predecessor and self._settings.exactly_once:
            before = replace(world.process, run=world.process.predecessor)
            self.orphans.add({process_name(before): ()})

    @property
    def transactional_id(self) -> str | None:
        """The id of our own producer: no other process has it, and every survivor can tell it."""
        return transactional_id(self._group, self._name) if self._settings.exactly_once else None

    def decide(
        self, consumer: Consumer, share: Collection[TopicPartition], now_ms: int
    ) -> Plan | None:
        """Return our part of the generation in which the coordinator gave us ``share``.

        None while there is no answer that can be used; ask again in the next turn.

        :raises RetriableError: if the record could not be read; ask again.
        """
        view = self._ask()
        if view is None:
            return None
        agreed = judge(view, consumer.member_id() or "", share, self._partitions)
        if not isinstance(agreed, Agreed):
            self.tell_waiting(agreed, now_ms)
            return None
        if agreed.foreign:
            _log.error(
                "consumers that are not ours are in the group", members=_listed(agreed.foreign)
            )
        if agreed.others:
            _log.warning(
                "members with another topology are in the group", members=_listed(agreed.others)
            )
        former = self._record(consumer)
        if former is None or former.key != agreed.key or not self._covers(former):
            decision = self._compute(agreed.key, agreed.members.values(), former)
        else:
            decision = former
        self._note_orphans(decision, former, _process_names(view), agreed)
        self._last = decision
        self._publishes = agreed.publishes
        self._unpublished = decision if agreed.publishes and decision is not former else None
        plan = _part_of(decision, agreed.me)
        _log.info(
            "tasks of this generation",
            members=len(agreed.members),
            tasks=" ".join(map(str, sorted(plan.active))) or "none",
            standbys=" ".join(map(str, sorted(plan.standby))) or "none",
        )
        return plan

    def look(self, consumer: Consumer) -> frozenset[TaskId] | None:
        """Return the tasks that would be ours if we joined now; None while nobody can tell.

        Empty also if nobody is in the group: then there is nobody who could go on meanwhile.

        :raises RetriableError: if the record could not be read; ask again.
        """
        view = self._ask()
        tag = Tag.parse(self.tag)
        assert tag is not None
        names = None if view is None else guest_list(view, tag)
        if view is None or names is None:
            return None
        if _process_names(view) <= {self._name}:
            return frozenset()
        owners = self._compute("", names, self._record(consumer)).owners
        return frozenset(task for task, owner in owners.items() if owner == self._name)

    def publish(self, consumer: Consumer, now_ms: int) -> None:
        """Write the record, if that is for us to do and not done.

        :raises MemberFencedError: if the group has gone on without us.
        """
        if self._publishes and now_ms - self._published_ms >= PUBLISH_AGAIN_MS:
            self._unpublished = self._last
        decision, at = self._unpublished, self._record_at
        if decision is None or at is None:
            return
        text = encode(decision)
        if text is None:
            _log.warning("too many tasks for the group's record; more of them move than must")
        else:
            timeout_ms = self._settings.request_timeout_ms
            try:
                end = self._world.admin.offsets([at], "latest", timeout_ms)[at]
                consumer.commit({at: OffsetAndMetadata(end, text)}, timeout_ms)
            except RetriableError:
                return  # the next turn tries again
        self._unpublished = None
        self._published_ms = now_ms

    def leave(self) -> None:
        """The generation is over: nothing may be published for it any more."""
        self._unpublished, self._publishes = None, False

    def tell_waiting(self, reason: str, now_ms: int) -> None:
        """Say now and then why there is no assignment yet."""
        if now_ms - self._told_ms >= TELL_MS:
            self._told_ms = now_ms
            _log.warning("waiting for the list of members", reason=reason)

    # -- inside ------------------------------------------------------------------------------

    def _ask(self) -> GroupView | None:
        return self._world.admin.group(self._group, ASK_MS)

    def _record(self, consumer: Consumer) -> Decision | None:
        at = self._record_at
        if at is None:
            return None
        committed = consumer.committed([at], self._settings.request_timeout_ms)[at]
        return None if committed is None else decode(committed.metadata)

    def _covers(self, decision: Decision) -> bool:
        return decision.owners.keys() == self._tasks.keys()

    def _compute(self, key: str, members: Collection[str], former: Decision | None) -> Decision:
        names = sorted(members)
        was: Mapping[TaskId, str] = {} if former is None else former.owners
        stood: Mapping[TaskId, tuple[str, ...]] = {} if former is None else former.standbys
        owners = assign(self._tasks, names, was, stood)
        placed = place_standbys(
            self._tasks, names, owners, stood, self._settings.num_standby_replicas
        )
        return Decision(key, owners, {t: placed[t] for t in self._stateful if t in placed})

    def _note_orphans(
        self, decision: Decision, former: Decision | None, alive: Collection[str], agreed: Agreed
    ) -> None:
        """Whoever takes over a task of a dead worker ends that one's transaction; so does who
        publishes, for the taker may be too new to know whose the task was.
        """
        self.orphans.keep_dead(alive)
        left: dict[str, set[TaskId]] = {}
        for known in (former, self._last):
            for task, owner in known.owners.items() if known is not None else ():
                mine = agreed.eligible and decision.owners.get(task) == agreed.me
                if owner not in alive and (mine or agreed.publishes):
                    left.setdefault(owner, set()).update([task] if mine else [])
        if self._settings.exactly_once:
            self.orphans.add(left)


def _process_names(view: GroupView) -> set[str]:
    tags = (Tag.parse(member.client_id) for member in view.members)
    return {tag.process_name for tag in tags if tag is not None}


def _listed(members: Iterable[GroupMember]) -> str:
    return ", ".join(member.member_id for member in members)


def _part_of(decision: Decision, me: str) -> Plan:
    return Plan(
        frozenset(task for task, owner in decision.owners.items() if owner == me),
        frozenset(task for task, names in decision.standbys.items() if me in names),
    )
