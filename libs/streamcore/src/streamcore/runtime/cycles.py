"""Cycles of negative cost in a graph: what makes an assignment cheaper (Bellman and Ford)."""

from collections.abc import Sequence
from typing import NamedTuple

from streamcore.model import TaskId


class Edge(NamedTuple):
    """One way on for a unit of load: to ``end``, at a cost, by moving ``task`` if there is one."""

    start: int
    end: int
    cost: int
    task: TaskId | None


def negative_cycle(edges: Sequence[Edge], nodes: int) -> list[Edge]:
    """Return the edges of a cycle whose costs add up to less than nothing, in order, or none."""
    distance = [0] * nodes
    into: list[Edge | None] = [None] * nodes
    while True:
        changed = False
        for edge in edges:
            reached = distance[edge.start] + edge.cost
            if reached < distance[edge.end]:
                distance[edge.end] = reached
                into[edge.end] = edge
                changed = True
        if not changed:
            return []
        cycle = _cycle_of(into)
        if cycle:
            return cycle


def _cycle_of(into: Sequence[Edge | None]) -> list[Edge]:
    """Return a cycle among the edges by which the nodes were last reached, in order, or none."""
    seen = [0] * len(into)
    for first in range(len(into)):
        node = first
        while not seen[node]:
            seen[node] = first + 1
            edge = into[node]
            if edge is None:
                break
            node = edge.start
        else:
            if seen[node] == first + 1:
                return _walk(into, node)
    return []


def _walk(into: Sequence[Edge | None], first: int) -> list[Edge]:
    backwards: list[Edge] = []
    node = first
    while not backwards or node != first:
        edge = into[node]
        assert edge is not None
        backwards.append(edge)
        node = edge.start
    return backwards[::-1]
