"""The figures of takeovers and rebalances are gaps between arrivals: how a gap is found."""

from benchmarks.fleet import moved
from benchmarks.steady import Series, spread
from streamcore.topology.partitioning import partition_of


def test_a_gap_under_way_at_the_event_counts_from_its_beginning() -> None:
    gap = Series([1.0, 2.0, 5.0, 6.0]).longest_gap(since=3.0, until=6.5)
    assert (gap.begin, gap.end, gap.ended) == (2.0, 5.0, True)


def test_a_takeover_counts_from_the_event() -> None:
    gap = Series([1.0, 2.0, 5.0, 6.0]).longest_gap(since=3.0, until=6.5, whole=False)
    assert (gap.begin, gap.end, gap.ended) == (3.0, 5.0, True)


def test_a_count_that_was_under_way_does_not_end_the_takeover() -> None:
    gap = Series([1.0, 3.1, 9.0, 9.1]).longest_gap(since=3.0, until=9.5, whole=False)
    assert (gap.begin, gap.end) == (3.1, 9.0)


def test_a_task_that_never_counts_again_has_a_gap_that_did_not_end() -> None:
    for times in ([], [1.0, 2.0], [1.0, 2.0, 3.1]):
        gap = Series(times).longest_gap(since=3.0, until=9.0)
        assert not gap.ended
        assert gap.end == 9.0


def test_what_came_later_than_the_watch_is_not_seen() -> None:
    gap = Series([1.0, 2.0, 20.0]).longest_gap(since=1.5, until=4.0)
    assert (gap.begin, gap.end, gap.ended) == (2.0, 4.0, False)


def test_words_of_each_partition_go_to_every_partition_in_turn() -> None:
    words = spread(4)
    assert len({word for source in words for word in source}) == sum(map(len, words))
    for source in words:
        assert [partition_of(word, 4) for word in source] == [0, 1, 2, 3] * (len(source) // 4)


def test_a_task_without_an_owner_has_moved() -> None:
    before = {"0_0": "a", "0_1": "a", "1_0": "b"}
    gone, stayed = moved(before, {"0_0": "a", "1_0": "a"})
    assert sorted(gone) == ["0_1", "1_0"]
    assert sorted(stayed) == ["0_0"]
