"""Sizes of record batches, against sizes that are known."""

import random

from hypothesis import given
from hypothesis import strategies as st

from streamcore.plan.batches import (
    compressed_bytes,
    lz4_frame_bytes,
    records_bytes,
)
from streamcore.testing.log import Entry

payloads = st.none() | st.binary(max_size=300)


def test_the_smallest_record_is_laid_out_as_kafka_lays_it_out() -> None:
    assert records_bytes([Entry(None, b"a", 5)]).hex() == "0e00000001026100"


def test_keys_headers_times_and_offsets_count() -> None:
    entries = [Entry(b"k", b"v", 1_000), Entry(b"k", None, 1_300, (("h", b"xyz"),))]
    first, second = "10000000026b027600", "1c00d804020 26b01"
    raw = records_bytes(entries).hex()
    assert raw.startswith(first)
    assert raw[len(first) :] == second.replace(" ", "") + "0202680678797a"


def test_many_of_the_same_cost_a_byte_or_two_each() -> None:
    entries = [Entry(None, b"word", 7) for _ in range(1_000)]
    records = records_bytes(entries)
    assert compressed_bytes(records) < 0.5 * len(records)


def test_what_does_not_shrink_goes_as_it_is() -> None:
    noise = random.Random(1).randbytes(5_000)
    assert len(noise) < lz4_frame_bytes(noise) < len(noise) + 40
    assert compressed_bytes(noise) == len(noise)


def test_a_run_of_zeros_is_a_handful_of_bytes_in_each_block() -> None:
    """A match of n bytes beyond 18 takes one byte for each 255: 65,536 / 255 is 257."""
    assert 257 <= lz4_frame_bytes(bytes(65_536)) <= 257 + 11 + 4 + 16
    assert lz4_frame_bytes(bytes(4 * 65_536)) > 4 * 257


@given(st.lists(st.builds(Entry, payloads, payloads, st.integers(0, 2**45)), max_size=30))
def test_a_batch_is_never_larger_than_its_records(entries: list[Entry]) -> None:
    records = records_bytes(entries)
    assert 0 <= compressed_bytes(records) <= len(records)


@given(st.binary(max_size=2_000))
def test_twice_the_same_costs_little_more_than_once(data: bytes) -> None:
    once, twice = lz4_frame_bytes(data), lz4_frame_bytes(data + data)
    assert twice <= once + len(data) / 255 + 24
