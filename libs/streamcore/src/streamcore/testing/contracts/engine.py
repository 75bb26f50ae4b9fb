"""What every engine must do, as tests: subclass ``EngineContract`` and say how one is opened."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path

from streamcore.model import Position
from streamcore.state.engine import Engine

EVERYTHING = (b"", None)
ODD_KEYS = (
    b"",
    b"\x00",
    b"\x00\x00",
    b"a",
    b"a\x00",
    b"ab",
    b"d",
    b"m",
    b"m:position",
    b"\xff\xff",
)


class EngineContract(ABC):
    """The suite. ``tmp_path`` is pytest's: a fresh folder for each test."""

    @abstractmethod
    def open(self, where: Path) -> Engine:
        """Open the engine of that place; what was written there before is in it."""

    def test_a_new_engine_is_empty_and_has_no_position(self, tmp_path: Path) -> None:
        engine = self.open(tmp_path)
        assert engine.get(b"a") is None
        assert list(engine.range(*EVERYTHING)) == []
        assert engine.position() is None
        engine.close()

    def test_a_range_is_in_byte_order_and_leaves_the_end_out(self, tmp_path: Path) -> None:
        engine = self.open(tmp_path)
        engine.write([(key, key + b"!") for key in (b"c", b"a", b"b", b"bb")], None)
        assert list(engine.range(b"a", b"bb")) == [(b"a", b"a!"), (b"b", b"b!")]
        assert [key for key, _ in engine.range(b"aa", None)] == [b"b", b"bb", b"c"]
        assert [key for key, _ in engine.range(b"", b"b")] == [b"a"]
        assert list(engine.range(b"x", b"b")) == []
        engine.close()

    def test_any_bytes_can_be_a_key_or_a_value(self, tmp_path: Path) -> None:
        engine = self.open(tmp_path)
        engine.write([(key, key) for key in reversed(ODD_KEYS)], Position(7, "id"))
        assert [key for key, _ in engine.range(*EVERYTHING)] == sorted(ODD_KEYS)
        assert [engine.get(key) for key in ODD_KEYS] == list(ODD_KEYS)
        assert engine.position() == Position(7, "id")
        engine.write([(key, None) for key in ODD_KEYS], None)
        assert list(engine.range(*EVERYTHING)) == []
        assert engine.position() == Position(7, "id")
        engine.close()

    def test_within_a_write_the_last_change_of_a_key_counts(self, tmp_path: Path) -> None:
        engine = self.open(tmp_path)
        engine.write([(b"a", b"1"), (b"b", b"1"), (b"a", None), (b"b", b"2")], None)
        engine.write([(b"c", None), (b"c", b"3"), (b"missing", None)], None)
        assert list(engine.range(*EVERYTHING)) == [(b"b", b"2"), (b"c", b"3")]
        engine.close()

    def test_a_write_that_fails_half_way_changes_nothing(self, tmp_path: Path) -> None:
        engine = self.open(tmp_path)
        engine.write([(b"a", b"1")], Position(1, "id"))

        def changes() -> Iterator[tuple[bytes, bytes | None]]:
            yield b"a", None
            yield b"b", b"2"
            raise LookupError

        try:
            engine.write(changes(), Position(2, "id"))
        except LookupError:
            pass
        else:
            raise AssertionError("the fault of the caller was swallowed")
        assert list(engine.range(*EVERYTHING)) == [(b"a", b"1")]
        assert engine.position() == Position(1, "id")
        engine.close()

    def test_the_position_is_noted_with_its_topic_id(self, tmp_path: Path) -> None:
        engine = self.open(tmp_path)
        engine.write([], Position(0, ""))
        assert engine.position() == Position(0, "")
        engine.write([(b"a", b"1")], Position(1 << 40, "tópic-id"))
        engine.write([(b"a", b"2")], None)
        assert engine.position() == Position(1 << 40, "tópic-id")
        assert list(engine.range(*EVERYTHING)) == [(b"a", b"2")]
        engine.close()

    def test_a_range_sees_the_state_at_the_call(self, tmp_path: Path) -> None:
        engine = self.open(tmp_path)
        engine.write([(key, b"old") for key in (b"a", b"b", b"c")], None)
        begun, waiting = engine.range(*EVERYTHING), engine.range(*EVERYTHING)
        assert next(begun) == (b"a", b"old")
        engine.write([(b"aa", b"new"), (b"b", b"new"), (b"c", None)], None)
        assert list(begun) == [(b"b", b"old"), (b"c", b"old")]
        assert list(waiting) == [(b"a", b"old"), (b"b", b"old"), (b"c", b"old")]
        assert dict(engine.range(*EVERYTHING)) == {b"a": b"old", b"aa": b"new", b"b": b"new"}
        engine.close()

    def test_what_was_written_is_there_after_a_close(self, tmp_path: Path) -> None:
        engine = self.open(tmp_path)
        engine.write([(b"a", b"1"), (b"b", b"2")], Position(5, "id"))
        engine.write([(b"a", None)], Position(6, "id"))
        engine.close()
        engine.close()
        engine = self.open(tmp_path)
        assert list(engine.range(*EVERYTHING)) == [(b"b", b"2")]
        assert engine.position() == Position(6, "id")
        engine.close()

    def test_compaction_changes_nothing_that_can_be_read(self, tmp_path: Path) -> None:
        engine = self.open(tmp_path)
        keys = [b"%05d" % number for number in range(2_000)]
        engine.write([(key, key * 10) for key in keys], Position(1, "id"))
        engine.write([(key, None) for key in keys[:1_500]], None)
        engine.compact(b"", keys[1_500])
        assert list(engine.range(*EVERYTHING)) == [(key, key * 10) for key in keys[1_500:]]
        assert engine.position() == Position(1, "id")
        engine.close()

    def test_the_size_follows_what_is_stored(self, tmp_path: Path) -> None:
        engine = self.open(tmp_path)
        before = engine.size_bytes()
        engine.write([(b"%05d" % number, bytes(100)) for number in range(1_000)], None)
        assert engine.size_bytes() >= before + 100_000
        engine.close()
