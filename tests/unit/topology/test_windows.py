import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamcore import TopologyError, Windows, hopping, tumbling


@st.composite
def any_windows(draw: st.DrawFn) -> Windows:
    size_ms = draw(st.integers(1, 40))
    advance_ms = draw(st.integers(1, size_ms))
    return hopping(size_ms=size_ms, advance_ms=advance_ms, grace_ms=draw(st.integers(0, 30)))


@given(any_windows(), st.integers(0, 300))
def test_the_windows_of_a_record_are_all_that_hold_it(windows: Windows, stamp_ms: int) -> None:
    every = range(0, stamp_ms + 1, windows.advance_ms)
    expected = [start for start in every if start <= stamp_ms < start + windows.size_ms]
    assert list(windows.starts(stamp_ms)) == expected


@given(any_windows(), st.integers(-1, 300))
def test_the_oldest_open_window_is_the_first_that_has_not_closed(
    windows: Windows, watermark_ms: int
) -> None:
    start_ms = 0
    while windows.closes_ms(start_ms) <= watermark_ms:
        start_ms += windows.advance_ms
    assert windows.oldest_open_ms(watermark_ms) == start_ms


def test_a_record_on_the_boundary_belongs_to_the_later_window() -> None:
    assert list(tumbling(size_ms=10).starts(9)) == [0]
    assert list(tumbling(size_ms=10).starts(10)) == [10]


def test_java_recorded_hopping_windows_are_ours() -> None:
    windows = hopping(size_ms=10, advance_ms=5)
    assert [list(windows.starts(stamp)) for stamp in (1, 12, 5, 23)] == [
        [0],
        [5, 10],
        [0, 5],
        [15, 20],
    ]


@pytest.mark.parametrize(
    ("size_ms", "advance_ms", "grace_ms"),
    [(0, 0, 0), (-1, 1, 0), (10, 0, 0), (10, 11, 0), (10, -5, 0), (10, 10, -1)],
)
def test_impossible_windows_are_refused(size_ms: int, advance_ms: int, grace_ms: int) -> None:
    with pytest.raises(TopologyError):
        hopping(size_ms=size_ms, advance_ms=advance_ms, grace_ms=grace_ms)
