"""The plan of the faults: each kind, often enough, in time, and another one for another seed."""

import pytest

from devstack.chaos.plan import (
    OUTAGE_S,
    SERVICES,
    Fault,
    Step,
    count_faults,
    count_kills,
    make_plan,
)

SEEDS = range(200)
EACH = {
    Fault.KILL: 8,
    Fault.WIPE: 1,
    Fault.TERM: 3,
    Fault.SCALE: 1,
    Fault.BROKER_DOWN: 1,
    Fault.BROKER_UP: 1,
    Fault.DATABASE: 1,
}


@pytest.mark.parametrize(("seconds", "rounds"), [(80, 1), (90, 1), (300, 3)])
def test_each_round_has_each_fault_and_each_service_is_killed_three_times(
    seconds: int, rounds: int
) -> None:
    for seed in SEEDS:
        plan = make_plan(seed, seconds)
        assert count_faults(plan) == {fault: each * rounds for fault, each in EACH.items()}
        assert count_kills(plan) == dict.fromkeys(SERVICES, 3 * rounds)
        told = [step.service for step in plan if step.fault is Fault.TERM]
        assert sorted(told) == sorted([*SERVICES] * rounds)


@pytest.mark.parametrize("seconds", [80, 90, 300])
def test_all_come_in_order_and_in_time(seconds: int) -> None:
    for seed in SEEDS:
        times = [step.at_s for step in make_plan(seed, seconds)]
        assert times == sorted(times)
        assert times[0] >= 0
        assert times[-1] < seconds


def test_the_aggregator_goes_from_1_to_3_to_1_and_somebody_is_killed_meanwhile() -> None:
    for seed in SEEDS:
        plan = make_plan(seed, 90)
        at = [number for number, step in enumerate(plan) if step.fault is Fault.SCALE]
        assert [plan[number].instances for number in at] == [1, 3, 1, 2]
        meanwhile = plan[at[0] : at[-1]]
        assert sum(step.fault is Fault.KILL for step in meanwhile) == 2


def test_the_broker_is_away_for_its_time_and_nobody_is_told_to_stop_meanwhile() -> None:
    for seed in SEEDS:
        plan = make_plan(seed, 90)
        faults = [step.fault for step in plan]
        down, up = faults.index(Fault.BROKER_DOWN), faults.index(Fault.BROKER_UP)
        assert plan[up].at_s - plan[down].at_s == pytest.approx(OUTAGE_S)
        assert faults[down + 1 : up] == [Fault.KILL, Fault.KILL]


def test_a_seed_gives_the_same_plan_and_others_give_others() -> None:
    assert make_plan(7, 90) == make_plan(7, 90)
    orders = {tuple((step.fault, step.service) for step in make_plan(seed, 90)) for seed in SEEDS}
    assert len(orders) > len(SEEDS) * 0.9


def test_a_scaling_that_was_broken_off_does_not_count() -> None:
    steps = [Step(0, Fault.SCALE, "aggregator", count) for count in (1, 3, 1)]
    assert count_faults(steps)[Fault.SCALE] == 0
