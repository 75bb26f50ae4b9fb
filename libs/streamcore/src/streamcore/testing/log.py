"""A partition as a list: records, and how many of them are not part of an open transaction."""

from dataclasses import dataclass

from streamcore.model import Headers


@dataclass(frozen=True, slots=True)
class Entry:
    """One record as bytes."""

    key: bytes | None
    value: bytes | None
    stamp_ms: int
    headers: Headers = ()


class Log:
    """Records in order. What is appended unstable can be taken back until ``settle``."""

    def __init__(self) -> None:
        self._entries: list[Entry] = []
        self._stable = 0

    def append(self, entry: Entry, *, stable: bool) -> None:
        self._entries.append(entry)
        if stable:
            self._stable = len(self._entries)

    def readable(self, committed_only: bool) -> list[Entry]:
        """Return what a reader sees."""
        return self._entries[: self._stable] if committed_only else self._entries

    def committed(self) -> list[Entry]:
        return self._entries[: self._stable]

    def settle(self) -> None:
        """The transaction is committed."""
        self._stable = len(self._entries)

    def abort(self) -> None:
        """The transaction is aborted."""
        del self._entries[self._stable :]

    def __len__(self) -> int:
        return len(self._entries)
