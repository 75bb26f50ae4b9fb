"""E19: two processes of one name at the same time, as while an instance is replaced, do no harm."""

from pathlib import Path
from random import Random

import pytest
from tests.integration import trials
from tests.integration.harness import (
    AGGREGATOR,
    COUNTS,
    WORDS,
    Record,
    Stack,
    difference,
    line,
    recount,
    wait_until,
)

from devstack.processes import Child

PROGRAM = "tests.integration.same_slot"
BASE_MS = 1_700_000_000_000
WORD_COUNT = 6_000
FIR = "aggregator-7d9f8b6c5-x2x9z"


def words(first: int) -> list[Record]:
    random = Random(first)
    return [
        line(random.randrange(4), BASE_MS + (first + n) * 5, f"w{random.randrange(50)}")
        for n in range(WORD_COUNT)
    ]


@pytest.mark.parametrize(
    ("guarantee", "folders"),
    [("at_least_once", "one disk"), ("exactly_once_v2", "disks of their own")],
)
def test_two_of_one_name_count_as_one(stack: Stack, guarantee: str, folders: str) -> None:
    """Old and new together, the old one leaves, one with a name of the other kind comes."""
    stack.create(WORDS, COUNTS)
    stack.settings["STREAMCORE_PROCESSING_GUARANTEE"] = guarantee
    stack.settings["TRIAL_SLOT"] = "" if folders == "one disk" else "a-1"

    def start(number: str, dyno: str = "aggregator_worker.1") -> Child:
        disk = "state" if folders == "one disk" else f"state{number}"
        return trials.start_program(
            stack, PROGRAM, number, DYNO=dyno, STREAMCORE_STATE_DIR=str(stack.folder / disk),
            STREAMCORE_METRICS_LOG_INTERVAL_MS="60000",
        )  # fmt: skip

    fed = words(0)
    stack.produce(WORDS, fed)
    old = start("1")
    stack.wait_for_lag_0(AGGREGATOR, alive=[old])
    new = start("2")
    wait_until(
        lambda: all(trials.tasks_of(stack, old, new).values()), "both have tasks", alive=[old, new]
    )
    more = words(WORD_COUNT)
    stack.produce(WORDS, more)
    stack.wait_for_lag_0(AGGREGATOR, alive=[old, new])
    stack.stop(old)
    other = start("3", FIR)
    fed += more + words(2 * WORD_COUNT)
    stack.produce(WORDS, fed[2 * WORD_COUNT :])
    wait_until(
        lambda: all(trials.tasks_of(stack, new, other).values()),
        "both have tasks",
        alive=[new, other],
    )
    stack.wait_for_lag_0(AGGREGATOR, alive=[new, other])
    stack.stop(new, other)
    truth = recount(fed)
    assert not difference(truth, stack.counts_in_topic())
    assert not difference(truth, stack.counts_in_changelog())
    assert "instance=aggregator_worker.1" in Path(stack.folder / f"{PROGRAM}1.log").read_text()
    assert f"instance={FIR}" in Path(stack.folder / f"{PROGRAM}3.log").read_text()
