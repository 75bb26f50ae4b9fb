"""External sinks: rows are gathered and handed to the user's store at the commit."""

from collections import deque
from collections.abc import Mapping

from streamcore.model import Position, Rows, TopicPartition
from streamcore.operators.watermark import Mark
from streamcore.topology.external import ExternalBatch, ExternalStore


class External:
    """Feeds the ExternalStore of one task.

    Rows wait until the commit; ``write_out`` hands them over and commits the positions behind them.
    It may fail while the store is away: nothing is lost, the next call goes on where it stopped.
    """

    def __init__(self, store: ExternalStore) -> None:
        self._store = store
        self._waiting: deque[ExternalBatch] = deque()
        self._topic_ids: Mapping[TopicPartition, str] = {}
        self._committed: dict[TopicPartition, Position] = {}

    def start(self, topic_ids: Mapping[TopicPartition, str]) -> Mapping[TopicPartition, Position]:
        """Return the positions that the store holds for the inputs, given their topics' ids.

        :raises RetriableError: if the store is away.
        """
        self._topic_ids = dict(topic_ids)
        self._committed = dict(self._store.positions(self._topic_ids))
        return self._committed

    def process(self, rows: Rows) -> None:
        assert rows.source is not None, "rows without a source reach an external sink"
        assert rows.offsets is not None, "rows without offsets reach an external sink"
        if len(rows):
            self._waiting.append(
                ExternalBatch(
                    rows.source,
                    self._topic_ids.get(rows.source, ""),
                    rows.offsets,
                    rows.keys,
                    rows.values,
                    rows.stamps_ms,
                )
            )

    def flush(self) -> None:
        return None

    def advance(self, mark: Mark, now_ms: int) -> Mark:  # noqa: ARG002
        return mark

    def write_out(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Write what waits, then commit the offsets, as the store's contract says.

        :raises RetriableError: if the store is away.
        :raises RecordError: if a row can never be stored.
        """
        while self._waiting:
            self._store.write(self._waiting[0])
            self._waiting.popleft()
        positions = {
            partition: Position(offset, self._topic_ids.get(partition, ""))
            for partition, offset in offsets.items()
        }
        if positions != self._committed:
            self._store.commit(positions)
            self._committed = positions

    def committed(self) -> None:
        return None

    def close(self) -> None:
        self._store.close()

    @property
    def live_entries(self) -> int:
        return sum(len(batch) for batch in self._waiting)
