"""Byte layout of stored keys and values. Byte order is time order; all integers are big endian.

On disk::

    key-value store    key                        ->  stamp(8) value
    window store       start(8) key               ->  stamp(8) value

In the changelog, as Kafka Streams writes it (the stamp is the record's timestamp there)::

    key-value store    key                        ->  value
    window store       key start(8) sequence(4)   ->  value

With the start in front, no key of one window can lie between the keys of another, whatever bytes
the user's keys are made of, and what expires first lies first.
"""

from collections.abc import Iterable, Iterator, Sequence
from operator import add
from struct import Struct

Entry = tuple[bytes, int]
"""What a store answers: value, stamp_ms."""

Change = tuple[bytes | None, int]
"""What a store was told: value (None deletes), stamp_ms."""

_INT64 = Struct(">q")

pack_ms = _INT64.pack
"""Eight bytes of a time or a stamp. Only times from 0 on sort as their bytes do."""

CHANGELOG_TAIL = 12
"""Bytes behind the user's key in the changelog of a window store: start and sequence."""

_SEQUENCE = bytes(4)  # other than 0 only where a window keeps duplicates, as in join stores


def unpack_ms(raw: bytes) -> int:
    """Return the time in the first eight bytes of ``raw``."""
    stamp_ms: int = _INT64.unpack_from(raw)[0]
    return stamp_ms


def decode_entry(raw: bytes) -> Entry:
    """Return value and stamp of what an engine holds."""
    return raw[8:], _INT64.unpack_from(raw)[0]


def encode_values(
    values: Sequence[bytes | None], stamps_ms: Iterable[int]
) -> Iterable[bytes | None]:
    """Yield what an engine holds for each value; None (delete) stays None."""
    if None in values:
        return [
            None if value is None else pack_ms(stamp_ms) + value
            for value, stamp_ms in zip(values, stamps_ms, strict=True)
        ]
    return map(add, map(pack_ms, stamps_ms), values)


def encode_changes(changes: Iterable[Change]) -> Iterator[bytes | None]:
    """Yield what an engine holds for each change; a delete is None."""
    return (None if value is None else pack_ms(stamp_ms) + value for value, stamp_ms in changes)


def window_key(start_ms: int, key: bytes) -> bytes:
    """Return the local key of ``key`` in the window that starts at ``start_ms``.

    >>> window_key(1, b"a")
    b'\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x01a'
    """
    return pack_ms(start_ms) + key


def changelog_keys(start_ms: int, keys: Iterable[bytes]) -> list[bytes]:
    """Return the changelog keys of ``keys`` in the window that starts at ``start_ms``."""
    tail = pack_ms(start_ms) + _SEQUENCE
    return [key + tail for key in keys]
