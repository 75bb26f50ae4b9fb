"""MemoryEngine: the engine of stores that need no disk, and the model for the one that does."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import islice
from weakref import WeakSet

from streamcore.model import Position

_SIZED_ROWS = 1_000


class _Range:
    """Rows of one ``range``: read lazily, or copied just before somebody writes."""

    def __init__(self, keys: list[bytes], start: int, stop: int, data: dict[bytes, bytes]) -> None:
        self._keys = keys
        self._data = data
        self._next = start
        self._stop = stop

    def __iter__(self) -> Iterator[tuple[bytes, bytes]]:
        return self

    def __next__(self) -> tuple[bytes, bytes]:
        if self._next >= self._stop:
            raise StopIteration
        key = self._keys[self._next]
        self._next += 1
        return key, self._data[key]

    def freeze(self) -> None:
        """Keep what is left to read, whatever is written from now on."""
        self._keys = self._keys[self._next : self._stop]
        self._data = {key: self._data[key] for key in self._keys}
        self._next, self._stop = 0, len(self._keys)


class MemoryEngine:
    """A dict, and its keys in order once somebody asks for a range. Contract: ``state.engine``.

    It outlives the stores over it, as a folder would: a test that "restarts" keeps the object.
    """

    def __init__(self) -> None:
        self._data: dict[bytes, bytes] = {}
        self._sorted: list[bytes] = []
        self._stale = False
        self._position: Position | None = None
        self._reading: WeakSet[_Range] = WeakSet()
        self._closed = False

    def get(self, key: bytes) -> bytes | None:
        assert not self._closed, "the engine is closed"
        return self._data.get(key)

    def range(self, start: bytes, stop: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        assert not self._closed, "the engine is closed"
        if self._stale:
            self._sorted = sorted(self._data)
            self._stale = False
        keys = self._sorted
        end = len(keys) if stop is None else bisect_left(keys, stop)
        rows = _Range(keys, bisect_left(keys, start), end, self._data)
        self._reading.add(rows)
        return rows

    def write(
        self, changes: Iterable[tuple[bytes, bytes | None]], position: Position | None
    ) -> None:
        assert not self._closed, "the engine is closed"
        changes = list(changes)  # whoever makes them may fail half-way, or read from us
        for rows in list(self._reading):
            rows.freeze()
        self._reading.clear()
        data = self._data
        count = len(data)
        for key, value in changes:
            if value is not None:
                data[key] = value
            elif data.pop(key, None) is not None:
                self._stale = True
        self._stale = self._stale or len(data) != count
        if position is not None:
            self._position = position

    def position(self) -> Position | None:
        return self._position

    def compact(self, start: bytes, stop: bytes) -> None:
        """Nothing to do: a dict gives room back by itself."""

    def size_bytes(self) -> int:
        some = list(islice(self._data.items(), _SIZED_ROWS))  # asked often, and rows are alike
        size = sum(len(key) + len(value) for key, value in some)
        return size * len(self._data) // max(1, len(some))

    def close(self) -> None:
        self._closed = True

    def reopen(self) -> None:
        """Take the engine up again after ``close``, with all that was written."""
        self._closed = False
