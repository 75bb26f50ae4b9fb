"""The port behind which a stream leaves Kafka: a database, a search index, a file.

``stream.to_store(supplier)`` ends a stream in an ``ExternalStore``. The engine makes one per task,
and one thread calls it, in this order::

    positions({partition: topic id})      when the task starts: where does reading begin?
    write(batch)                          any number of times, a batch per run of rows
    commit({partition: position})         at each commit, before the offsets go to Kafka
    close()                               at the end; whatever was not committed is forgotten

**Effectively once.** A store that keeps the positions of ``commit`` in one transaction with the
rows counts nothing twice and loses nothing, whatever dies when: after a crash the engine asks
``positions`` and reads from there. What the store answers wins over the offset that Kafka holds,
which may be behind it (a crash between the two commits) or ahead of it (a database that went back
to a backup); Kafka's offset counts for the partitions that the answer leaves out. A store that
cannot keep positions answers ``{}``, gets some rows twice after a crash, and must not mind.

**Older never overwrites.** The rows of a partition arrive in the order of their offsets, and after
a crash from an earlier offset again. A row with a lower offset of the same partition of the same
topic id is old news. Offsets of different partitions or topic ids cannot be compared: there, what
comes later wins. A topic that was deleted and made anew has another id, begins at offset 0, and its
rows win; positions of the old one are forgotten. An id of ``""`` means that the broker does not
tell: it is taken for the same topic.

**Errors.** After an error the same call again is safe: nothing is lost by it, nothing doubled.

- ``RetriableError``: the store is away or busy. The engine keeps its membership, pauses its inputs
  and makes the same call again, later and later. No call may wait longer than some ten seconds: a
  worker that is told to stop has to get through.
- ``RecordError`` (``ProcessingError`` fits), from ``write`` only: the row at that partition and
  offset can never be stored. The policy for processing errors decides about it. What ``write`` has
  accepted ``commit`` must be able to store, so rows are checked in ``write``.
- ``MemberFencedError``: another owner has asked for the positions since; nothing may be written
  here any more. A store with transactions should tell (by an epoch), for a worker that was frozen
  does not know that its partition is somebody else's.
- ``TaskCorruptedError``: the store is not where this task left it; the task begins anew with
  ``positions``.

Where the supplier's stream has state in front of it (a count, a join) in the same sub-topology, the
rows have no offsets of their own: send it through a topic first.

The least that keeps the contract, short of fencing; ``disk`` is what survives a crash:

>>> from streamcore.model import Position, TopicPartition
>>> class DictStore:
...     def __init__(self, disk):
...         self.disk, self.rows = disk, {}
...
...     def positions(self, partitions):
...         held = {at: self.disk["positions"].get(at) for at in partitions}
...         return {at: p for at, p in held.items() if p and p.topic_id == partitions[at]}
...
...     def write(self, batch):
...         self.rows.update(zip(batch.keys, batch.values))  # the last one of a key wins
...
...     def commit(self, positions):
...         self.disk["rows"].update(self.rows)  # a database does these two in one transaction
...         self.disk["positions"].update(positions)
...         self.rows = {}
...
...     def close(self):
...         self.rows = {}
>>> counts = TopicPartition("counts", 0)
>>> disk = {"rows": {}, "positions": {}}
>>> store = DictStore(disk)
>>> store.positions({counts: "id-1"})
{}
>>> keys = ["cat", "dog", "cat"]
>>> store.write(ExternalBatch(counts, "id-1", [0, 1, 3], keys, [1, 1, 2], [5, 6, 7]))
>>> store.commit({counts: Position(4, "id-1")})
>>> disk["rows"]
{'cat': 2, 'dog': 1}
>>> DictStore(disk).positions({counts: "id-1"})  # after a crash
{TopicPartition(topic='counts', partition=0): Position(offset=4, topic_id='id-1')}
>>> DictStore(disk).positions({counts: "id-2"})  # the topic was made anew
{}

``streamcore.testing.contracts.external_store`` has the suite that every store should pass, and
``streamcore.testing.external`` one in memory that does.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from streamcore.model import Position, TopicPartition


@dataclass(slots=True)
class ExternalBatch:
    """Rows for an external store, by column, all from one partition; row i is one record.

    ``source`` is named as on the broker (prefix included). ``offsets`` are those of the source
    records themselves, ascending; rows made of the same record share one. Values may be None.
    A store keeps no reference to the columns and changes none.
    """

    source: TopicPartition
    topic_id: str
    offsets: Sequence[int]
    keys: Sequence[Any]
    values: Sequence[Any]
    stamps_ms: Sequence[int]

    def __len__(self) -> int:
        return len(self.offsets)


class ExternalStore(Protocol):
    """Where a stream ends outside Kafka; the module's docstring has the contract."""

    def positions(
        self, partitions: Mapping[TopicPartition, str]
    ) -> Mapping[TopicPartition, Position]:
        """Return the next offset to read of the partitions that the store knows.

        ``partitions`` are those of the task with their topic ids; one that is unknown, or known
        under another topic id, is left out. From here on no earlier owner may write.

        :raises RetriableError: if the store is away.
        """

    def write(self, batch: ExternalBatch) -> None:
        """Take the rows; they may become visible now or at the next ``commit``.

        :raises RetriableError: if the store is away; the batch comes again.
        :raises RecordError: if a row can never be stored; nothing of the batch was taken.
        """

    def commit(self, positions: Mapping[TopicPartition, Position]) -> None:
        """Make everything written durable, and with it how far each partition was read.

        The positions lie behind the rows written, and may move without any. When the call has
        returned, the offsets are committed to Kafka.

        :raises RetriableError: if the store is away, or did not say whether it has committed; the
            same call again is safe.
        :raises MemberFencedError: if another owner has taken over.
        :raises TaskCorruptedError: if the store holds other positions than this task left there.
        """

    def close(self) -> None:
        """Forget what is not committed and let go. It never raises, also when called twice."""


StoreSupplier = Callable[[], ExternalStore]
"""Makes the store of one task; connections may be shared by all stores of a supplier."""
