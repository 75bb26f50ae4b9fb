"""What one cut of a store hands over: changed rows by column, ready for the changelog."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class Changes:
    """Rows that changed since the last cut, each key once, in changelog layout.

    The first ``expired_rows`` rows are tombstones of windows that the store forgot; they belong in
    the changelog only. The rows behind them are news for whoever is downstream; for a window
    store ``windows`` names them again as (start_ms, plain keys), in the same order.
    """

    keys: list[bytes] = field(default_factory=list)
    values: list[bytes | None] = field(default_factory=list)
    stamps_ms: list[int] = field(default_factory=list)
    expired_rows: int = 0
    windows: list[tuple[int, list[bytes]]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.keys)
