"""A key with its window, and its bytes in Kafka Streams' layout: key, then start (8, big endian).

The end of the window is not in the bytes: whoever reads them must know the size.
"""

import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

from streamcore.serde.base import Serde


class Window(NamedTuple):
    """One window, [start_ms, end_ms)."""

    start_ms: int
    end_ms: int


class Windowed(NamedTuple):
    """A key within a window: the key type of every windowed table."""

    key: Any
    window: Window


_START = struct.Struct(">q")


def windowed_serde(inner: Serde, size_ms: int | None = None) -> Serde:
    """Return the serde of ``Windowed`` keys whose key part is of serde ``inner``.

    ``size_ms`` is needed to read, and only then.

    >>> from streamcore.serde.builtin import STR
    >>> windowed_serde(STR).serialize(Windowed("a", Window(10_000, 20_000))).hex()
    '610000000000002710'
    >>> windowed_serde(STR, size_ms=10_000).deserialize(bytes.fromhex("610000000000002710"))
    Windowed(key='a', window=Window(start_ms=10000, end_ms=20000))
    """
    if size_ms is not None and size_ms <= 0:
        raise ValueError(f"size_ms is {size_ms}; it must be above 0")
    pack, unpack = _START.pack, _START.unpack

    def serialize(value: Any) -> bytes:
        return inner.serialize(value.key) + pack(value.window.start_ms)

    def serialize_column(values: Sequence[Any]) -> list[bytes | None]:
        if None in values:
            return [None if value is None else serialize(value) for value in values]
        keys = inner.serialize_column([value[0] for value in values])
        return [
            key + pack(value[1][0])  # type: ignore[operator] # a windowed key has a key
            for key, value in zip(keys, values, strict=True)
        ]

    def deserialize(value: bytes) -> Any:
        if size_ms is None:
            raise ValueError("this windowed serde can only write: give it size_ms to read")
        if len(value) < 8:
            raise ValueError(f"a windowed key has at least 8 bytes, not {len(value)}")
        (start_ms,) = unpack(value[-8:])
        if start_ms < 0:
            raise ValueError(f"a window cannot start at {start_ms}")
        return Windowed(inner.deserialize(value[:-8]), Window(start_ms, start_ms + size_ms))

    def deserialize_column(values: Sequence[bytes | None]) -> list[Any]:
        if size_ms is None or None in values or min(map(len, values), default=8) < 8:  # type: ignore[arg-type]
            return [None if value is None else deserialize(value) for value in values]
        keys = inner.deserialize_column([value[:-8] for value in values])  # type: ignore[index]
        windows: dict[bytes, Window] = {}  # few windows, many keys
        for start in {value[-8:] for value in values}:  # type: ignore[index]
            start_ms = unpack(start)[0]
            if start_ms < 0:
                raise ValueError(f"a window cannot start at {start_ms}")
            windows[start] = Window(start_ms, start_ms + size_ms)
        return list(map(Windowed, keys, [windows[value[-8:]] for value in values]))  # type: ignore[index]

    return Serde(
        f"windowed({inner.name})",
        serialize,
        deserialize,
        serialize_column,
        deserialize_column,
        inner=inner,
        readable=size_ms is not None,
    )
