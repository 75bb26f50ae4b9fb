"""MetricsLog: the numbers of a process as lines that l2met and its like read from the log.

``source=aggregator.1 count#streamcore.rows_processed=5000 sample#streamcore.lag_records=120``

One rule makes the names: ``streamcore_`` becomes ``streamcore.``, and ``_total`` goes. Counters are
told as differences since the last line (``count#``), times as ``measure#`` with ``ms``, all else as
``sample#``. The series of one metric become one number, so that lines stay bounded: the sum, of
times the largest; reasons stay apart and are part of the name. Event time is no duration, and is
left out; how far it is behind is told.
"""

import re
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import add
from typing import Self

from streamcore.runtime.metrics import Sample

LINE_BYTES_MAX = 9_500
COUNT, GAUGE, TIME = "count#", "sample#", "measure#"
KEPT_APART = "reason"
LEFT_OUT = frozenset({"streamcore_task_watermark_ms"})

_NOT_IN_SOURCES = re.compile(r"[^A-Za-z0-9._-]")
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._]")

Series = tuple[str, tuple[tuple[str, str], ...]]
Write = Callable[[str], object]


class MetricsLog:
    """Writes the lines, one time after the other; ``tell`` is called by one thread at a time."""

    def __init__(
        self, source: str, samples: Callable[[], Iterable[Sample]], write: Write | None = None
    ) -> None:
        self._source = f"source={_NOT_IN_SOURCES.sub('-', source)}"
        self._samples = samples
        self._write: Write = write or sys.stderr.write
        self._told: Mapping[Series, float] = {}

    def tell(self) -> None:
        """Write how things stand, as one line or more."""
        samples = [sample for sample in self._samples() if sample.name not in LEFT_OUT]
        line = self._source
        for part in self._parts(samples):
            if len(line) + len(part) + 1 > LINE_BYTES_MAX:
                self._write(f"{line}\n")
                line = self._source
            line = f"{line} {part}"
        if line != self._source:
            self._write(f"{line}\n")

    def _parts(self, samples: Iterable[Sample]) -> Iterator[str]:
        told: dict[Series, float] = {}
        found: dict[str, float] = {}
        for name, labels, value in samples:
            series, number = (name, labels), value
            if name.endswith("_total"):
                # A series that begins anew (its worker process was replaced) begins at nothing.
                before = self._told.get(series, 0)
                number = value - before if value >= before else value
                told[series] = value
            key = _key(name, labels)
            together = max if key.startswith(TIME) else add
            found[key] = together(found[key], number) if key in found else number
        self._told = {**self._told, **told}  # one that is away for a moment goes on where it was
        for key, number in sorted(found.items()):
            yield f"{key}={_number(number)}{'ms' if key.startswith(TIME) else ''}"


class MetricsLogThread:
    """Has the lines written at an interval while the context is open, and once more at its end."""

    def __init__(self, log: MetricsLog, interval_ms: int) -> None:
        self._log = log
        self._interval_s = interval_ms / 1_000
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="metrics-log", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(self._interval_s):
            self._log.tell()
        self._log.tell()


def _key(name: str, labels: Iterable[tuple[str, str]]) -> str:
    kind = COUNT if name.endswith("_total") else TIME if name.endswith("_ms") else GAUGE
    bare = name.removesuffix("_total").removeprefix("streamcore_")
    apart = "".join(f".{_NOT_IN_NAMES.sub('_', text)}" for key, text in labels if key == KEPT_APART)
    return f"{kind}streamcore.{bare}{apart}"


def _number(value: float) -> str:
    return f"{value:.3f}".rstrip("0").rstrip(".")
