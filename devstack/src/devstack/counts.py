"""The newest windows as they stand in PostgreSQL."""

import contextlib
import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg

_CONNECT_TIMEOUT_S = 3
_NEXT_WINDOW = """
    select window_start, window_end from windowed_counts
    where window_start < coalesce(%s, 'infinity'::timestamptz)
    order by window_start desc limit 1
"""
_TOP_WORDS = """
    select word, count from windowed_counts
    where window_start = %s and window_end = %s
    order by count desc, word limit %s
"""
_TOTALS = """
    select count(*), coalesce(sum(count), 0)::bigint from windowed_counts
    where window_start = %s and window_end = %s
"""
_NEWEST_CHANGE = "select max(updated_at) from windowed_counts where window_start >= %s"


@dataclass(frozen=True, slots=True)
class Window:
    """One window: its most frequent words, and how much there is in all."""

    start: datetime
    end: datetime
    top: tuple[tuple[str, int], ...]
    words: int
    counted: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The newest windows, newest first, and when one of them last changed."""

    windows: tuple[Window, ...]
    changed_at: datetime | None


class CountsReader:
    """Reads the sink's table; while the database is away it answers None and tries again."""

    def __init__(self, url: str, windows: int, words: int) -> None:
        # Some providers, and SQLAlchemy, spell the scheme in ways that the driver does not know.
        self._url = re.sub(r"^postgres(?:ql)?(?:\+\w+)?://", "postgresql://", url)
        self._windows = windows
        self._words = words
        self._connection: psycopg.Connection[Any] | None = None

    def now(self) -> datetime:
        """Return the time on the database's clock, the one that `updated_at` is taken from."""
        row = self._connected().execute("select clock_timestamp()").fetchone()
        assert row is not None
        found: datetime = row[0]
        return found

    def read(self) -> Snapshot | None:
        """Return the newest windows, or None while the database does not answer."""
        try:
            return self._read(self._connected())
        except (psycopg.OperationalError, psycopg.errors.UndefinedTable):
            self.close()
            return None

    def close(self) -> None:
        """Give the connection back."""
        if self._connection is not None:
            with contextlib.suppress(psycopg.Error):
                self._connection.close()
            self._connection = None

    def _connected(self) -> psycopg.Connection[Any]:
        if self._connection is None:
            self._connection = psycopg.connect(
                self._url, autocommit=True, connect_timeout=_CONNECT_TIMEOUT_S
            )
        return self._connection

    def _read(self, connection: psycopg.Connection[Any]) -> Snapshot:
        windows: list[Window] = []
        start = None
        for _ in range(self._windows):
            found = connection.execute(_NEXT_WINDOW, (start,)).fetchone()
            if found is None:
                break
            start, end = found
            top = connection.execute(_TOP_WORDS, (start, end, self._words)).fetchall()
            totals = connection.execute(_TOTALS, (start, end)).fetchone()
            assert totals is not None
            windows.append(Window(start, end, tuple(top), totals[0], totals[1]))
        changed = connection.execute(_NEWEST_CHANGE, (start,)).fetchone() if windows else None
        return Snapshot(tuple(windows), changed[0] if changed else None)
