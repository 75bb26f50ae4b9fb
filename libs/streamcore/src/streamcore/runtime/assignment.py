"""Who runs which task, and who stands by: pure functions that every member computes for itself.

``assign`` finds, of all balanced assignments, one that moves the fewest tasks; among these, one
that puts the most tasks without an owner where they are warm. Both are exact, which makes the
standbys right by construction: a standby is where ``assign`` puts the task when its owner is left
out, so nothing is cheaper than to take it there when the owner is really gone.

How: any balanced assignment is a flow from tasks to members, and what a task pays for its place is
its cost. A start made greedily is improved along cycles of negative cost until there is none
left; then no other balanced assignment is cheaper, and no task can be put back alone either.
"""

import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from streamcore.model import TaskId
from streamcore.runtime.cycles import Edge, negative_cycle

_NOBODY: Mapping[TaskId, str] = {}
_NONE: Mapping[TaskId, Sequence[str]] = {}


class _Taste(NamedTuple):
    """What a task pays for a place: ``liked`` by member, ``elsewhere`` for all others."""

    home: int | None  # the former owner, if that is still (or again) a member
    standbys: tuple[int, ...]
    liked: Mapping[int, int]
    elsewhere: int

    def cost(self, member: int) -> int:
        return self.liked.get(member, self.elsewhere)


def assign(
    tasks: Collection[TaskId],
    members: Sequence[str],
    former: Mapping[TaskId, str] = _NOBODY,
    standbys: Mapping[TaskId, Sequence[str]] = _NONE,
) -> dict[TaskId, str]:
    """Return the owner of each task; without members, nothing.

    Balanced: within each sub-topology, and over all, no member has two tasks more than another.
    Of all balanced assignments it is one that leaves the most tasks with their ``former`` owners,
    and then has the most of the others on a standby (the first one rather than a later one).
    The order of the arguments is of no account, except that of the standbys of a task.

    Members are process names, ``<slot>.<run>``. A former owner that is gone, but whose slot has
    come back under another run, is taken for the same: its disk is probably there.
    """
    names = sorted(set(members))
    if not names:
        return {}
    plan = _Plan(sorted(set(tasks)), names, former, standbys)
    plan.start()
    plan.improve()
    return {task: names[plan.place[task]] for task in plan.tasks}


def place_standbys(
    tasks: Collection[TaskId],
    members: Sequence[str],
    owners: Mapping[TaskId, str],
    former_standbys: Mapping[TaskId, Sequence[str]],
    replicas: int,
) -> dict[TaskId, tuple[str, ...]]:
    """Return up to ``replicas`` standbys of each task, the one that takes over first.

    The first is where ``assign`` puts the task when its owner is gone. So ``assign`` without the
    owner, given these standbys, puts every task of the owner on the first. Later ones are spread
    evenly and stay where they are while that is so: they matter only when several members are gone
    at once, and ``assign`` prefers them then.
    """
    chains: dict[TaskId, tuple[str, ...]] = {task: (owners[task],) for task in sorted(set(tasks))}
    if replicas > 0:
        for owner in sorted({chain[0] for chain in chains.values()}):
            rest = [member for member in members if member != owner]
            heirs = assign(tasks, rest, owners, former_standbys)
            for task, chain in chains.items():
                if chain[0] == owner and rest:
                    chains[task] = (owner, heirs[task])
    for _ in range(1, replicas):
        _lengthen(chains, sorted(set(members)), former_standbys)
    return {task: chain[1:] for task, chain in chains.items()}


def _lengthen(
    chains: dict[TaskId, tuple[str, ...]],
    members: Sequence[str],
    former_standbys: Mapping[TaskId, Sequence[str]],
) -> None:
    """Give each task one more standby where there is a member that it does not have yet."""
    loads = dict.fromkeys(members, 0)
    fair = -(-len(chains) // max(len(members), 1))
    cold = []
    for task, chain in chains.items():
        warm = (name for name in former_standbys.get(task, ()) if name not in chain)
        name = next((name for name in warm if loads.get(name, fair) < fair), None)
        if name is None:
            cold.append(task)
        else:
            chains[task] = (*chain, name)
            loads[name] += 1
    for task in cold:
        ranked = sorted((loads[m], _rank(slot_of(m), task), m) for m in members)
        name = next((m for _, _, m in ranked if m not in chains[task]), None)
        if name is not None:
            chains[task] = (*chains[task], name)
            loads[name] += 1


def slot_of(member: str) -> str:
    """Return the slot of a process name: what stays the same over a restart."""
    return member.rpartition(".")[0]


class _Plan:
    """One assignment while it is being found. Members are indexes into their sorted names."""

    def __init__(
        self,
        tasks: Sequence[TaskId],
        names: Sequence[str],
        former: Mapping[TaskId, str],
        standbys: Mapping[TaskId, Sequence[str]],
    ) -> None:
        self.tasks = tasks
        self.place: dict[TaskId, int] = {}
        self._count = len(names)
        self._slots = [slot_of(name) for name in names]
        self._subs: dict[int, list[TaskId]] = {}
        for task in tasks:
            self._subs.setdefault(task.sub_topology, []).append(task)
        living = _Living(names, former)
        self._tastes = {
            task: _taste(
                living.find(former.get(task)),
                tuple(
                    dict.fromkeys(
                        index
                        for name in standbys.get(task, ())
                        if (index := living.find(name)) is not None
                    )
                ),
                len(tasks),
            )
            for task in tasks
        }

    # --- a balanced start ---------------------------------------------------------------------

    def start(self) -> None:
        """Place every task, balanced, by wishes as far as they are seen one by one."""
        if self._as_wished():
            return
        extras = self._extras()
        for sub, tasks in self._subs.items():
            least = len(tasks) // self._count
            self._fill(tasks, [least + (m in extras[sub]) for m in range(self._count)])

    def _as_wished(self) -> bool:
        """Put each task where it costs nothing, if all can have that and it is balanced."""
        place: dict[TaskId, int] = {}
        for task in self.tasks:
            taste = self._tastes[task]
            wish = taste.home if taste.home is not None else next(iter(taste.standbys), None)
            if wish is None:
                return False
            place[task] = wish
        if any(not self._even([place[task] for task in tasks]) for tasks in self._subs.values()):
            return False
        if not self._even(place.values()):
            return False
        self.place = place
        return True

    def _even(self, places: Iterable[int]) -> bool:
        loads = _loads(places, self._count)
        return max(loads) - min(loads) <= 1

    def _extras(self) -> dict[int, set[int]]:
        """Return which members get one task more than the others, for each sub-topology.

        What does not divide evenly goes to those that want it most; then the wishes give way
        until the members differ by one at most in what they have over all.
        """
        wanted = {sub: self._wanted(tasks) for sub, tasks in self._subs.items()}
        have = [0] * self._count
        extras: dict[int, set[int]] = {}
        for sub, tasks in self._subs.items():
            kept, warm = wanted[sub]
            least, more = divmod(len(tasks), self._count)
            ranked = sorted(
                range(self._count),
                key=lambda m, k=kept, w=warm, f=least, s=sub: (  # type: ignore[misc]
                    -min(k[m], f + 1),
                    -min(k[m] + w[m], f + 1),
                    have[m],
                    self._rank(m, TaskId(s, -1)),
                    m,
                ),
            )
            extras[sub] = set(ranked[:more])
            for member in extras[sub]:
                have[member] += 1
        while max(have) - min(have) > 1:
            most, fewest = have.index(max(have)), have.index(min(have))
            sub = min(
                (sub for sub, chosen in extras.items() if most in chosen and fewest not in chosen),
                key=lambda sub: (wanted[sub][0][most] - wanted[sub][0][fewest], sub),
            )
            extras[sub] ^= {most, fewest}
            have[most] -= 1
            have[fewest] += 1
        return extras

    def _wanted(self, tasks: Sequence[TaskId]) -> tuple[list[int], list[int]]:
        """Return how many of these tasks each member had, and how many more it is warm for."""
        tastes = [self._tastes[task] for task in tasks]
        kept = _loads((t.home for t in tastes if t.home is not None), self._count)
        orphans = (t.standbys[0] for t in tastes if t.home is None and t.standbys)
        return kept, _loads(orphans, self._count)

    def _fill(self, tasks: Sequence[TaskId], free: list[int]) -> None:
        """Place the tasks of one sub-topology: home, else on a standby, else by rank."""
        homeless = []
        for task in tasks:
            home = self._tastes[task].home
            if home is None or not free[home]:
                homeless.append(task)
            else:
                self._put(task, home, free)
        cold = []
        for task in homeless:
            warm = next((m for m in self._tastes[task].standbys if free[m]), None)
            if warm is None:
                cold.append(task)
            else:
                self._put(task, warm, free)
        for task in cold:
            open_ = (m for m in range(self._count) if free[m])
            self._put(task, min(open_, key=lambda m, t=task: (self._rank(m, t), m)), free)  # type: ignore[misc]

    def _put(self, task: TaskId, member: int, free: list[int]) -> None:
        free[member] -= 1
        self.place[task] = member

    def _rank(self, member: int, task: TaskId) -> int:
        return _rank(self._slots[member], task)

    # --- the cheapest one ---------------------------------------------------------------------

    def improve(self) -> None:
        """Move along cycles that make it cheaper, keeping the balance, until there is none."""
        while any(self._tastes[task].cost(self.place[task]) for task in self.tasks):
            edges, nodes = self._edges()
            cycle = negative_cycle(edges, nodes)
            if not cycle:
                return
            self._follow(cycle)

    def _edges(self) -> tuple[list[Edge], int]:
        """Return the ways on which a unit of load may go, and the number of nodes.

        The nodes: what a member has of a sub-topology (row by row), one exchange for each
        sub-topology, what each member has over all, and one in which all of these meet.
        """
        subs, count = len(self._subs), self._count
        totals = _loads(self.place.values(), count)
        exchange, total, meet = subs * count, subs * count + subs, subs * count + subs + count
        edges: list[Edge] = []
        for row, tasks in enumerate(self._subs.values()):
            loads = _loads((self.place[task] for task in tasks), count)
            least, most = len(tasks) // count, -(-len(tasks) // count)
            edges += self._moves(tasks, row * count, exchange + row)
            for m in range(count):
                edges.append(Edge(exchange + row, row * count + m, 0, None))
                if loads[m] < most:
                    edges.append(Edge(row * count + m, total + m, 0, None))
                if loads[m] > least:
                    edges.append(Edge(total + m, row * count + m, 0, None))
        least, most = len(self.tasks) // count, -(-len(self.tasks) // count)
        for m in range(count):
            if totals[m] < most:
                edges.append(Edge(total + m, meet, 0, None))
            if totals[m] > least:
                edges.append(Edge(meet, total + m, 0, None))
        return edges, meet + 1

    def _moves(self, tasks: Sequence[TaskId], base: int, exchange: int) -> list[Edge]:
        """Return the cheapest move from each member: to a place that a task likes, and to any."""
        best: dict[tuple[int, int], Edge] = {}
        for task in tasks:
            taste, here = self._tastes[task], self.place[task]
            paid = taste.cost(here)
            ways = [(base + m, cost - paid) for m, cost in taste.liked.items() if m != here]
            ways.append((exchange, taste.elsewhere - paid))
            for end, cost in ways:
                known = best.get((base + here, end))
                if known is None or cost < known.cost:
                    best[base + here, end] = Edge(base + here, end, cost, task)
        return list(best.values())

    def _follow(self, cycle: Sequence[Edge]) -> None:
        """Make the moves of a cycle; one that goes to the exchange ends at the node after it."""
        rows = len(self._subs) * self._count
        for edge, after in zip(cycle, (*cycle[1:], cycle[0]), strict=True):
            if edge.task is not None:
                end = edge.end if edge.end < rows else after.end
                self.place[edge.task] = end % self._count


class _Living:
    """Finds the member that a recorded name stands for."""

    def __init__(self, names: Sequence[str], former: Mapping[TaskId, str]) -> None:
        self._indexes = {name: index for index, name in enumerate(names)}
        known = set(former.values())
        self._slots: dict[str, int] = {}
        for index, name in enumerate(names):
            if name not in known:  # an owner was there beside the dead one: not its heir
                self._slots.setdefault(slot_of(name), index)

    def find(self, name: str | None) -> int | None:
        if name is None:
            return None
        index = self._indexes.get(name)
        return index if index is not None else self._slots.get(slot_of(name))


def _taste(home: int | None, standbys: tuple[int, ...], tasks: int) -> _Taste:
    """Return costs such that no number of lesser wishes outweighs one greater wish.

    The greatest is to stay, then to be on a standby where the owner is gone, then to be on one
    although the owner is there but has to give the task up.
    """
    cold = tasks + 1 if standbys else 0
    unit = (tasks + 1) ** 2 if home is None else 1
    moved = 0 if home is None else (tasks + 1) ** 5
    liked = {m: moved + min(place, 1) * unit for place, m in enumerate(standbys)}
    if home is not None:
        liked[home] = 0
    return _Taste(home, standbys, liked, moved + cold * unit)


def _rank(slot: str, task: TaskId) -> int:
    """Return the same number everywhere: among equals each task has an order of its own."""
    return zlib.crc32(f"{slot} {task.sub_topology} {task.partition}".encode())


def _loads(places: Iterable[int], count: int) -> list[int]:
    loads = [0] * count
    for place in places:
        loads[place] += 1
    return loads
