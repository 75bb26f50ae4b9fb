"""What every external store must do, as a suite: subclass it and say how to open yours."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

import pytest

from streamcore.errors import Recovery, RetriableError, StreamsError
from streamcore.model import Position, TopicPartition
from streamcore.topology.external import ExternalBatch, ExternalStore

ONE = TopicPartition("counts", 0)
TWO = TopicPartition("counts", 1)
TOPIC_ID = "id-1"


class ExternalStoreContract(ABC):
    """Keys are words, values numbers; ``key`` and ``value`` make of them what the store takes."""

    @abstractmethod
    def open(self) -> ExternalStore:
        """Return a new store on the data of this test, as after a crash of the one before."""

    @abstractmethod
    def contents(self) -> Mapping[Any, Any]:
        """Return what a reader of the data sees: committed values by ``key``."""

    @abstractmethod
    def away(self) -> AbstractContextManager[None]:
        """Inside, the data cannot be reached; behind, it can again."""

    def key(self, word: str) -> Any:
        return word

    def value(self, number: int) -> Any:
        return number

    # --- what the tests say -------------------------------------------------------------------

    def started(
        self, *partitions: TopicPartition, topic_id: str = TOPIC_ID
    ) -> tuple[ExternalStore, Mapping[TopicPartition, Position]]:
        store = self.open()
        return store, store.positions(dict.fromkeys(partitions or (ONE,), topic_id))

    def rows(
        self,
        first: int,
        *pairs: tuple[str, int],
        source: TopicPartition = ONE,
        topic_id: str = TOPIC_ID,
    ) -> ExternalBatch:
        offsets = range(first, first + len(pairs))
        keys = [self.key(word) for word, _ in pairs]
        values = [self.value(number) for _, number in pairs]
        return ExternalBatch(source, topic_id, offsets, keys, values, [1_000] * len(pairs))

    def expect(self, **wanted: int) -> None:
        assert dict(self.contents()) == {
            self.key(word): self.value(number) for word, number in wanted.items()
        }

    # --- positions ----------------------------------------------------------------------------

    def test_a_new_store_knows_no_position(self) -> None:
        _, known = self.started(ONE, TWO)
        assert known == {}

    def test_rows_and_position_are_there_after_a_commit(self) -> None:
        store, _ = self.started()
        store.write(self.rows(0, ("cat", 1), ("dog", 2)))
        store.commit({ONE: Position(2, TOPIC_ID)})
        self.expect(cat=1, dog=2)
        _, known = self.started(ONE, TWO)
        assert known == {ONE: Position(2, TOPIC_ID)}

    def test_a_position_moves_without_rows(self) -> None:
        store, _ = self.started()
        store.commit({ONE: Position(5, TOPIC_ID)})
        store.commit({ONE: Position(9, TOPIC_ID)})
        assert self.started()[1] == {ONE: Position(9, TOPIC_ID)}

    def test_partitions_have_positions_of_their_own(self) -> None:
        store, _ = self.started(ONE, TWO)
        store.write(self.rows(7, ("cat", 1)))
        store.write(self.rows(3, ("dog", 1), source=TWO))
        store.commit({ONE: Position(8, TOPIC_ID), TWO: Position(4, TOPIC_ID)})
        assert self.started(ONE, TWO)[1] == {
            ONE: Position(8, TOPIC_ID),
            TWO: Position(4, TOPIC_ID),
        }
        self.expect(cat=1, dog=1)

    # --- crashes and redelivery ---------------------------------------------------------------

    def test_what_a_crash_interrupts_is_neither_lost_nor_doubled(self) -> None:
        store, _ = self.started()
        store.write(self.rows(0, ("cat", 1), ("dog", 1)))
        store.commit({ONE: Position(2, TOPIC_ID)})
        store.write(self.rows(2, ("cat", 2), ("emu", 1)))  # and then it dies
        after, known = self.started()
        position = known[ONE].offset
        assert position in (2, 4)
        every = (("cat", 1), ("dog", 1), ("cat", 2), ("emu", 1), ("cat", 3))
        after.write(self.rows(position, *every[position:]))
        after.commit({ONE: Position(5, TOPIC_ID)})
        self.expect(cat=3, dog=1, emu=1)

    def test_close_forgets_what_was_not_committed(self) -> None:
        store, _ = self.started()
        store.write(self.rows(0, ("cat", 1)))
        store.close()
        store.close()
        again, known = self.started()
        assert known in ({}, {ONE: Position(1, TOPIC_ID)})  # or durable, with its position
        again.commit({ONE: Position(1, TOPIC_ID)})
        self.expect(**({"cat": 1} if known else {}))

    def test_the_last_row_of_a_key_wins(self) -> None:
        store, _ = self.started()
        store.write(self.rows(0, ("cat", 1), ("cat", 2), ("dog", 1), ("cat", 3)))
        store.commit({ONE: Position(4, TOPIC_ID)})
        self.expect(cat=3, dog=1)

    def test_a_batch_again_changes_nothing(self) -> None:
        batch = self.rows(0, ("cat", 1), ("cat", 2), ("dog", 1), ("cat", 3))
        store, _ = self.started()
        store.write(batch)
        store.write(batch)
        store.commit({ONE: Position(4, TOPIC_ID)})
        store.write(batch)
        store.commit({ONE: Position(4, TOPIC_ID)})
        self.expect(cat=3, dog=1)

    @pytest.mark.parametrize("committed", [False, True])
    def test_older_never_overwrites(self, committed: bool) -> None:
        store, _ = self.started()
        store.write(self.rows(0, ("cat", 1), ("cat", 2), ("cat", 3)))
        if committed:
            store.commit({ONE: Position(3, TOPIC_ID)})
        store.write(self.rows(0, ("cat", 1), ("cat", 2)))
        store.commit({ONE: Position(3, TOPIC_ID)})
        self.expect(cat=3)

    def test_another_partition_is_not_older(self) -> None:
        store, _ = self.started(ONE, TWO)
        store.write(self.rows(100, ("cat", 1)))
        store.commit({ONE: Position(101, TOPIC_ID)})
        store.write(self.rows(0, ("cat", 2), source=TWO))
        store.commit({TWO: Position(1, TOPIC_ID)})
        self.expect(cat=2)

    # --- a topic made anew --------------------------------------------------------------------

    def test_a_topic_made_anew_begins_at_its_start_and_wins(self) -> None:
        store, _ = self.started()
        store.write(self.rows(100, ("cat", 50), ("dog", 60)))
        store.commit({ONE: Position(102, TOPIC_ID)})
        anew, known = self.started(topic_id="id-2")
        assert known == {}
        anew.write(self.rows(0, ("cat", 1), topic_id="id-2"))
        anew.commit({ONE: Position(1, "id-2")})
        self.expect(cat=1, dog=60)
        assert self.started(topic_id="id-2")[1] == {ONE: Position(1, "id-2")}

    def test_without_a_topic_id_it_is_the_same_topic(self) -> None:
        store, _ = self.started(topic_id="")
        store.write(self.rows(0, ("cat", 1), ("cat", 2), topic_id=""))
        store.commit({ONE: Position(2, "")})
        assert self.started(topic_id="")[1][ONE].offset == 2
        assert self.started()[1][ONE].offset == 2

    # --- faults -------------------------------------------------------------------------------

    def test_nothing_is_lost_while_it_is_away(self) -> None:
        store, _ = self.started()
        store.write(self.rows(0, ("cat", 1), ("cat", 2)))
        with self.away():
            for _again in range(2):
                with pytest.raises(RetriableError):
                    store.commit({ONE: Position(2, TOPIC_ID)})
            with pytest.raises(RetriableError):
                self.started(TWO)
        store.commit({ONE: Position(2, TOPIC_ID)})
        self.expect(cat=2)
        assert self.started(ONE, TWO)[1] == {ONE: Position(2, TOPIC_ID)}

    def test_a_former_owner_writes_nothing(self) -> None:
        zombie, _ = self.started()
        zombie.write(self.rows(0, ("cat", 1)))
        owner, _ = self.started()
        owner.write(self.rows(0, ("cat", 1), ("cat", 2)))
        owner.commit({ONE: Position(2, TOPIC_ID)})
        zombie.write(self.rows(1, ("cat", 2), ("cat", 3), ("emu", 9)))
        with pytest.raises(StreamsError) as refused:
            zombie.commit({ONE: Position(4, TOPIC_ID)})
        assert refused.value.recovery is Recovery.REJOIN_GROUP
        self.expect(cat=2)
        owner.write(self.rows(2, ("cat", 3)))
        owner.commit({ONE: Position(3, TOPIC_ID)})
        self.expect(cat=3)
