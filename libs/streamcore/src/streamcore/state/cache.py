"""Sizes and read caches of stores: bytes only, bounded, without work per read.

A cache that keeps an order of use pays for each read. Here a read is one dict look-up, and memory
is given back in big steps: half the rows at once, or whole windows.
"""

from collections.abc import Sequence

from streamcore.state.keys import Entry

ROW_OVERHEAD_BYTES = 200
"""About what Python takes for one row beside its bytes: two objects, a tuple, a slot in a dict."""

UNKNOWN: Entry = (b"unknown", -(1 << 62))
"""Stands for "nobody has looked yet", compared by identity. None stands for "is not there"."""

_SAMPLE = 32
_MEMORY_ROWS = 1 << 16


class RowSize:
    """How many bytes a row takes, by sampling what passes; newer rows weigh more than old ones."""

    __slots__ = ("_bytes", "_rows")

    def __init__(self) -> None:
        self._bytes = 0
        self._rows = 0

    def note(self, keys: Sequence[bytes], values: Sequence[bytes | None]) -> None:
        """Look at some of these rows (all of them up to a few dozen)."""
        rows = len(keys)
        if rows == 0:
            return
        step = rows // _SAMPLE + 1
        some, more = keys[::step], values[::step]
        seen = sum(map(len, some)) + sum(map(len, filter(None, more)))
        self._bytes += seen * rows // len(some)
        self._rows += rows
        if self._rows > _MEMORY_ROWS:
            self._bytes //= 2
            self._rows //= 2

    @property
    def row_bytes(self) -> int:
        """Bytes of one row in memory, overhead included."""
        return ROW_OVERHEAD_BYTES + (self._bytes // self._rows if self._rows else 0)


class TwoGenerations:
    """A read cache in two dicts: what is used moves to the young one, the old one is dropped whole.

    ``young`` may be read and updated directly; call ``trim`` afterwards.
    """

    __slots__ = ("_limit_bytes", "_limit_bytes_max", "_size", "old", "young")

    def __init__(self, limit_bytes: int, size: RowSize) -> None:
        self.young: dict[bytes, Entry | None] = {}
        self.old: dict[bytes, Entry | None] = {}
        self._limit_bytes = self._limit_bytes_max = limit_bytes
        self._size = size

    def trim(self) -> None:
        """Let the old generation go when the young one has grown to half of the limit."""
        if 2 * len(self.young) * self._size.row_bytes > self._limit_bytes:
            self.old = self.young if self._limit_bytes else {}
            self.young = {}

    def limit(self, part: float) -> None:
        """Take this part of the limit that it was made with, from now on."""
        self._limit_bytes = int(self._limit_bytes_max * part)
        if (len(self.young) + len(self.old)) * self._size.row_bytes > self._limit_bytes:
            self.clear()

    def clear(self) -> None:
        self.young = {}
        self.old = {}
