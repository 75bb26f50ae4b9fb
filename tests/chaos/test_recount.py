"""The recount and the comparison: whatever differs is found, and which way it differs."""

from itertools import islice

from devstack.chaos.feed import VOCABULARY, WORDS_A_LINE, make_lines
from devstack.chaos.recount import Comparison, Difference, Key, Line, compare, recount, words_in
from ingest.words import words

A = Key("a", 0, 10)
B = Key("b", 0, 10)
LATER = Key("a", 10, 20)
WANTED = {A: 3, B: 1, LATER: 2}


def test_equal_counts_are_equal() -> None:
    found = compare(WANTED, dict(reversed(WANTED.items())))
    assert found.equal
    assert found == Comparison(3, (), ())


def test_a_count_that_is_off_by_one_is_found() -> None:
    below = compare(WANTED, {**WANTED, B: 0})
    assert not below.equal
    assert below.below == (Difference(B, 1, 0),)
    assert (below.lost, below.surplus) == (1, 0)
    above = compare(WANTED, {**WANTED, A: 4})
    assert not above.equal
    assert above.above == (Difference(A, 3, 4),)
    assert (above.lost, above.surplus) == (0, 1)


def test_one_below_does_not_make_up_for_one_above() -> None:
    found = compare(WANTED, {A: 2, B: 2, LATER: 2})
    assert found.below == (Difference(A, 3, 2),)
    assert found.above == (Difference(B, 1, 2),)


def test_a_window_that_is_missing_is_found() -> None:
    found = compare(WANTED, {A: 3, B: 1})
    assert not found.equal
    assert found.below == (Difference(LATER, 2, 0),)


def test_an_empty_table_lacks_everything() -> None:
    found = compare(WANTED, {})
    assert found.lost == 6
    assert found.rows == 0


def test_an_extra_row_is_found_even_with_nothing_in_it() -> None:
    extra = Key("a", 0, 20)  # the right word and start, but another window
    assert compare(WANTED, {**WANTED, extra: 5}).above == (Difference(extra, 0, 5),)
    assert not compare(WANTED, {**WANTED, extra: 0}).equal


def test_lines_are_counted_in_the_window_of_their_stamp() -> None:
    found = recount([Line(0, 19_999, "One two, ONE"), Line(0, 20_000, "one")], 10_000, 0)
    assert found.counts == {
        Key("one", 10_000, 20_000): 2,
        Key("two", 10_000, 20_000): 1,
        Key("one", 20_000, 30_000): 1,
    }
    assert (found.words, found.windows, found.late) == (4, 2, 0)


def test_a_line_is_late_by_the_clock_of_its_own_partition() -> None:
    lines = [
        Line(0, 21_999, "x"),
        Line(0, 9_999, "in time: the grace has not ended"),
        Line(0, 22_000, "y"),
        Line(0, 9_999, "late now"),
        Line(1, 9_999, "another clock"),
    ]
    found = recount(lines[:2], 20_000, 2_000)
    assert found.late == 0
    found = recount(lines, 20_000, 2_000)
    assert found.late == 2
    assert Key("late", 0, 20_000) not in found.counts
    assert found.counts[Key("another", 0, 20_000)] == 1


def test_a_line_without_a_word_moves_no_clock() -> None:
    lines = [Line(0, 1_000, "a"), Line(0, 90_000, " - "), Line(0, 2_000, "b")]
    assert recount(lines, 10_000, 0).late == 0


def test_what_is_fed_is_split_in_the_same_way_by_two_programs() -> None:
    lines = list(islice(make_lines(3, 4, 1_000_000, 16), 3_000))
    seen = set()
    for line in lines:
        assert words_in(line.text) == words(line.text)
        assert len(words_in(line.text)) == WORDS_A_LINE
        seen.update(words_in(line.text))
    assert len(seen) == VOCABULARY
    assert {line.partition for line in lines} == {0, 1, 2, 3}


def test_some_of_what_is_fed_is_late_and_most_is_not() -> None:
    found = recount(islice(make_lines(3, 4, 1_000_000, 16), 10_000), 10_000, 2_000)
    fed = 10_000 * WORDS_A_LINE
    assert found.words + found.late == fed
    assert 0.002 * fed < found.late < 0.05 * fed


def test_a_seed_feeds_the_same_lines() -> None:
    first, again, other = (list(islice(make_lines(seed, 4, 0, 1), 50)) for seed in (1, 1, 2))
    assert first == again
    assert first != other
