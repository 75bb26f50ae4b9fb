"""What crosses a repartition topic beside the records: markers with marks, and clocks in headers.

A marker is a record with a null key, a null value and one header. It tells what the mark of one
upstream task is; because Kafka keeps a producer's order within a partition, no record that would
contradict it can follow. A clock header travels only with a record that came out of order at its
source and whose clock could decide whether it is late.
"""

import struct
from collections.abc import Sequence
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
    headers: Sequence[Headers], stamps_ms: Sequence[int]
) -> tuple[list[int], list[Headers] | None]:
    """Return each record's clock (its stamp where no header says more) and the other headers."""
    clocks: list[int] = []
    rest: list[Headers] = []
    for own, stamp_ms in zip(headers, stamps_ms, strict=True):
        clock_ms = stamp_ms
        kept = own
        for name, payload in own:
            if name == CLOCK_HEADER and payload is not None and len(payload) == _CLOCK.size:
                clock_ms = max(clock_ms, _CLOCK.unpack(payload)[0])
                kept = tuple(pair for pair in own if pair[0] != CLOCK_HEADER)
        clocks.append(clock_ms)
        rest.append(kept)
    return clocks, (rest if any(rest) else None)
