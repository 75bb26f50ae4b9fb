import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamcore import BYTES, INT64, STR, Window, Windowed, windowed_serde

SIZE_MS = 10_000
SERDE = windowed_serde(BYTES, SIZE_MS)

starts = st.integers(0, 2**62)
keys = st.builds(
    lambda key, start: Windowed(key, Window(start, start + SIZE_MS)),
    st.binary(max_size=20),
    st.one_of(starts, st.just(0), st.just(SIZE_MS)),
)


def test_the_layout_is_that_of_kafka_streams() -> None:
    # java-recorded bytes: key, then the start; the empty word has a key of eight bytes
    serde = windowed_serde(STR)
    for key, start_ms, expected in [
        ("a", 0, "610000000000000000"),
        ("b", 10_000, "620000000000002710"),
        ("", 10_000, "0000000000002710"),
        ("naïve", 10_000, "6e61c3af76650000000000002710"),
    ]:
        window = Window(start_ms, start_ms + SIZE_MS)
        assert serde.serialize(Windowed(key, window)).hex() == expected


@given(st.lists(st.none() | keys))
def test_what_is_written_reads_back(column: list[Windowed | None]) -> None:
    written = SERDE.serialize_column(column)
    assert written == [None if row is None else SERDE.serialize(row) for row in column]
    assert SERDE.deserialize_column(written) == column
    assert [None if row is None else SERDE.deserialize(row) for row in written] == column


def test_without_the_size_it_only_writes() -> None:
    serde = windowed_serde(STR)
    assert not serde.readable
    assert windowed_serde(STR, SIZE_MS).readable
    for read in (serde.deserialize, lambda row: serde.deserialize_column([row])):
        with pytest.raises(ValueError, match="size_ms"):
            read(bytes(9))


@pytest.mark.parametrize("poison", [b"", bytes(7), b"a" + b"\xff" * 8])
def test_bytes_that_are_no_windowed_key_raise_a_value_error(poison: bytes) -> None:
    good = SERDE.serialize(Windowed(b"k", Window(0, SIZE_MS)))
    with pytest.raises(ValueError, match=r"."):
        SERDE.deserialize(poison)
    with pytest.raises(ValueError, match=r"."):
        SERDE.deserialize_column([good, poison])


def test_an_undecodable_inner_key_raises_a_value_error() -> None:
    with pytest.raises(ValueError, match=r"."):
        windowed_serde(INT64, SIZE_MS).deserialize_column([bytes(8) + b"x"])


def test_it_knows_the_serde_of_the_inner_key() -> None:
    assert windowed_serde(STR).inner is STR
    assert STR.inner is None


def test_a_size_is_above_zero() -> None:
    with pytest.raises(ValueError, match="above 0"):
        windowed_serde(STR, 0)
