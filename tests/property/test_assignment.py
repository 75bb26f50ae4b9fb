"""Who runs what: thousands of seeded histories of a group, and small groups against all there is.

A history is written down as it goes; a failure names its seed and what happened last.
"""

import random
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import product
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamcore.model import TaskId
from streamcore.runtime.assignment import assign, place_standbys, slot_of
from streamcore.runtime.members import VERSION

Owners = dict[TaskId, str]
Standbys = Mapping[TaskId, Sequence[str]]

HISTORIES = 3_000
BLOCKS = 10


def spread(places: Iterable[str], members: Collection[str]) -> int:
    loads = Counter(dict.fromkeys(members, 0))
    loads.update(places)
    return max(loads.values()) - min(loads.values())


def is_balanced(owners: Mapping[TaskId, str], members: Collection[str]) -> bool:
    subs = {task.sub_topology for task in owners}
    return spread(owners.values(), members) <= 1 and all(
        spread((owner for task, owner in owners.items() if task.sub_topology == sub), members) <= 1
        for sub in subs
    )


def heir(name: str, members: Collection[str], former: Mapping[TaskId, str]) -> str | None:
    """Return the member that ``name`` stands for: itself, or its slot under another run."""
    if name in members:
        return name
    again = [m for m in members if slot_of(m) == slot_of(name) and m not in former.values()]
    return min(again, default=None)


def check(
    owners: Owners,
    tasks: Collection[TaskId],
    members: Collection[str],
    former: Owners,
    warm: Standbys,
) -> None:
    """Nothing lost, nothing twice, balanced; nobody moved or went to a cold place in vain."""
    assert owners.keys() == set(tasks)
    assert set(owners.values()) <= set(members)
    assert is_balanced(owners, members)
    for task in tasks:
        home = heir(former[task], members, former) if task in former else None
        standbys = [heir(name, members, former) for name in warm.get(task, ())]
        first = next((name for name in standbys if name is not None), None)
        wish = home if home is not None else first
        if wish is not None and owners[task] != wish:
            assert not is_balanced({**owners, task: wish}, members), f"{task} in vain"


def check_standbys(
    placed: Mapping[TaskId, tuple[str, ...]], owners: Owners, members: Collection[str], count: int
) -> None:
    assert placed.keys() == owners.keys()
    for task, names in placed.items():
        assert len(names) == min(count, len(members) - 1)
        assert len({*names, owners[task]}) == len(names) + 1
        assert set(names) <= set(members)


class Group:
    """A group that lives through a history; each rebalance is checked against the one before."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.runs = 0
        self.replicas = self.rng.choice((0, 1, 1, 1, 2, 3))
        self.tasks = [
            TaskId(sub, partition)
            for sub in range(self.rng.randint(1, 4))
            for partition in range(self.rng.randint(1, 7))
        ]
        self.members = [self.name(f"m.{number}") for number in range(self.rng.randint(1, 5))]
        self.owners: Owners = {}
        self.standbys: dict[TaskId, tuple[str, ...]] = {}
        self.story: list[str] = []

    def name(self, slot: str) -> str:
        self.runs += 1
        return f"{slot}.{self.runs:x}"

    def live(self, turns: int) -> None:
        self.rebalance()
        for _ in range(turns):
            self.happen()
            self.rebalance()

    def happen(self) -> None:
        """Some leave or crash, some come, some come back in their slot: also all at once."""
        gone = self.rng.sample(
            self.members, self.rng.choice((0, 0, 1, 1, 1, 2, 3)) % len(self.members)
        )
        back = [self.name(slot_of(name)) for name in gone if self.rng.random() < 0.3]
        new = [self.name(f"n-{self.runs}") for _ in range(self.rng.choice((0, 0, 0, 1, 1, 2)))]
        self.members = [m for m in self.members if m not in gone] + back + new
        self.story.append(f"gone {gone}, back {back}, new {new}")
        if self.rng.random() < 0.05:
            self.owners = {}  # the record is lost
            self.standbys = {}

    def rebalance(self) -> None:
        former, warm = self.owners, self.standbys
        owners = assign(self.tasks, self.members, former, warm)
        check(owners, self.tasks, self.members, former, warm)
        assert self.shuffled(former, warm) == owners
        assert assign(self.tasks, self.members, owners, warm) == owners
        self.owners = owners
        self.standbys = place_standbys(self.tasks, self.members, owners, warm, self.replicas)
        check_standbys(self.standbys, owners, self.members, self.replicas)
        if self.replicas and len(self.members) > 1:
            self.take_over(self.rng.choice(self.members))

    def shuffled(self, former: Owners, warm: Standbys) -> Owners:
        tasks, members = list(self.tasks), list(self.members)
        known, standing = list(former.items()), list(warm.items())
        for column in (tasks, members, known, standing):
            self.rng.shuffle(column)
        return assign(tasks, members, dict(known), dict(standing))

    def take_over(self, dead: str) -> None:
        """Whoever dies, each of its tasks goes where it is warm."""
        rest = [member for member in self.members if member != dead]
        after = assign(self.tasks, rest, self.owners, self.standbys)
        for task, owner in self.owners.items():
            if owner == dead:
                assert after[task] == self.standbys[task][0], f"{task} of {dead} starts cold"


@pytest.mark.parametrize("block", range(BLOCKS))
def test_histories(block: int) -> None:
    each = HISTORIES // BLOCKS
    for seed in range(block * each, (block + 1) * each):
        group = Group(seed)
        try:
            group.live(turns=4)
        except AssertionError as error:
            error.add_note(f"seed {seed}: {group.members}; {group.story[-3:]}")
            raise


# --- against all there is ---------------------------------------------------------------------

NAMES = ("a.1", "a.2", "b.1", "c.1", "d.1")
TASKS = tuple(
    TaskId(sub, partition) for sub, count in ((0, 3), (1, 2)) for partition in range(count)
)


def worth(
    owners: Mapping[TaskId, str], members: Collection[str], former: Owners, warm: Standbys
) -> tuple[int, int]:
    """Return how many stayed, and how many that could not stay are warm (on any standby)."""
    kept = orphans = 0
    for task, owner in owners.items():
        home = heir(former[task], members, former) if task in former else None
        kept += home == owner
        names = {heir(name, members, former) for name in warm.get(task, ())}
        orphans += home is None and owner in names
    return kept, orphans


@settings(max_examples=300, deadline=None)
@given(
    members=st.lists(st.sampled_from(NAMES), min_size=1, max_size=3, unique=True),
    former=st.dictionaries(st.sampled_from(TASKS), st.sampled_from(NAMES)),
    warm=st.dictionaries(
        st.sampled_from(TASKS), st.lists(st.sampled_from(NAMES), max_size=3, unique=True)
    ),
)
def test_no_balanced_assignment_is_better(
    members: list[str], former: Owners, warm: dict[TaskId, list[str]]
) -> None:
    owners = assign(TASKS, members, former, warm)
    check(owners, TASKS, members, former, {})
    candidates = (dict(zip(TASKS, places, strict=True)) for places in product(members, repeat=5))
    best = max(worth(c, members, former, warm) for c in candidates if is_balanced(c, members))
    assert worth(owners, members, former, warm) == best


# --- single cases -----------------------------------------------------------------------------


def numbered(*counts: int) -> list[TaskId]:
    return [
        TaskId(sub, partition) for sub, count in enumerate(counts) for partition in range(count)
    ]


def test_a_balanced_assignment_stays_as_it_is() -> None:
    former = {TaskId(0, 0): "b.1", TaskId(0, 1): "a.1", TaskId(0, 2): "b.1", TaskId(1, 0): "a.1"}
    assert assign(list(former), ["a.1", "b.1"], former) == former


def test_a_slot_that_came_back_gets_what_it_had() -> None:
    tasks, before = numbered(5, 4), ["a.1", "b.1", "c.1"]
    owners = assign(tasks, before)
    again = assign(
        tasks, ["a.1", "b.2", "c.1"], owners, place_standbys(tasks, before, owners, {}, 1)
    )
    assert again == {task: "b.2" if name == "b.1" else name for task, name in owners.items()}


def test_a_member_that_was_there_beside_the_dead_one_does_not_inherit_its_slot() -> None:
    former = {TaskId(0, 0): "a.1", TaskId(0, 1): "a.2", TaskId(0, 2): "b.1"}
    owners = assign(list(former), ["a.2", "b.1"], former, {TaskId(0, 0): ["b.1"]})
    assert owners == {TaskId(0, 0): "b.1", TaskId(0, 1): "a.2", TaskId(0, 2): "b.1"}


def test_a_standby_whose_slot_came_back_is_one_still() -> None:
    former = {TaskId(0, 0): "a.1", TaskId(0, 1): "b.1", TaskId(0, 2): "c.1"}
    for heir_ in ("b", "c"):
        members = [f"{name}.{2 if name == heir_ else 1}" for name in ("b", "c")]
        owners = assign(list(former), members, former, {TaskId(0, 0): [f"{heir_}.1"]})
        assert owners[TaskId(0, 0)] == f"{heir_}.2"


def test_both_gone_at_once_is_what_a_second_standby_is_for() -> None:
    tasks, members = numbered(12), [f"{name}.1" for name in "abcdef"]
    owners = assign(tasks, members)
    standbys = place_standbys(tasks, members, owners, {}, 2)
    task = tasks[0]
    rest = [m for m in members if m not in (owners[task], standbys[task][0])]
    assert assign(tasks, rest, owners, standbys)[task] == standbys[task][1]


def test_a_standby_stays_where_it_is_warm() -> None:
    tasks, members = numbered(6), ["a.1", "b.1", "c.1"]
    owners = dict(zip(tasks, ["a.1", "a.1", "b.1", "b.1", "c.1", "c.1"], strict=True))
    for names in (
        ["b.1", "c.1", "a.1", "c.1", "a.1", "b.1"],
        ["c.1", "b.1", "c.1", "a.1", "b.1", "a.1"],
    ):
        standbys = {task: (name,) for task, name in zip(tasks, names, strict=True)}
        assert place_standbys(tasks, members, owners, standbys, 1) == standbys


def test_a_task_without_an_owner_comes_before_one_that_has_to_move() -> None:
    """The one that moves is still read by its former owner; the other stands still."""
    tasks, members = numbered(6), ["a.1", "b.1", "d.1"]
    former = dict(zip(tasks, ["a.1", "a.1", "a.1", "b.1", "d.1", "gone.1"], strict=True))
    standbys = {task: ["b.1"] for task in (*tasks[:3], tasks[5])}
    owners = assign(tasks, members, former, standbys)
    assert owners[tasks[5]] == "b.1"
    assert Counter(owners[task] for task in tasks[:3]) == {"a.1": 2, "d.1": 1}


def test_a_newcomer_gets_its_share_and_no_more_moves() -> None:
    tasks, members = numbered(10, 6), ["a.1", "b.1", "c.1"]
    former = assign(tasks, members)
    owners = assign(tasks, [*members, "d.1"], former)
    moved = [task for task in tasks if owners[task] != former[task]]
    assert len(moved) == 4
    assert {owners[task] for task in moved} == {"d.1"}


def test_more_members_than_tasks() -> None:
    tasks, members = numbered(2), [f"{name}.1" for name in "abcde"]
    owners = assign(tasks, members)
    assert len(set(owners.values())) == 2
    check_standbys(place_standbys(tasks, members, owners, {}, 9), owners, members, 9)


def test_nobody_there_and_nothing_to_do() -> None:
    assert assign(numbered(3), []) == {}
    assert assign([], ["a.1"]) == {}
    assert place_standbys([], ["a.1"], {}, {}, 1) == {}


def test_it_does_not_depend_on_the_process() -> None:
    """Every member computes this for itself, so it may not lean on ``hash``, which is salted."""
    owners = assign(numbered(4, 2), ["a.1", "b.1", "c.1"])
    assert [owners[task][0] for task in sorted(owners)] == ["b", "a", "a", "c", "b", "c"]


def test_five_hundred_tasks_are_no_matter() -> None:
    tasks, members = numbered(*[100] * 5), [f"host-{number}.x" for number in range(30)]
    before = time.process_time()
    owners = assign(tasks, members)
    standbys = place_standbys(tasks, members, owners, {}, 2)
    later = [*members[3:], *(f"new-{number}.x" for number in range(5))]
    check(assign(tasks, later, owners, standbys), tasks, later, owners, {})
    place_standbys(tasks, later, assign(tasks, later, owners, standbys), standbys, 2)
    assert time.process_time() - before < 2, "measured: 0.3 s"


def test_a_change_of_the_function_needs_another_version() -> None:
    """Members with one topology and another function would decide differently: raise
    ``members.VERSION`` together with the hash.
    """
    rng = random.Random(4)
    tasks = [TaskId(sub, partition) for sub in range(3) for partition in range(7)]
    text = ""
    former: dict[TaskId, str] = {}
    standbys: dict[TaskId, tuple[str, ...]] = {}
    for _ in range(60):
        members = sorted({f"host-{rng.randrange(5)}.r{rng.randrange(3)}" for _ in range(4)})
        former = assign(tasks, members, former, standbys)
        standbys = place_standbys(tasks, members, former, standbys, 2)
        text += f"{sorted(former.items())}{sorted(standbys.items())}"
    assert (VERSION, crc32(text.encode())) == (1, 1242885069)
