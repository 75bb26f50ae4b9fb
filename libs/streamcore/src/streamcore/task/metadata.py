"""What a task keeps in the metadata of its committed offsets: clocks, upstream marks, watermarks.

The broker refuses a commit with more than 4,095 characters of metadata, every time, so the text is
packed: Base64 over a version byte and variable-length integers. A source partition has one clock; a
repartition partition the marks of its upstream tasks, as distances from the highest. Both carry the
watermarks of the task's time-keeping operators in the order in which they were compiled, so that a
task with several inputs finds them whichever input is committed.

Kafka Streams' own metadata (version 1 and 2) is understood when read: its partition time becomes
the clock, so that an application can be taken over from Java.
"""

import base64
import binascii
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from streamcore.errors import TopologyError
from streamcore.model import NO_TIME_MS

LIMIT_CHARACTERS = 4_000
"""Where we stop; the broker's limit is 4,095."""

_VERSION = 0x53
_JAVA_VERSIONS = (1, 2)
_INT_BYTES_MAX = 7  # distances in ms below 2**49


@dataclass(frozen=True, slots=True)
class TimeState:
    """The event time of one input partition, and the watermarks of its task's operators."""

    clock_ms: int = NO_TIME_MS
    upstream_ms: tuple[int, ...] = ()
    watermarks_ms: tuple[int, ...] = field(default=())
    moved_ms: int = 0  # wall clock when the watermarks last moved; 0: not known


def encode(state: TimeState) -> str:
    """Return the metadata text.

    >>> decode(encode(TimeState(7, (3, -1), (5,)))).upstream_ms
    (3, -1)
    """
    top_ms = max(state.upstream_ms, default=NO_TIME_MS)
    numbers = [state.clock_ms + 1, len(state.upstream_ms), top_ms + 1]
    numbers += [top_ms - ms for ms in state.upstream_ms]
    numbers.append(len(state.watermarks_ms))
    numbers += [ms + 1 for ms in state.watermarks_ms]
    numbers.append(state.moved_ms)
    packed = bytearray([_VERSION])
    for number in numbers:
        _put(packed, number)
    return base64.b64encode(packed).decode("ascii")


def decode(text: str) -> TimeState:
    """Return what the text holds; empty where it is none of ours and none of Kafka Streams'."""
    try:
        packed = base64.b64decode(text.rstrip("\0"), validate=True)
    except (binascii.Error, ValueError):
        return TimeState()
    if packed[:1] and packed[0] in _JAVA_VERSIONS and len(packed) >= 9:
        return TimeState(int.from_bytes(packed[1:9], "big", signed=True))
    if packed[:1] != bytes([_VERSION]):
        return TimeState()
    numbers = _Numbers(packed[1:])
    limit = len(packed)  # a count above it is no count of ours
    clock_ms = next(numbers) - 1
    upstream_count, top_ms = next(numbers), next(numbers) - 1
    upstream = [next(numbers) for _ in range(min(upstream_count, limit))]
    watermarks_ms = [next(numbers) - 1 for _ in range(min(next(numbers), limit))]
    return TimeState(
        clock_ms,
        tuple(top_ms - number for number in upstream),
        tuple(watermarks_ms),
        next(numbers),
    )


def check_size(topic: str, upstream_tasks: int, operators: int) -> None:
    """Refuse a topology whose metadata could outgrow what the broker takes.

    :raises TopologyError: if it could pass 4,000 characters.
    """
    worst_bytes = 1 + _INT_BYTES_MAX * (5 + upstream_tasks + operators)
    characters = (worst_bytes + 2) // 3 * 4
    if characters > LIMIT_CHARACTERS:
        raise TopologyError(
            f"{topic}: {upstream_tasks} upstream tasks and {operators} time-keeping operators need "
            f"up to {characters} characters of offset metadata, the broker takes 4,095; "
            "use fewer partitions upstream or split the topology"
        )


def latest(states: Iterable[TimeState], operators: int) -> list[int]:
    """Return each operator's watermark: the highest that any input's metadata knows."""
    found = [NO_TIME_MS] * operators
    for state in states:
        known: Sequence[int] = state.watermarks_ms
        if len(known) == operators:
            found = [max(pair) for pair in zip(found, known, strict=True)]
    return found


def _put(packed: bytearray, number: int) -> None:
    assert number >= 0, number
    while number > 0x7F:
        packed.append(number & 0x7F | 0x80)
        number >>= 7
    packed.append(number)


class _Numbers:
    """The integers of a packed text, one after the other; zeros behind its end."""

    def __init__(self, packed: bytes) -> None:
        self._packed = packed
        self._at = 0

    def __next__(self) -> int:
        number = shift = 0
        while self._at < len(self._packed):
            byte = self._packed[self._at]
            self._at += 1
            number |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        return number
