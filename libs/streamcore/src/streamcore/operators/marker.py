"""What crosses a repartition topic beside the records: markers with marks, and clocks in headers.

A marker is a record with a null key, a null value and one header. It tells what the mark of one
upstream task is; because Kafka keeps a producer's order within a partition, no record that would
contradict it can follow. A clock header travels only with a record that came out of order at its
source and whose clock could decide whether it is late.
"""

import struct
from typing import NamedTuple

from streamcore.model import Headers, Send
from streamcore.operators.watermark import Mark

MARKER_HEADER = "sc-mark"
CLOCK_HEADER = "sc-clock"

_MARKER = struct.Struct(">iiqB")
_CLOCK = struct.Struct(">q")


class Marker(NamedTuple):
    """The mark of upstream task number ``task`` of ``tasks``."""

    task: int
    tasks: int
    mark: Mark


def marker_send(topic: str, partitions: int, marker: Marker, now_ms: int) -> Send:
    """Return the same marker for every partition of the topic.

    The records carry the wall clock, so that a segment of old records that holds one is not
    deleted by a retention that looks at record times.
    """
    payload = _MARKER.pack(marker.task, marker.tasks, marker.mark.ms, marker.mark.idle)
    headers: Headers = ((MARKER_HEADER, payload),)
    nothing = [None] * partitions
    return Send(
        topic,
        nothing,
        nothing,
        [now_ms] * partitions,
        headers=[headers] * partitions,
        partition=list(range(partitions)),
    )


def read_marker(headers: Headers | None) -> Marker | None:
    """Return the marker that a null-key record's headers hold, or None if it is none of ours."""
    for name, payload in headers or ():
        if name == MARKER_HEADER and payload is not None and len(payload) == _MARKER.size:
            task, tasks, ms, idle = _MARKER.unpack(payload)
            return Marker(task, tasks, Mark(ms, bool(idle)))
    return None


def add_clock(headers: Headers, clock_ms: int) -> Headers:
    """Return the headers with the record's clock at the end."""
    return (*headers, (CLOCK_HEADER, _CLOCK.pack(clock_ms)))


def take_clocks(
    headers: list[Headers], stamps_ms: list[int]
) -> tuple[list[int], list[Headers] | None]:
    """Return each record's clock (its stamp where no header says more) and the other headers.

    Without any clock the clocks are the very list of the stamps.
    """
    clocks_ms, rest = stamps_ms, headers
    for row, own in enumerate(headers):
        if not own:
            continue
        for name, payload in own:
            if name == CLOCK_HEADER and payload is not None and len(payload) == _CLOCK.size:
                if clocks_ms is stamps_ms:
                    clocks_ms, rest = list(stamps_ms), list(headers)
                clocks_ms[row] = max(stamps_ms[row], _CLOCK.unpack(payload)[0])
                rest[row] = tuple(pair for pair in own if pair[0] != CLOCK_HEADER)
    return clocks_ms, (rest if any(rest) else None)
