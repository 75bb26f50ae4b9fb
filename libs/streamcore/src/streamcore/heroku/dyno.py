"""The dyno: where a process runs, what it is called there, and which settings suit it.

Of ``DYNO`` only the text counts. ``worker.1`` may belong to two processes while one replaces the
other, and the platform's next generation writes ``worker-23z34x56y-w78k9``: it is a name to look
at, never an identity.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

MIB: Final = 1024 * 1024
RAM_MB: Final = 512
"""Memory of the smaller dynos, for where ``DYNO_RAM`` does not say."""

# Who starts processes on a laptop names them like this.
_LOCAL_NAMES: Final = ("FOREMAN_WORKER_NAME", "HONCHO_PROCESS_NAME")
_METRICS_LOG_INTERVAL_MS: Final = 20_000  # as often as the platform tells its own
_PARENT_BYTES: Final = 64 * MIB  # of the process above several workers
_CACHE_BYTES: Final = (8 * MIB, 128 * MIB)


def on_heroku(environ: Mapping[str, str]) -> bool:
    """Return whether this process runs on a dyno."""
    return bool(environ.get("DYNO"))


def app_name(environ: Mapping[str, str]) -> str | None:
    """Return the name of the app, which is known where the platform's metadata is switched on."""
    return environ.get("HEROKU_APP_NAME") or None


def release_of(environ: Mapping[str, str]) -> dict[str, str]:
    """Return app, release and commit, as far as the platform tells (it does where it was asked to).

    >>> release_of({"HEROKU_APP_NAME": "sushi", "HEROKU_RELEASE_VERSION": "v7"})
    {'app': 'sushi', 'release': 'v7'}
    """
    names = {
        "app": ("HEROKU_APP_NAME",),
        "release": ("HEROKU_RELEASE_VERSION",),
        "commit": ("HEROKU_BUILD_COMMIT", "HEROKU_SLUG_COMMIT"),
    }
    found = {what: next(filter(None, map(environ.get, of)), "") for what, of in names.items()}
    return {what: value for what, value in found.items() if value}


def engine_defaults(environ: Mapping[str, str], processes: int = 1) -> dict[str, Any]:
    """Return what suits this place better than the engine's own defaults, by setting.

    Nothing but a name away from dynos. ``processes`` workers share the dyno's memory.

    >>> engine_defaults({"HONCHO_PROCESS_NAME": "sink_worker.1"})
    {'instance': 'sink_worker.1'}
    """
    if not on_heroku(environ):
        names = (environ.get(name) for name in _LOCAL_NAMES)
        return next(({"instance": _legal(name)} for name in names if name), {})
    ram_bytes = _ram_mb(environ) * MIB
    return {
        "instance": _legal(environ["DYNO"]),
        "log_format": "logfmt",
        "metrics_log_interval_ms": _METRICS_LOG_INTERVAL_MS,
        "memory_limit_bytes": _limit_bytes(ram_bytes, processes),
        "cache_max_bytes": _cache_bytes(ram_bytes, processes),
    }


def _ram_mb(environ: Mapping[str, str]) -> int:
    text = environ.get("DYNO_RAM", "")
    return int(text) if re.fullmatch(r"[1-9][0-9]{0,6}", text) else RAM_MB


def _limit_bytes(ram_bytes: int, processes: int) -> int:
    """Some of the quota is left for what comes between two looks at the memory."""
    limit_bytes = ram_bytes * 9 // 10
    if processes <= 1:
        return limit_bytes
    return max(_PARENT_BYTES, (limit_bytes - _PARENT_BYTES) // processes)


def _cache_bytes(ram_bytes: int, processes: int) -> int:
    """A sixteenth: what Python makes of cached bytes is several times as much."""
    smallest, largest = _CACHE_BYTES
    return max(smallest, min(largest, ram_bytes // 16 // max(1, processes)))


def _legal(name: str) -> str:
    """Return the name with what Kafka does not allow in client ids replaced."""
    return re.sub(r"[^a-zA-Z0-9._-]", "-", name)
