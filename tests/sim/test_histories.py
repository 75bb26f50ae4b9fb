"""Histories by seed: whatever happens to workers and broker, what must hold holds after each event.

``make sim SEED=n`` tells the history of one seed; seeds that ever failed are in ``seeds.txt``.
"""

from pathlib import Path

import pytest
from tests.sim import __main__ as command
from tests.sim.faults import KINDS
from tests.sim.history import History
from tests.sim.seeds import outcomes
from tests.sim.words import NAMES

SEEDS = range(300)
FAILED_ONCE = Path(__file__).with_name("seeds.txt")


def failed_once() -> list[int]:
    lines = FAILED_ONCE.read_text(encoding="utf-8").splitlines()
    return [int(line.split()[0]) for line in lines if line and not line.startswith("#")]


def test_whatever_happens_what_must_hold_holds() -> None:
    seeds = [*SEEDS, *(seed for seed in failed_once() if seed not in SEEDS)]
    played = list(outcomes(seeds))
    assert [one.seed for one in played] == seeds
    violations = [f"make sim SEED={one.seed}: {one.violation}" for one in played if one.violation]
    assert not violations, "\n".join(violations)
    kinds = {kind for one in played for kind in one.kinds}
    assert kinds == KINDS


def test_a_seed_is_a_whole_history_and_always_the_same_one() -> None:
    logs = []
    for _ in range(2):
        history = History(3)
        assert history.failure() is None
        logs.append(history.log)
        assert history.events >= 200
        assert history.started >= 2
        assert history.source.partitions >= 3
        assert history.broker.group(NAMES.group).generation > 1
        assert sum(history.source.fed.values()) > 100
    assert logs[0] == logs[1]


def test_the_last_line_says_how_it_went(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--seeds", "4", "--first", "1000"]) == 0
    *_, last = capsys.readouterr().out.splitlines()
    assert last.startswith("sim: 4 seeds, 0 violations; seeds that met each fault: ")
    assert command.main(["--seeds", "0"]) == 1
    assert command.main(["--seed", "5"]) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[-1] == "sim: seed 5: no violation"
    assert len(told) > 20
