"""Serde: how values become bytes and come back, a column at a time.

A serde works on columns, because a call per record costs more than the work in it. None stays None:
a null key or value never reaches the functions. An undecodable value raises ValueError (or a
subclass such as UnicodeDecodeError); the caller finds the row by trying the rows one by one.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Serde:
    """Two functions over a column, and the same two for one value.

    ``inner`` is set for the serde of windowed keys: a sink with it partitions by the inner key, as
    Kafka Streams does. ``readable`` False: it can only write (its bytes do not tell everything).
    """

    name: str
    serialize: Callable[[Any], bytes]
    deserialize: Callable[[bytes], Any]
    serialize_column: Callable[[Sequence[Any]], list[bytes | None]]
    deserialize_column: Callable[[Sequence[bytes | None]], list[Any]]
    inner: "Serde | None" = None
    readable: bool = True

    def __repr__(self) -> str:
        return self.name


def serde_of(
    name: str, serialize: Callable[[Any], bytes], deserialize: Callable[[bytes], Any]
) -> Serde:
    """Return a serde made of two functions for one value.

    >>> upper = serde_of("upper", lambda s: s.upper().encode(), lambda b: b.decode().lower())
    >>> upper.serialize_column(["a", None])
    [b'A', None]
    """

    def serialize_column(values: Sequence[Any]) -> list[bytes | None]:
        return [None if value is None else serialize(value) for value in values]

    def deserialize_column(values: Sequence[bytes | None]) -> list[Any]:
        return [None if value is None else deserialize(value) for value in values]

    return Serde(name, serialize, deserialize, serialize_column, deserialize_column)
