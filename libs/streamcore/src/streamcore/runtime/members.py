"""Members of the group: who they are, whether a list of them can be used, and who takes part.

librdkafka lets a member neither say anything to the others nor compute the assignment. So each
says who it is in its client id, the *tag*, and each reads the same list from the coordinator
(decision 0012). Everything here is a pure function of that list.
"""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from streamcore.model import TopicPartition
from streamcore.runtime.ports import GroupMember, GroupView, Process

VERSION = 1
"""Of tag, record and assignment. Members of different versions never work at the same time."""

_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_TAG = re.compile(
    r"sc(?P<version>[0-9]{1,9})\.(?P<fingerprint>[0-9a-f]{8})\.(?P<started>[0-9a-z]{1,12})"
    r"\.(?P<run>[A-Za-z0-9_-]+)\.(?P<slot>[A-Za-z0-9._-]+)",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class Tag:
    """What a member's client id says: ``sc1.<fingerprint>.<started_ms>.<run>.<slot>``."""

    version: int
    fingerprint: str
    started_ms: int
    run: str
    slot: str

    @staticmethod
    def parse(client_id: str) -> "Tag | None":
        """Return the tag in a client id, None for a client that is not one of ours."""
        match = _TAG.fullmatch(client_id)
        if match is None:
            return None
        return Tag(
            int(match["version"]),
            match["fingerprint"],
            int(match["started"], 36),
            match["run"],
            match["slot"],
        )

    def __str__(self) -> str:
        start = f"sc{self.version}.{self.fingerprint}.{_base36(self.started_ms)}"
        return f"{start}.{self.run}.{self.slot}"

    @property
    def process_name(self) -> str:
        """The name of the process in assignments and records."""
        return f"{self.slot}.{self.run}"

    @property
    def code(self) -> tuple[int, str]:
        """What it runs: only members that run the same can agree on anything."""
        return self.version, self.fingerprint


def encode_tag(fingerprint: str, process: Process) -> str:
    """Return the client id of a process; ``fingerprint`` as this module makes it."""
    tag = Tag(VERSION, fingerprint, process.started_ms, process.run, process.slot)
    assert Tag.parse(str(tag)) == tag, f"the others could not read {tag}"
    return str(tag)


def process_name(process: Process) -> str:
    """Return the name of a process: unique, and its slot can be read from it."""
    return f"{process.slot}.{process.run}"


def transactional_id(group: str, name: str) -> str:
    """Return the transactional id of the process of that name.

    It is unique per process, so nobody fences a living one, and every survivor can derive it from
    the list or the record to end a dead one's transaction.
    """
    return f"{group}.{name}"


def fingerprint(description: str, counts: Mapping[str, int]) -> str:
    """Return 8 hex digits of a topology's text and the partition counts of its topics."""
    text = json.dumps([description, sorted(counts.items())])
    return hashlib.sha256(text.encode()).hexdigest()[:8]


@dataclass(frozen=True, slots=True)
class Agreed:
    """A list of members that all of them see alike."""

    key: str
    """Of this list; another generation has another one, unless nothing at all has changed."""

    members: Mapping[str, str]
    """Those that work: process names by member id. Unique: the second of a name has a suffix."""

    foreign: tuple[GroupMember, ...]
    """Clients that are not ours; they get nothing."""

    others: tuple[GroupMember, ...]
    """Members of another version or topology than those that work; they take nothing."""

    me: str
    """My own name in ``members``, empty if I am not among them."""

    publishes: bool
    """Whether it is on me to write the decision down."""

    @property
    def eligible(self) -> bool:
        return bool(self.me)


def judge(
    view: GroupView,
    member_id: str,
    share: Collection[TopicPartition],
    partitions: Collection[TopicPartition],
) -> Agreed | str:
    """Return what the list says if it can be used, otherwise why not.

    ``share``: what the callback of this generation gave me; ``partitions``: all that my topology
    reads. Others, which run something else, may hold partitions that I know nothing of; those that
    run the same as I may not.
    """
    if not view.stable:
        return "the group is rebalancing"
    mine = next((member for member in view.members if member.member_id == member_id), None)
    if mine is None:
        return "it does not list this member"
    if set(mine.shares) != set(share):
        return "it gives this member another share than the callback did"
    tags = {member.member_id: Tag.parse(member.client_id) for member in view.members}
    fault = _fault(view, tags, tags[member_id], set(partitions))
    if fault:
        return fault
    tagged = {member: tag for member, tag in tags.items() if tag is not None}
    code = _code(tagged.values())
    names = _names({member: tag for member, tag in tagged.items() if tag.code == code})
    return Agreed(
        key=key(view),
        members=names,
        foreign=tuple(m for m in _sorted(view) if tags[m.member_id] is None),
        others=tuple(
            m for m in _sorted(view) if m.member_id in tagged and m.member_id not in names
        ),
        me=names.get(member_id, ""),
        publishes=member_id == min(names, default=None),
    )


def guest_list(view: GroupView, tag: Tag) -> tuple[str, ...] | None:
    """Return the names of those that would work if I came in, sorted; None: ask again.

    I am not among them if members that started after me run something else. A member that bears
    my name is what the group remembers of me, and I take its place.
    """
    if view.members and not view.stable:
        return None
    tags = {member.member_id: Tag.parse(member.client_id) for member in view.members}
    known = {
        member: found
        for member, found in tags.items()
        if found is not None and found.process_name != tag.process_name
    }
    code = _code((*known.values(), tag))
    names = _names({member: found for member, found in known.items() if found.code == code})
    return tuple(sorted((*names.values(), *([tag.process_name] if tag.code == code else []))))


def key(view: GroupView) -> str:
    """Return 16 hex digits of the list: who is in it, with which shares."""
    rows = [[m.member_id, m.client_id, sorted(m.shares)] for m in _sorted(view)]
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()[:16]


def _fault(
    view: GroupView,
    tags: Mapping[str, Tag | None],
    mine: Tag | None,
    partitions: set[TopicPartition],
) -> str:
    """Return what is wrong with the shares, or nothing."""
    held = Counter(tp for member in view.members for tp in member.shares)
    twice = [tp for tp in held if held[tp] > 1]
    if twice:
        return f"it gives {min(twice)} to more than one member"
    missing = partitions - held.keys()
    if missing:
        return f"it gives {min(missing)} to nobody"
    for member in _sorted(view):
        tag = tags[member.member_id]
        unknown = set(member.shares) - partitions
        if unknown and tag is not None and mine is not None and tag.code == mine.code:
            return f"it gives {min(unknown)}, which this topology does not read, to one like me"
    return ""


def _code(tags: Iterable[Tag]) -> tuple[int, str] | None:
    """Return what the member that started last runs: in a rolling deploy the new one works."""
    last = max(tags, key=lambda tag: (tag.started_ms, tag.run, tag.slot, tag.code), default=None)
    return last.code if last is not None else None


def _names(tags: Mapping[str, Tag]) -> dict[str, str]:
    """Return a unique process name for each member id, in the order of the ids."""
    names: dict[str, str] = {}
    seen: Counter[str] = Counter()
    for member, tag in sorted(tags.items()):
        name = tag.process_name
        seen[name] += 1
        # No tag holds a tilde: nobody else can have that name.
        names[member] = name if seen[name] == 1 else f"{name}~{seen[name]}"
    return names


def _sorted(view: GroupView) -> list[GroupMember]:
    return sorted(view.members, key=lambda member: member.member_id)


def _base36(number: int) -> str:
    digits = ""
    while number > 0:
        number, digit = divmod(number, 36)
        digits = _DIGITS[digit] + digits
    return digits or "0"
