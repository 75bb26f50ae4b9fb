"""Bytes to lines: wherever a file is cut into blocks, lines and faults are the same."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.errors import FeedError, TextError
from ingest.lines import LINE_CHARS_MAX, LineDecoder


def decoded(
    data: bytes, block: int = 1 << 16, encoding: str = "utf-8"
) -> tuple[list[str], TextError | None]:
    decoder = LineDecoder("book.txt", encoding)
    lines: list[str] = []
    for start in range(0, len(data), block):
        lines += decoder.lines(data[start : start + block])
        if decoder.fault is not None:
            return lines, decoder.fault
    return lines + decoder.last(), decoder.fault


def test_each_kind_of_line_end_ends_a_line() -> None:
    assert decoded(b"a\nb\r\nc\rd\n\ne") == (["a", "b", "c", "d", "", "e"], None)


def test_a_line_separator_of_unicode_stays_in_its_line() -> None:
    assert decoded("a\u2028b\x85c\n".encode()) == (["a\u2028b\x85c"], None)


def test_a_byte_order_mark_is_no_text() -> None:
    assert decoded(b"\xef\xbb\xbfa\n") == (["a"], None)
    assert decoded("a\nb".encode("utf-16"), 1, "utf-16") == (["a", "b"], None)


@given(
    st.lists(st.text(st.characters(exclude_characters="\r\n\ufeff", codec="utf-8"))),
    st.integers(1, 9),
)
def test_blocks_do_not_show(lines: list[str], block: int) -> None:
    data = "".join(f"{line}\r\n" for line in lines).encode()
    assert decoded(data, block) == (lines, None)


@pytest.mark.parametrize("block", [1, 2, 3, 5, 1000])
@pytest.mark.parametrize("bad", [b"\xff", b"\xc3(", b"\xe2\x82\n", b"\xed\xa0\x80"])
def test_bytes_that_are_no_text_are_told_with_their_line(bad: bytes, block: int) -> None:
    lines, fault = decoded("é 1\r\nnaïve €\rthree ".encode() + bad + b"\nfour\n", block)
    assert lines == ["é 1", "naïve €"]
    assert fault is not None
    assert (fault.file, fault.line) == ("book.txt", 3)
    assert "book.txt, line 3: not utf-8" in str(fault)
    assert "\n" not in str(fault)


def test_a_file_that_ends_within_a_character_is_faulty() -> None:
    lines, fault = decoded(b"good\nhalf \xe2\x82")
    assert lines == ["good"]
    assert fault is not None
    assert fault.line == 2


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "utf-16-le", "shift_jis", "gb18030"])
def test_other_encodings_are_read_as_well(encoding: str) -> None:
    text = "a\nb c\n"
    assert decoded(text.encode(encoding), 3, encoding) == (["a", "b c"], None)


@pytest.mark.parametrize("encoding", ["nonsense", "base64", "rot13"])
def test_what_is_no_text_encoding_is_refused(encoding: str) -> None:
    with pytest.raises(FeedError, match=f"no text encoding '{encoding}'"):
        LineDecoder("book.txt", encoding)


@pytest.mark.parametrize("block", [1000, 1 << 16, 1 << 24])
def test_a_line_too_long_for_a_record_goes_out_in_pieces_between_words(block: int) -> None:
    long = "word " * (LINE_CHARS_MAX // 2)
    lines, fault = decoded(f"first\n{long}\nlast \xff".encode(), block)
    assert fault is None
    assert lines[0] == "first"
    assert lines[-1] == "last \xff"
    assert "".join(lines[1:-1]) == long
    assert all(len(line) <= LINE_CHARS_MAX for line in lines)
    assert all(line.split() == ["word"] * len(line.split()) for line in lines[1:-1])


def test_pieces_of_a_line_do_not_count_as_lines() -> None:
    _, fault = decoded(b"a" * (3 * LINE_CHARS_MAX) + b"\n\xff", 1 << 16)
    assert fault is not None
    assert fault.line == 2
