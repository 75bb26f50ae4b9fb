"""The verdict: everything that makes a run worthless or wrong makes it fail."""

from dataclasses import replace
from typing import Any

import pytest

from devstack.chaos.options import ChaosOptions
from devstack.chaos.plan import Fault, Step, make_plan
from devstack.chaos.recount import Key, Recount, compare
from devstack.chaos.report import ROWS_SHOWN, Outcome, describe_rows
from devstack.errors import StackError

A = Key("a", 0, 10_000)
B = Key("b", 0, 10_000)
WANTED = {A: 3, B: 5}
PLAN = make_plan(1, 90)


def outcome(found: dict[Key, int] | None = None, **changes: Any) -> Outcome:
    made = Outcome(
        options=ChaosOptions(),
        planned=PLAN,
        done=PLAN,
        lines_fed=2,
        words_fed=10,
        words_a_second=2_001.0,
        seconds=90.0,
        lines_read=2,
        recount=Recount(WANTED, late=2),
        comparison=compare(WANTED, WANTED if found is None else found),
    )
    return replace(made, **changes)


def test_a_run_in_which_all_is_equal_has_passed_and_says_so_with_the_figures() -> None:
    assert outcome().problems() == []
    assert outcome().last_line() == (
        "chaos passed: exactly_once_v2, seed 1: 8 words in 1 windows, 2 rows in PostgreSQL, each "
        "equal to the recount, to the unit; fed 10 words in 90 s (2,001/s), 2 of them too late to "
        "count; killed: ingest 3, aggregator 3, sink 3; kill -9: 9, disk wiped: 1, SIGTERM: 3, "
        "aggregator 1-3-1: 1, broker away for 20 s: 1, PostgreSQL restarted: 1"
    )


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (outcome({A: 2, B: 5}), "1 rows are too low, by 1 words"),
        (outcome({A: 3}), "1 rows are too low, by 5 words"),
        (outcome({A: 4, B: 5}), "1 rows are too high, by 1 words"),
        (outcome({**WANTED, Key("c", 0, 10_000): 1}), "1 rows are too high, by 1 words"),
        (outcome({}), "nothing was counted: the table is empty"),
        (outcome(words_fed=0), "nothing was fed"),
        (outcome({}, recount=Recount({}, 0)), "the topic of lines holds nothing to count"),
        (outcome(lines_read=1), "2 lines were fed, but 1 are in the topic"),
        (outcome(words_a_second=1_999.0), "only 1,999 words/s were fed, not 2,000"),
        (outcome(done=PLAN[:-1]), None),
        (outcome(done=[s for s in PLAN if s.fault is not Fault.WIPE]), "1 times planned, 0 times"),
    ],
)
def test_whatever_is_wrong_fails_the_run(made: Outcome, said: str | None) -> None:
    assert any((said or "planned") in problem for problem in made.problems())
    assert made.last_line().startswith("chaos FAILED: ")
    assert "to the unit" not in made.last_line() or made.comparison.equal


def test_at_least_once_may_count_too_much_and_says_how_much() -> None:
    options = ChaosOptions(guarantee="at_least_once")
    made = outcome({A: 4, B: 6}, options=options)
    assert made.problems() == []
    assert "none below the recount, surplus 2 words (25.00%) in 2 rows" in made.last_line()


def test_at_least_once_says_so_when_nothing_was_counted_again() -> None:
    made = outcome(options=ChaosOptions(guarantee="at_least_once"))
    assert "each equal to the recount, to the unit: surplus 0; fed" in made.last_line()
    assert "surplus" not in outcome().last_line()


def test_at_least_once_may_not_count_too_little() -> None:
    made = outcome({A: 4, B: 4}, options=ChaosOptions(guarantee="at_least_once"))
    assert made.problems() == ["1 rows are too low, by 1 words"]
    assert made.last_line().startswith("chaos FAILED: at_least_once")


def test_the_first_rows_that_differ_are_shown_beside_the_aggregators_topic() -> None:
    wanted = {Key(f"w{number:02}", 0, 10_000): 1 for number in range(30)}
    shown = describe_rows(compare(wanted, {}), lambda: wanted)
    assert shown[0] == "  00:00:00 w00: 0, recount 1, aggregator's topic 1"
    assert len(shown) == ROWS_SHOWN + 2
    assert shown[-2] == "  30 rows differ, 0 of them in the aggregator's topic too"
    assert describe_rows(compare(WANTED, WANTED), dict) == []


@pytest.mark.parametrize(
    "wrong", [{"guarantee": "exactly_once"}, {"seconds": 30}, {"rate": 0}], ids=str
)
def test_options_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(StackError):
        ChaosOptions(**wrong)


def test_steps_are_values() -> None:
    assert Step(1, Fault.TERM, "sink") == Step(1, Fault.TERM, "sink")
