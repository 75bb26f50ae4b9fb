"""How many bytes records take on the wire: Kafka's record batches (format 2) and lz4.

Sizes only; nothing is sent. The compressor is a plain greedy one: it finds what lz4's own fast mode
finds, give or take some per cent, and saves a dependency.
"""

from collections.abc import Sequence
from typing import Final

from streamcore.testing.log import Entry

BATCH_HEADER_BYTES: Final = 61

_BLOCK_BYTES: Final = 65_536
_FRAME_BYTES: Final = 7 + 4  # magic, descriptor and its check; end mark
_BLOCK_HEADER_BYTES: Final = 4
_MATCH_MIN: Final = 4
_MATCH_END: Final = 12  # no match begins in the last 12 bytes of a block
_LITERALS_END: Final = 5  # none reaches into the last 5


def records_bytes(entries: Sequence[Entry]) -> bytes:
    """Return the records of one batch as they are before compression."""
    out = bytearray()
    base_ms = entries[0].stamp_ms if entries else 0
    for offset, entry in enumerate(entries):
        body = bytearray([0])  # attributes
        _put(body, entry.stamp_ms - base_ms)
        _put(body, offset)
        _put_bytes(body, entry.key)
        _put_bytes(body, entry.value)
        _put(body, len(entry.headers))
        for name, payload in entry.headers:
            _put_bytes(body, name.encode())
            _put_bytes(body, payload)
        _put(out, len(body))
        out += body
    return bytes(out)


def compressed_bytes(records: bytes) -> int:
    """Return the size of a batch's records; what lz4 would make longer goes as it is."""
    return min(len(records), lz4_frame_bytes(records))


def lz4_frame_bytes(data: bytes) -> int:
    """Return the size of the data as an lz4 frame of independent blocks of 64 KiB.

    >>> lz4_frame_bytes(b"to be or not to be " * 100) < 100
    True
    """
    size = _FRAME_BYTES
    for start in range(0, len(data), _BLOCK_BYTES):
        block = data[start : start + _BLOCK_BYTES]
        size += _BLOCK_HEADER_BYTES + min(len(block), _block_bytes(block))
    return size


def _block_bytes(block: bytes) -> int:
    seen: dict[bytes, int] = {}
    size = anchor = at = 0
    last_start, last_end = len(block) - _MATCH_END, len(block) - _LITERALS_END
    while at < last_start:
        word = block[at : at + _MATCH_MIN]
        candidate = seen.get(word)
        seen[word] = at
        if candidate is None:
            at += 1
            continue
        end, other = at + _MATCH_MIN, candidate + _MATCH_MIN
        while end < last_end and block[end] == block[other]:
            end, other = end + 1, other + 1
        while at > anchor and candidate > 0 and block[at - 1] == block[candidate - 1]:
            at, candidate = at - 1, candidate - 1
        size += _sequence_bytes(at - anchor, end - at - _MATCH_MIN)
        seen[block[end - 2 : end + 2]] = end - 2
        at = anchor = end
    literals = len(block) - anchor
    return size + 1 + literals + _length_bytes(literals)


def _sequence_bytes(literals: int, match_more: int) -> int:
    return 1 + literals + _length_bytes(literals) + 2 + _length_bytes(match_more)


def _length_bytes(length: int) -> int:
    """A length up to 14 is part of the token; longer ones take bytes of their own."""
    return 0 if length < 15 else (length - 15) // 255 + 1


def _put_bytes(out: bytearray, value: bytes | None) -> None:
    if value is None:
        _put(out, -1)
    else:
        _put(out, len(value))
        out += value


def _put(out: bytearray, number: int) -> None:
    """Append a variable-length integer with its sign in the lowest bit."""
    number = number << 1 if number >= 0 else (-number << 1) - 1
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
