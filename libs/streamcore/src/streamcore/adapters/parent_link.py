"""ParentLink: how a worker process and the parent that started it hear of each other.

One socket joins them. The child writes a line of JSON about once a second; the parent writes
nothing, so all that a child can read is the end of its parent. Both ends are in this module.
"""

import json
import os
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, Self

import structlog

from streamcore.errors import ConfigError
from streamcore.runtime.metrics import Name, Sample
from streamcore.runtime.restore import Lag

VARIABLE = (
    "_STREAMCORE_WORKER"  # not STREAMCORE_: that is for settings, and strange ones are refused
)
INTERVAL_S = 1.0
LINE_BYTES_MAX = 16 << 20

Lags = Mapping[str, Mapping[int, Lag]]
"""Store -> partition -> how far it is behind."""


class Snapshot(NamedTuple):
    """What a worker process told last. ``samples`` are labelled with its number already."""

    samples: tuple[Sample, ...]
    lags: Lags


class ParentLink:
    """The child's end."""

    def __init__(self, number: int, end: socket.socket) -> None:
        self.number = number
        self._socket = end
        self._rest = memoryview(b"")
        self._next_s = time.monotonic() + INTERVAL_S
        end.setblocking(False)
        end.set_inheritable(False)  # programs that user code starts have no part in it

    @classmethod
    def inherited(cls, group: str) -> Self | None:
        """Return the link if a parent started this process as a worker of the group, else None.

        :raises ConfigError: if it was to be a worker of another group.
        """
        found = os.environ.get(VARIABLE)
        if found is None:
            return None
        number, descriptor, wanted = found.split(" ", 2)
        if wanted != group:
            problem = (
                f"this process was started to be a worker of {wanted}, and runs {group}; "
                "num_stream_threads must be 1 in a program that runs several applications"
            )
            raise ConfigError([problem])
        del os.environ[VARIABLE]
        return cls(int(number), socket.socket(fileno=int(descriptor)))

    def __enter__(self) -> Self:
        structlog.contextvars.bind_contextvars(worker=self.number)
        return self

    def __exit__(self, *_: object) -> None:
        structlog.contextvars.unbind_contextvars("worker")
        self._socket.close()

    def fileno(self) -> int:
        """Return the descriptor, which becomes readable when the parent has ended."""
        return self._socket.fileno()

    def ready(self) -> None:
        """Say that signals are heeded from here on."""
        self._write(b"{}\n")

    def tell(
        self, samples: Callable[[], Iterable[Sample]], lags: Lags, *, at_once: bool = False
    ) -> None:
        """Tell the parent how we stand, about once a second, or ``at_once``; never waits.

        While the parent has not read the last line there is no new one, so nothing piles up.
        """
        now_s = time.monotonic()
        if now_s < self._next_s and not at_once:
            return
        self._next_s = now_s + INTERVAL_S
        self._write(b"")
        if not self._rest:
            self._write(_encoded(samples(), lags))

    def _write(self, line: bytes) -> None:
        if line:
            self._rest = memoryview(line)
        try:
            while self._rest:
                self._rest = self._rest[self._socket.send(self._rest) :]
        except BlockingIOError:
            pass
        except OSError:  # it is gone, and whoever reads the socket hears of it
            self._rest = memoryview(b"")


class ChildLink:
    """The parent's end: the newest snapshot of one child."""

    def __init__(self, number: int, end: socket.socket) -> None:
        self._number = number
        self._socket = end
        self._buffer = b""
        self.ready = False
        self.snapshot = Snapshot((), {})
        end.setblocking(False)

    @classmethod
    def pair(cls, number: int) -> tuple[Self, socket.socket]:
        """Return our end and the child's."""
        ours, theirs = socket.socketpair()
        return cls(number, ours), theirs

    def fileno(self) -> int:
        return self._socket.fileno()

    def read(self) -> bool:
        """Take in what came; False at the end."""
        try:
            while data := self._socket.recv(1 << 16):
                self._buffer += data
                self._take_lines()
        except BlockingIOError:
            return True
        except OSError:
            pass
        return False

    def close(self) -> None:
        self._socket.close()

    def _take_lines(self) -> None:
        complete, end, rest = self._buffer.rpartition(b"\n")
        if not end:
            assert len(self._buffer) <= LINE_BYTES_MAX, "a worker process writes a line without end"
            return
        self._buffer = rest
        self.ready = True
        newest = json.loads(complete.rpartition(b"\n")[2])
        if newest:
            self.snapshot = _decoded(newest, str(self._number))


def variable(group: str, number: int, child_end: socket.socket) -> dict[str, str]:
    """Return the environment variable by which a child finds its end."""
    return {VARIABLE: f"{number} {child_end.fileno()} {group}"}


def _encoded(samples: Iterable[Sample], lags: Lags) -> bytes:
    told = {
        "samples": list(samples),
        "lags": [
            (store, partition, lag.position, lag.end)
            for store, by_partition in lags.items()
            for partition, lag in by_partition.items()
        ],
    }
    return json.dumps(told, separators=(",", ":")).encode() + b"\n"


def _decoded(told: Mapping[str, Any], worker: str) -> Snapshot:
    return Snapshot(
        tuple(_labelled(told["samples"], worker)),
        _nested((store, partition, Lag(*lag)) for store, partition, *lag in told["lags"]),
    )


def _labelled(
    rows: Iterable[tuple[Name, list[tuple[str, str]], float]], worker: str
) -> Iterator[Sample]:
    for name, labels, value in rows:
        yield Sample(name, (*((key, text) for key, text in labels), ("worker", worker)), value)


def _nested(lags: Iterable[tuple[str, int, Lag]]) -> Lags:
    found: dict[str, dict[int, Lag]] = {}
    for store, partition, lag in lags:
        found.setdefault(store, {})[partition] = lag
    return found


def merged(all_lags: Iterable[Lags]) -> Lags:
    """Return the lags of several workers as one; of two for one partition, the nearest."""
    found: dict[str, dict[int, Lag]] = {}
    for lags in all_lags:
        for store, by_partition in lags.items():
            known = found.setdefault(store, {})
            for partition, lag in by_partition.items():
                known[partition] = min(known.get(partition, lag), lag, key=lambda one: one.records)
    return found
