# ruff: noqa: RUF001  # letters that look like others are what this is about
"""What a word is: the table of examples, and the rules that hold for all of Unicode."""

import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.words import words

EXAMPLES = [
    ("To be, or not to be", ["to", "be", "or", "not", "to", "be"]),
    ("", []),
    ("  \t\n", []),
    ("--- … !?", []),
    ("Don't panic", ["don't", "panic"]),
    ("don’t ‘quote’ me", ["don't", "quote", "me"]),
    ("'tis the dogs' rock'n'roll", ["tis", "the", "dogs", "rock'n'roll"]),
    ("o''clock a'-'b", ["o", "clock", "a", "b"]),
    ("well-known e.g. and/or", ["well", "known", "e", "g", "and", "or"]),
    ("snake_case __init__", ["snake", "case", "init"]),
    ("42 is 3.14 or 1st", ["42", "is", "3", "14", "or", "1st"]),
    ("na\u00efve", ["na\u00efve"]),
    ("nai\u0308ve", ["na\u00efve"]),
    ("हिन्दी में", ["हिन्दी", "में"]),
    ("தமிழ் வாழ்க", ["தமிழ்", "வாழ்க"]),
    ("שָׁלוֹם עולם", [unicodedata.normalize("NFC", "שָׁלוֹם"), "עולם"]),
    ("Straße STRASSE", ["straße", "strasse"]),
    ("ΟΔΟΣ.ΟΔΟΣ Σ", ["οδος", "οδος", "σ"]),
    ("İstanbul", ["i\u0307stanbul"]),
    ("J\u030c \u01f0", ["\u01f0", "\u01f0"]),
    ("می\u200cخواهم \u200cکتاب\u200c", ["می\u200cخواهم", "کتاب"]),
    ("র\u200d্যাব क्\u200dष", ["র\u200d্যাব", "क्\u200dष"]),
    ("co\u00adop \ufeffstart zero\u200bwidth", ["coop", "start", "zero", "width"]),
    ("❤\ufe0f I ♥ 👩\u200d💻 NY €5", ["i", "ny", "5"]),
    ("漢字かな交じり文 — 你好，世界", ["漢字かな交じり文", "你好", "世界"]),
    ("١٢٣ x² ½ Ⅳ", ["١٢٣", "x²", "½", "ⅳ"]),
    ("l’État c’est \U00010400\U0001e94a", ["l'état", "c'est", "\U00010428\U0001e94a"]),
    ("a\x00b\u2028c\x85d", ["a", "b", "c", "d"]),
]


@pytest.mark.parametrize(("text", "expected"), EXAMPLES)
def test_a_text_has_these_words(text: str, expected: list[str]) -> None:
    assert words(text) == expected


def test_every_combining_mark_of_unicode_stays_with_its_letter() -> None:
    marks = [
        chr(code)
        for code in range(sys.maxunicode + 1)
        if unicodedata.category(chr(code)).startswith("M")
    ]
    apart = [mark for mark in marks if len(words(f"x{mark}y")) != 1]
    assert len(marks) > 2_000
    assert apart == []


def test_every_letter_and_every_decimal_digit_is_a_word() -> None:
    categories = ("Lu", "Ll", "Lt", "Lm", "Lo", "Nd")
    lost = [
        code
        for code in range(sys.maxunicode + 1)
        if unicodedata.category(chr(code)) in categories and len(words(chr(code))) != 1
    ]
    assert lost == []


@given(st.text())
def test_a_word_is_its_own_only_word(text: str) -> None:
    for word in words(text):
        assert words(word) == [word]


@given(st.text())
def test_both_normal_forms_have_the_same_words(text: str) -> None:
    assert words(unicodedata.normalize("NFD", text)) == words(unicodedata.normalize("NFC", text))


@given(st.text(), st.text())
def test_words_of_two_texts_are_those_of_both_in_one_line(first: str, second: str) -> None:
    assert words(f"{first}\n{second}") == words(first) + words(second)


@given(st.text(alphabet=st.characters(max_codepoint=127)))
def test_the_fast_way_for_ascii_gives_the_same_words(text: str) -> None:
    assert [*words(text), "é"] == words(f"{text} é")
