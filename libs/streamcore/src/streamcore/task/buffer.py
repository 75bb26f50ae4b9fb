"""Buffers of a task's inputs, and the choice of what comes next.

Markers, faults and gaps are taken as soon as they are at the head. Among rows, the input whose head
has the lowest stamp goes first, and only as far as the other heads reach: a task with two inputs
then meets the same order as one that takes single records. An input that is empty but has not been
read to its end may still bring an older record: the task waits for it.
"""

from collections import deque
from collections.abc import Iterable, Mapping

from streamcore.model import TopicPartition
from streamcore.task.intake import Chunk, Item


class InputBuffer:
    """What waits of one input partition."""

    __slots__ = ("at_end", "items", "rows")

    def __init__(self) -> None:
        self.items: deque[Item] = deque()
        self.rows = 0
        self.at_end = False

    def add(self, items: Iterable[Item], *, at_end: bool) -> None:
        for item in items:
            self.items.append(item)
            if isinstance(item, Chunk):
                self.rows += item.rows
        self.at_end = at_end

    def put_back(self, chunks: list[Chunk]) -> None:
        """Lay chunks in front again that were taken."""
        self.items.extendleft(reversed(chunks))
        self.rows += sum(chunk.rows for chunk in chunks)

    @property
    def caught_up(self) -> bool:
        """True when everything up to the high watermark has been processed."""
        return self.at_end and not self.items

    def take(self, rows_max: int, stamp_limit_ms: int | None) -> Item:
        """Take the head item; of a chunk at most ``rows_max`` rows, none above the stamp limit."""
        item = self.items[0]
        if not isinstance(item, Chunk):
            return self.items.popleft()
        wanted = min(item.rows, rows_max)
        if stamp_limit_ms is not None:
            wanted = _prefix(item, wanted, stamp_limit_ms)
        self.rows -= wanted
        if wanted == item.rows:
            self.items.popleft()
        return item.take(wanted)


class Buffers:
    """The inputs of one task."""

    def __init__(self, inputs: Iterable[TopicPartition]) -> None:
        self._by_input = {partition: InputBuffer() for partition in inputs}

    def __getitem__(self, partition: TopicPartition) -> InputBuffer:
        return self._by_input[partition]

    def next(self, rows_max: int) -> tuple[TopicPartition, Item] | None:
        """Take what comes next, or None when there is nothing, or an input must be waited for."""
        heads: dict[TopicPartition, int] = {}
        waiting = False
        for partition, buffer in self._by_input.items():
            if not buffer.items:
                waiting = waiting or not buffer.at_end
                continue
            head = buffer.items[0]
            if not isinstance(head, Chunk):
                return partition, buffer.items.popleft()
            heads[partition] = head.stamps_ms[head.low]
        if not heads or (waiting and len(self._by_input) > 1):
            return None
        first = min(heads, key=lambda partition: heads[partition])  # of equals the one in front
        return first, self._by_input[first].take(rows_max, _limit_ms(heads, first))

    def over(self, rows_max: int) -> tuple[TopicPartition, ...]:
        """Return the inputs that hold more rows than this."""
        return tuple(p for p, buffer in self._by_input.items() if buffer.rows > rows_max)


def _limit_ms(heads: Mapping[TopicPartition, int], first: TopicPartition) -> int | None:
    """Return the highest stamp at which ``first`` would still be chosen; None: it is alone."""
    limits_ms, in_front = [], True
    for partition, stamp_ms in heads.items():
        if partition == first:
            in_front = False
        else:
            limits_ms.append(stamp_ms - in_front)
    return min(limits_ms, default=None)


def _prefix(chunk: Chunk, rows: int, limit_ms: int) -> int:
    """Return how many of the next rows, in order, do not pass the limit; one at least.

    The head itself never does: it is the lowest of all heads.
    """
    stamps_ms, low = chunk.stamps_ms, chunk.low
    for row in range(1, rows):
        if stamps_ms[low + row] > limit_ms:
            return row
    return rows
