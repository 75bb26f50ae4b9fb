import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamcore import BYTES, DOUBLE, INT64, JSON, STR, Serde, serde_of

JSONISH = st.recursive(
    st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)
CASES = [
    (STR, st.text()),
    (BYTES, st.binary()),
    (INT64, st.integers(-(2**63), 2**63 - 1)),
    (DOUBLE, st.floats(allow_nan=False)),
    (JSON, JSONISH),
]


@pytest.mark.parametrize(("serde", "values"), CASES, ids=lambda case: str(case)[:12])
@given(data=st.data())
def test_what_is_written_reads_back_and_a_column_does_what_its_rows_do(
    serde: Serde, values: st.SearchStrategy[Any], data: st.DataObject
) -> None:
    column = data.draw(st.lists(st.none() | values))
    written = serde.serialize_column(column)
    assert written == [None if value is None else serde.serialize(value) for value in column]
    assert serde.deserialize_column(written) == column
    assert [None if row is None else serde.deserialize(row) for row in written] == column


def test_the_bytes_are_those_of_kafkas_own_serializers() -> None:
    assert STR.serialize("naïve") == "naïve".encode()
    assert STR.serialize("") == b""
    assert INT64.serialize(1) == bytes(7) + b"\x01"
    assert INT64.serialize(-1) == b"\xff" * 8
    assert DOUBLE.serialize(1.5) == struct.pack(">d", 1.5)
    assert JSON.serialize({"a": ["ï", None, 1.5]}) == '{"a":["ï",null,1.5]}'.encode()


@pytest.mark.parametrize(
    ("serde", "poison"),
    [
        (STR, b"\xff\xfe{"),
        (STR, b"\xed\xa0\x80"),  # half a surrogate pair
        (INT64, b""),
        (INT64, bytes(7)),
        (INT64, bytes(9)),
        (DOUBLE, bytes(4)),
        (JSON, b"\xff\xfe{"),
        (JSON, b""),
        (JSON, b"{"),
        (JSON, b"[" * 100_000),
    ],
)
def test_undecodable_bytes_raise_a_value_error_alone_and_in_a_column(
    serde: Serde, poison: bytes
) -> None:
    good = serde.serialize(7 if serde in {INT64, DOUBLE, JSON} else "good")
    with pytest.raises(ValueError, match=r"."):
        serde.deserialize(poison)
    for column in ([good, poison], [None, poison, good]):
        with pytest.raises(ValueError, match=r"."):
            serde.deserialize_column(column)


def test_two_wrong_lengths_that_add_up_to_right_ones_are_still_refused() -> None:
    with pytest.raises(ValueError, match="8 bytes, not 7"):
        INT64.deserialize_column([bytes(7), bytes(9)])


@pytest.mark.parametrize(
    ("serde", "value", "error"),
    [
        (STR, 1, TypeError),
        (STR, b"bytes", TypeError),
        (STR, "\ud800", ValueError),
        (BYTES, "text", TypeError),
        (INT64, 2**63, ValueError),
        (INT64, "1", ValueError),
        (INT64, 1.0, ValueError),
        (DOUBLE, "1", ValueError),
        (JSON, float("nan"), ValueError),
        (JSON, {1, 2}, TypeError),
    ],
)
def test_a_value_that_cannot_be_written_is_refused_alone_and_in_a_column(
    serde: Serde, value: Any, error: type[Exception]
) -> None:
    with pytest.raises(error):
        serde.serialize(value)
    with pytest.raises(error):
        serde.serialize_column([None, value])


def test_json_can_write_whatever_json_can_say() -> None:
    half = JSON.deserialize(b'"\\ud800"')
    assert JSON.serialize(half) == b'"\\ud800"'


def test_a_serde_of_two_functions_spares_them_the_nulls() -> None:
    upper = serde_of("upper", lambda s: s.upper().encode(), lambda b: b.decode().lower())
    assert upper.serialize_column(["a", None]) == [b"A", None]
    assert upper.deserialize_column([None, b"A"]) == [None, "a"]
    assert repr(upper) == "upper"


def test_a_column_comes_back_as_a_list_of_its_own() -> None:
    column: list[bytes | None] = [b"a", None]
    assert BYTES.deserialize_column(column) is not column
    assert BYTES.serialize_column(column) is not column
