"""The memory of this process: how much is resident, and caches that shrink while that is too much.

Platforms that give a process a quota let it swap, or kill it, once it is over that. Caches are what
can be given back without harm: commits come earlier, and more keys are looked up on the disk.
"""

import ctypes
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import structlog

LOOK_S = 0.25
GROW_S = 30.0
"""How long memory must have been enough before caches grow again by one step."""
ENOUGH = 0.9
"""The part of the limit under which it is."""
SMALLEST = 16
"""Caches keep this part of their setting (one sixteenth) however short memory is."""

_STATM = Path("/proc/self/statm")

_log = structlog.get_logger("streamcore.app")


def rss_bytes() -> int:
    """Return the resident memory of this process; where nobody tells, the most it ever had."""
    try:
        return int(_STATM.read_bytes().split()[1]) * resource.getpagesize()
    except (OSError, ValueError, IndexError):
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def give_back() -> None:
    """Return freed memory to the system, which the allocator keeps for later by itself."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


class Caches(Protocol):
    """What can be made smaller."""

    limit_bytes: int

    @property
    def taken_bytes(self) -> int: ...

    def limit(self, limit_bytes: int) -> None: ...


class SoftLimit:
    """Halves the caches while memory is over its limit, and lets them grow back slowly."""

    def __init__(
        self,
        limit_bytes: int | None,
        caches: Caches,
        rss: Callable[[], int] = rss_bytes,
        monotonic_s: Callable[[], float] = time.monotonic,
        release: Callable[[], None] = give_back,
    ) -> None:
        """``limit_bytes`` None: memory is looked at, and nothing follows."""
        self._limit_bytes = limit_bytes
        self._caches = caches
        self._cache_max_bytes = self._cache_bytes = caches.limit_bytes
        self._rss = rss
        self._monotonic_s = monotonic_s
        self._release = release
        self._looked_s = float("-inf")
        self._changed_s = float("-inf")
        self.rss_bytes = 0
        """As of the last look."""

    def look(self) -> bool:
        """Look if it is time, and do what follows; False if it is too early.

        Each change is told once, with its numbers.
        """
        now_s = self._monotonic_s()
        if now_s < self._looked_s + LOOK_S:
            return False
        self._looked_s = now_s
        self.rss_bytes = self._rss()
        if self._limit_bytes is None:
            return True
        if self.rss_bytes > self._limit_bytes:
            self._short(now_s)
        elif self._cache_bytes < self._cache_max_bytes:
            self._enough(now_s, self.rss_bytes < ENOUGH * self._limit_bytes)
        return True

    def _short(self, now_s: float) -> None:
        before_bytes = self._cache_bytes
        half_bytes = min(before_bytes, self._caches.taken_bytes) // 2
        self._cache_bytes = max(self._cache_max_bytes // SMALLEST, half_bytes)
        self._caches.limit(self._cache_bytes)
        self._release()
        self._changed_s = now_s
        if self._cache_bytes < before_bytes:
            _log.warning("memory is short, caches shrink", **self._numbers())

    def _enough(self, now_s: float, room: bool) -> None:
        grows = room and now_s >= self._changed_s + GROW_S
        if grows:
            step_bytes = max(1, self._cache_max_bytes // SMALLEST)
            self._cache_bytes = min(self._cache_max_bytes, self._cache_bytes + step_bytes)
            self._changed_s = now_s
        self._caches.limit(self._cache_bytes)  # tasks may have come since the last look
        if grows and self._cache_bytes == self._cache_max_bytes:
            _log.info("memory is enough again, caches have their size", **self._numbers())

    def _numbers(self) -> dict[str, int | None]:
        return {
            "rss_bytes": self.rss_bytes,
            "limit_bytes": self._limit_bytes,
            "cache_bytes": self._cache_bytes,
        }
