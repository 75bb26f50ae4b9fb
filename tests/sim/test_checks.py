"""What the checker sees that no planted bug leads to: wrong counts put there by hand."""

import pytest
from tests.sim.checks import ViolationError
from tests.sim.history import History, quietly
from tests.sim.processes import Disk


def history(*, doubled: bool) -> History:
    """Return the first history under at-least-once in which (nothing) was handed over again."""
    quietly()
    for seed in range(100):
        made = History(seed)
        if made.exactly_once or made.gentle is doubled:
            continue
        assert made.failure() is None
        if made.doubled is doubled:
            return made
    raise AssertionError("no such seed")


def test_a_surplus_is_no_greater_than_what_was_handed_over_again() -> None:
    made = history(doubled=True)
    (key, again), *_ = made.checker.inputs.again.most_common(1)
    made.checker.ledger.output[key] = made.source.fed[key] + again
    made.compare()
    made.checker.ledger.output[key] += 1
    with pytest.raises(ViolationError, match=f"were fed, {again} handed over again"):
        made.compare()


def test_where_workers_only_stop_and_start_there_is_no_surplus() -> None:
    made = history(doubled=False)
    key = next(iter(made.source.fed))
    made.checker.inputs.again[key] += 1
    made.checker.ledger.output[key] += 1
    with pytest.raises(ViolationError, match="were fed"):
        made.compare()


def test_the_stores_of_a_worker_whose_slot_has_another_disk_are_compared_too() -> None:
    made = history(doubled=True)
    for process in list(made.workers):
        made.stop(process)
    slot, own = next(iter(made.disks)), Disk()
    made.launch(slot, own)
    made.settle()
    assert own not in made.disks.values()
    engine = next(engine for engine in own.engines.values() if engine._data)
    engine._data[next(iter(engine._data))] = b"no count of anything"
    with pytest.raises(ViolationError, match="is not what its changelog holds"):
        made.settle()
