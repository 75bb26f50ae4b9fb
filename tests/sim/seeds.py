"""Many seeds at once, on all cores."""

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context

from tests.sim.history import History, quietly, told


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one seed: what was violated, and the kinds of faults that it met."""

    seed: int
    violation: str
    kinds: list[str]


def outcome(seed: int) -> Outcome:
    """Play one seed."""
    quietly()
    history = History(seed)
    violation = history.failure()
    return Outcome(seed, "" if violation is None else told(violation), history.kinds())


def outcomes(seeds: Sequence[int]) -> Iterator[Outcome]:
    """Play the seeds, in order, on as many cores as there are.

    The processes are spawned: whoever asks may have threads, which are lost in a fork.
    """
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn")) as pool:
        yield from pool.map(outcome, seeds, chunksize=5)
