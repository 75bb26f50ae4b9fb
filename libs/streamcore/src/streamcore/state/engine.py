"""Engine: ordered bytes under a store. LevelDB and memory implement it; stores know nothing else.

One engine holds one store of one task. Byte order is the order of ``range``. ``write`` is atomic:
values and the changelog position land together or not at all, so a position never lies.
"""

from collections.abc import Iterable, Iterator
from typing import Protocol

from streamcore.model import Position


class Engine(Protocol):
    """Ordered bytes, a position, nothing more. Called by one thread."""

    def get(self, key: bytes) -> bytes | None:
        """Return the value of ``key``, or None."""

    def range(self, start: bytes, stop: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        """Yield (key, value) with ``start <= key < stop`` in byte order; None: to the end.

        Sees the state at the call; writes made while it runs do not show.
        """

    def write(
        self, changes: Iterable[tuple[bytes, bytes | None]], position: Position | None
    ) -> None:
        """Apply all changes (None deletes) and note the position, in one atomic batch.

        ``position`` None leaves the noted one as it is.
        """

    def position(self) -> Position | None:
        """Return the changelog position noted last, or None for a new store."""

    def compact(self, start: bytes, stop: bytes) -> None:
        """Give back the room of what was deleted in [start, stop)."""

    def size_bytes(self) -> int:
        """Return about how many bytes the store takes where it lives."""

    def close(self) -> None:
        """Give up the store; later calls are bugs. Closing twice is harmless."""
