"""Words in the database: different words stay different, and come back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sink.text import BYTES_MAX, is_shortened, readable, storable, storable_column

CHARACTERS = st.characters(codec=None) | st.sampled_from("ab\0\\u+0\ud83d\udc00é€")
WORDS = st.text(CHARACTERS, max_size=40) | st.text("\\u0+ab", max_size=12)
LONG = st.builds(
    lambda word, times: word * times, st.text(CHARACTERS, min_size=1), st.integers(1, 400)
)


@pytest.mark.parametrize(
    ("word", "stored"),
    [
        ("", ""),
        ("naïve", "naïve"),
        ("हिन्दी", "हिन्दी"),
        ("it's", "it's"),
        ("ab\0cd", r"ab\u0000cd"),
        (r"ab\u0000cd", r"ab\\u0000cd"),
        ("\ud83d", r"\ud83d"),
        ("\U0001f600", "\U0001f600"),
        ("a\\", r"a\\"),
    ],
)
def test_what_stands_in_the_column(word: str, stored: str) -> None:
    assert storable(word) == stored
    assert readable(stored) == word


@given(WORDS | LONG)
def test_postgres_can_hold_it(word: str) -> None:
    stored = storable(word).encode()  # no lone surrogate, or this fails
    assert b"\0" not in stored
    assert len(stored) <= BYTES_MAX


@given(WORDS | LONG, WORDS | LONG)
def test_different_words_stay_different(one: str, other: str) -> None:
    assert (storable(one) == storable(other)) == (one == other)


@given(WORDS | LONG)
def test_a_word_comes_back_unless_it_was_too_long(word: str) -> None:
    stored = storable(word)
    assert is_shortened(stored) or readable(stored) == word
    assert not is_shortened(stored) or len(word.encode(errors="surrogatepass")) > BYTES_MAX / 6


def test_a_long_word_keeps_its_beginning_and_differs_from_its_neighbours() -> None:
    one, other = "é" * 600, "é" * 599 + "è"
    assert storable(one)[:400] == "é" * 400
    assert is_shortened(storable(one))
    assert storable(one) != storable(other)
    assert storable("x" * BYTES_MAX) == "x" * BYTES_MAX
    assert is_shortened(storable("x" * (BYTES_MAX + 1)))


@given(st.lists(WORDS | LONG, max_size=6))
def test_a_column_is_the_same_as_word_by_word(words: list[str]) -> None:
    assert storable_column(words) == [storable(word) for word in words]
