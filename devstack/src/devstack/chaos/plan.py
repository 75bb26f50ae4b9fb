"""Which fault comes when: drawn from a seed, each kind in each round, nothing left to luck."""

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Final

INGEST: Final = "ingest"
AGGREGATOR: Final = "aggregator"
SINK: Final = "sink"
SERVICES: Final = (INGEST, AGGREGATOR, SINK)

KILLS_EACH: Final = 3
OUTAGE_S: Final = 20.0
_ROUND_S: Final = 90
_CALM_S: Final = 5.0  # at the end of a round, for the last ones to come back
# A round's two long faults: when their steps come, and when others are killed meanwhile.
_SCALE_AT_S: Final = ((0.0, 1), (3.0, 3), (9.0, 1), (12.0, 2))
_KILLS_IN_SCALE_S: Final = (5.0, 7.5)
_SCALE_S: Final = 15.0
_KILLS_IN_OUTAGE_S: Final = (5.0, 12.0)
_OUTAGE_AND_START_S: Final = OUTAGE_S + 5


class Fault(StrEnum):
    """A kind of fault, by the name it is reported under."""

    KILL = "kill -9"
    WIPE = "kill -9 with its disk wiped"
    TERM = "SIGTERM"
    SCALE = "scaled"
    BROKER_DOWN = "broker stopped"
    BROKER_UP = "broker started"
    DATABASE = "PostgreSQL restarted"


@dataclass(frozen=True, slots=True)
class Step:
    """One thing to do: `pick` chooses among the instances of the service or the ways to do it."""

    at_s: float
    fault: Fault
    service: str = ""
    instances: int = 0
    pick: int = 0


def make_plan(seed: int, seconds: float) -> tuple[Step, ...]:
    """Return all steps in the order of their times, the last one some seconds before the end.

    A round takes 90 s or more and has each kind of fault once at least and each service killed
    three times; there are as many as fit, and one in any case.
    """
    chance = random.Random(seed)  # noqa: S311 - a plan, not a secret
    rounds = max(1, int(seconds // _ROUND_S))
    steps: list[Step] = []
    for number in range(rounds):
        steps += _round(chance, number * seconds / rounds, seconds / rounds)
    return tuple(sorted(steps, key=lambda step: step.at_s))


def count_faults(steps: Iterable[Step]) -> Counter[Fault]:
    """Return how many there are of each kind; one scaling has four steps and counts as one."""
    counted = Counter(step.fault for step in steps)
    if Fault.SCALE in counted:
        counted[Fault.SCALE] //= len(_SCALE_AT_S)
    return counted


def count_kills(steps: Iterable[Step]) -> Counter[str]:
    """Return how often each service is killed, with its disk or without."""
    return Counter(step.service for step in steps if step.fault in (Fault.KILL, Fault.WIPE))


def _round(chance: random.Random, start_s: float, length_s: float) -> list[Step]:
    kills = [Step(0, Fault.KILL, service) for service in SERVICES for _ in range(KILLS_EACH)]
    kills.remove(Step(0, Fault.KILL, AGGREGATOR))
    chance.shuffle(kills)
    in_outage, in_scale, others = kills[:2], kills[2:4], kills[4:]
    singles = _apart(
        chance,
        [
            *others,
            Step(0, Fault.WIPE, AGGREGATOR),
            *(Step(0, Fault.TERM, service) for service in SERVICES),
            Step(0, Fault.DATABASE),
        ],
    )
    blocks = [[single] for single in singles]
    outage, scale = _outage(in_outage), _scale(in_scale)
    for block in (outage, scale):
        blocks.insert(chance.randrange(1, len(blocks) + 1), block)
    gap_s = (length_s - _SCALE_S - _OUTAGE_AND_START_S - _CALM_S) / len(singles)
    steps: list[Step] = []
    now_s = start_s
    for block in blocks:
        steps += [_placed(step, now_s, chance) for step in block]
        now_s += {id(outage): _OUTAGE_AND_START_S, id(scale): _SCALE_S}.get(id(block), gap_s)
    return steps


def _placed(step: Step, start_s: float, chance: random.Random) -> Step:
    pick = chance.randrange(1_000)
    return Step(start_s + step.at_s, step.fault, step.service, step.instances, pick)


def _outage(kills: Sequence[Step]) -> list[Step]:
    return [
        Step(0, Fault.BROKER_DOWN),
        *_at(kills, _KILLS_IN_OUTAGE_S),
        Step(OUTAGE_S, Fault.BROKER_UP),
    ]


def _scale(kills: Sequence[Step]) -> list[Step]:
    scaling = [Step(at_s, Fault.SCALE, AGGREGATOR, count) for at_s, count in _SCALE_AT_S]
    return sorted([*scaling, *_at(kills, _KILLS_IN_SCALE_S)], key=lambda step: step.at_s)


def _at(kills: Sequence[Step], times_s: Sequence[float]) -> list[Step]:
    return [Step(at_s, kill.fault, kill.service) for kill, at_s in zip(kills, times_s, strict=True)]


def _apart(chance: random.Random, steps: list[Step]) -> list[Step]:
    """Shuffle so that no service is hit twice in a row: it would have nothing to lose yet."""
    chance.shuffle(steps)
    for _ in range(1_000):
        if all(one.service != other.service for one, other in pairwise(steps)):
            break
        chance.shuffle(steps)
    return steps
