"""The serdes that everybody needs: bytes, text, numbers, JSON; in the bytes of Kafka's own ones.

Each column function first takes the way for a column without None, in which the loop runs in C,
and starts over the slow way where that fails. The slow way also finds the words for a bad value.
"""

import json
import struct
from collections.abc import Callable, Sequence
from typing import Any

from streamcore.serde.base import Serde, serde_of

# --- text -----------------------------------------------------------------------------------


def _encode_column(values: Sequence[Any]) -> list[bytes | None]:
    try:
        return list(map(str.encode, values))
    except TypeError:  # a None, or not text at all
        return [None if value is None else str.encode(value) for value in values]


def _decode_column(values: Sequence[bytes | None]) -> list[Any]:
    try:
        return list(map(bytes.decode, values))  # type: ignore[arg-type] # a None: see below
    except TypeError:
        return [None if value is None else value.decode() for value in values]


STR = Serde("str", str.encode, bytes.decode, _encode_column, _decode_column)
"""Text as UTF-8. Invalid UTF-8 is refused (Java's StringDeserializer replaces it silently)."""


# --- bytes ----------------------------------------------------------------------------------


def _same_bytes(value: Any) -> bytes:
    if type(value) is not bytes:
        raise TypeError(f"the bytes serde takes bytes, not {type(value).__name__}")
    return value


def _same_bytes_column(values: Sequence[Any]) -> list[bytes | None]:
    if not set(map(type, values)) <= {bytes, type(None)}:
        return [None if value is None else _same_bytes(value) for value in values]
    return list(values)


BYTES = Serde("bytes", _same_bytes, _same_bytes, _same_bytes_column, list)
"""Bytes as they are."""


# --- numbers of eight bytes -------------------------------------------------------------------


def _number(name: str, code: str) -> Serde:
    """Return the serde of a big-endian number of eight bytes (``code`` as in ``struct``)."""
    layout = struct.Struct(f">{code}")
    pack = layout.pack

    def serialize(value: Any) -> bytes:
        try:
            return pack(value)
        except (struct.error, OverflowError) as problem:
            raise ValueError(f"not a value for the {name} serde: {problem}") from None

    def deserialize(value: bytes) -> Any:
        if len(value) != 8:
            raise ValueError(f"the {name} serde reads 8 bytes, not {len(value)}")
        return layout.unpack(value)[0]

    def serialize_column(values: Sequence[Any]) -> list[bytes | None]:
        try:
            return list(map(pack, values))
        except (struct.error, OverflowError):
            return [None if value is None else serialize(value) for value in values]

    return Serde(name, serialize, deserialize, serialize_column, _unpack_column(code, deserialize))


def _unpack_column(
    code: str, deserialize: Callable[[bytes], Any]
) -> Callable[[Sequence[bytes | None]], list[Any]]:
    def deserialize_column(values: Sequence[bytes | None]) -> list[Any]:
        if None in values or not set(map(len, values)) <= {8}:  # type: ignore[arg-type]
            return [None if value is None else deserialize(value) for value in values]
        return list(struct.unpack(f">{len(values)}{code}", b"".join(values)))  # type: ignore[arg-type]

    return deserialize_column


INT64 = _number("int64", "q")
"""A signed integer of eight bytes, big endian: Kafka's LongSerializer."""

DOUBLE = _number("double", "d")
"""An IEEE 754 double, big endian: Kafka's DoubleSerializer."""


# --- JSON -----------------------------------------------------------------------------------

_compact = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
_ascii = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode


def _to_json(value: Any) -> bytes:
    try:
        return _compact(value).encode()
    except UnicodeEncodeError:  # half a surrogate pair: JSON can say it, UTF-8 cannot
        return _ascii(value).encode()


def _from_json(value: bytes) -> Any:
    try:
        return json.loads(value.decode())
    except RecursionError:
        raise ValueError("JSON nested too deeply") from None


JSON = serde_of("json", _to_json, _from_json)
"""JSON in UTF-8, without spaces; NaN and infinities are refused. A JSON ``null`` reads as None."""
