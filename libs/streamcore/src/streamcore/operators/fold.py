"""Folds: what an aggregation has gathered since the last commit, per window, in live objects.

A fold is the overlay of an aggregate operator. ``CountFold`` keeps increments alone and asks the
store for the old count once, when it is emptied: a row then costs a dictionary update in C.
``UserFold`` needs the old aggregate at a key's first row. Keys are the bytes that the store uses.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from streamcore.model import NO_TIME_MS, Headers

Load = Callable[[Sequence[bytes]], list[tuple[bytes, int] | None]]
"""Old (value bytes, stamp) of each key, from the store; None where there is none."""


class Fold(Protocol):
    """The changed keys of one window (or of an unwindowed table) since the last commit."""

    def add(
        self,
        keys: list[bytes],
        key_objects: list[Any],
        values: list[Any],
        stamps_ms: list[int],
        headers: list[Headers] | None,
    ) -> None:
        """Fold rows in, in order."""

    def empty(self) -> tuple[list[bytes], list[Any], list[int], list[Headers] | None]:
        """Return changed keys with their new aggregates, stamps and headers; the fold is done."""

    def __len__(self) -> int:
        """Return how many keys have changed."""


class _Touched:
    """Stamp (the highest) and headers (the last record's) of each changed key."""

    __slots__ = ("headers", "newest_ms", "stamps_ms")

    def __init__(self) -> None:
        self.stamps_ms: dict[bytes, int] = {}
        self.headers: dict[bytes, Headers] | None = None
        self.newest_ms = NO_TIME_MS

    def add(self, keys: list[bytes], stamps_ms: list[int], headers: list[Headers] | None) -> None:
        if stamps_ms[0] >= self.newest_ms and _in_order(stamps_ms):
            self.stamps_ms.update(zip(keys, stamps_ms, strict=True))
            self.newest_ms = stamps_ms[-1]
        else:
            known = self.stamps_ms
            for key, stamp_ms in zip(keys, stamps_ms, strict=True):
                if known.get(key, NO_TIME_MS) < stamp_ms:
                    known[key] = stamp_ms
            self.newest_ms = max(self.newest_ms, *stamps_ms)
        if headers is not None:
            if self.headers is None:
                self.headers = {}
            self.headers.update(zip(keys, headers, strict=True))
        elif self.headers:
            for key in keys:
                self.headers.pop(key, None)

    def headers_of(self, keys: list[bytes]) -> list[Headers] | None:
        if not self.headers:
            return None
        return [self.headers.get(key, ()) for key in keys]


class CountFold:
    """Increments since the last commit; ``base`` gives the counts before them."""

    __slots__ = ("_decode", "_increments", "_load", "_touched")

    def __init__(self, load: Load, decode: Callable[[bytes], Any]) -> None:
        self._increments: Counter[bytes] = Counter()
        self._touched = _Touched()
        self._load = load
        self._decode = decode

    def add(
        self,
        keys: list[bytes],
        key_objects: list[Any],  # noqa: ARG002 - a count looks at nothing but the key
        values: list[Any],  # noqa: ARG002
        stamps_ms: list[int],
        headers: list[Headers] | None,
    ) -> None:
        self._increments.update(keys)
        self._touched.add(keys, stamps_ms, headers)

    def empty(self) -> tuple[list[bytes], list[Any], list[int], list[Headers] | None]:
        keys = list(self._increments)
        touched = self._touched
        stamps_ms = [touched.stamps_ms[key] for key in keys]
        counts: list[Any] = list(self._increments.values())
        decode = self._decode
        for row, old in enumerate(self._load(keys)):
            if old is not None:
                counts[row] += decode(old[0])
                stamps_ms[row] = max(stamps_ms[row], old[1])
        return keys, counts, stamps_ms, touched.headers_of(keys)

    def __len__(self) -> int:
        return len(self._increments)


class UserFold:
    """Aggregates of a user's function, as live objects until the commit.

    An aggregate that becomes None is gone, with its stamp: the next record of its key begins anew.
    """

    __slots__ = ("_adder", "_aggregates", "_decode", "_headers", "_initial", "_load", "_stamps_ms")

    def __init__(
        self,
        load: Load,
        decode: Callable[[bytes], Any],
        initial: Callable[[], Any],
        adder: Callable[[Any, Any, Any], Any],
    ) -> None:
        self._aggregates: dict[bytes, Any] = {}
        self._stamps_ms: dict[bytes, int] = {}
        self._headers: dict[bytes, Headers] = {}
        self._load = load
        self._decode = decode
        self._initial = initial
        self._adder = adder

    def add(
        self,
        keys: list[bytes],
        key_objects: list[Any],
        values: list[Any],
        stamps_ms: list[int],
        headers: list[Headers] | None,
    ) -> None:
        aggregates, adder, initial = self._aggregates, self._adder, self._initial
        known_ms = self._stamps_ms
        self._bring_in([key for key in dict.fromkeys(keys) if key not in aggregates])
        for key, key_object, value, stamp_ms in zip(
            keys, key_objects, values, stamps_ms, strict=True
        ):
            old = aggregates[key]
            if old is None:
                old, known_ms[key] = initial(), stamp_ms
            elif known_ms[key] < stamp_ms:
                known_ms[key] = stamp_ms
            aggregates[key] = adder(key_object, value, old)
        if headers is not None:
            self._headers.update(zip(keys, headers, strict=True))
        elif self._headers:
            self._headers.update(dict.fromkeys(keys, ()))

    def _bring_in(self, keys: list[bytes]) -> None:
        for key, old in zip(keys, self._load(keys), strict=True):
            self._aggregates[key] = None if old is None else self._decode(old[0])
            if old is not None:
                self._stamps_ms[key] = old[1]

    def empty(self) -> tuple[list[bytes], list[Any], list[int], list[Headers] | None]:
        keys = list(self._aggregates)
        stamps_ms = [self._stamps_ms[key] for key in keys]
        headers = [self._headers.get(key, ()) for key in keys] if self._headers else None
        return keys, list(self._aggregates.values()), stamps_ms, headers

    def __len__(self) -> int:
        return len(self._aggregates)


def _in_order(stamps_ms: list[int]) -> bool:
    return stamps_ms == sorted(stamps_ms)
