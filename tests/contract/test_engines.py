"""Memory and LevelDB keep the same contract; what only a disk can do wrong is tested beside it."""

import shutil
import subprocess
import sys
from pathlib import Path

import plyvel
import pytest

from streamcore.adapters.leveldb import DAMAGED_MARK, LevelDbEngine, StoreHeldError
from streamcore.errors import Recovery, StateDirError, StoreDamagedError
from streamcore.model import Position
from streamcore.state.memory import MemoryEngine
from streamcore.testing.contracts.engine import EngineContract

ROWS = [(b"%06d" % number, bytes([number % 251]) * 50) for number in range(50_000)]


class TestMemoryEngine(EngineContract):
    @pytest.fixture(autouse=True)
    def _places(self) -> None:
        self.places: dict[Path, MemoryEngine] = {}

    def open(self, where: Path) -> MemoryEngine:
        engine = self.places.setdefault(where, MemoryEngine())
        engine.reopen()
        return engine


class TestLevelDbEngine(EngineContract):
    def open(self, where: Path) -> LevelDbEngine:
        return LevelDbEngine(where / "store")


def filled(folder: Path) -> Path:
    """A closed store with tables as well as a log."""
    engine = LevelDbEngine(folder)
    engine.write(ROWS, Position(1, "id"))
    engine.compact(b"", b"\xff")
    engine.write([(b"late", b"1")] * 1_000, Position(2, "id"))
    engine.close()
    return folder


def overwrite_the_middle(file: Path) -> None:
    raw = file.read_bytes()
    middle = len(raw) // 2
    file.write_bytes(raw[:middle] + b"\xfe" * 20 + raw[middle + 20 :])


@pytest.mark.parametrize("what", ["CURRENT", "MANIFEST-*", "*.log"])
def test_damage_that_shows_when_opened_is_an_error_that_says_so(what: str, tmp_path: Path) -> None:
    folder = filled(tmp_path / "store")
    for file in folder.glob(what):
        overwrite_the_middle(file)
    with pytest.raises(StoreDamagedError, match="store") as caught:
        LevelDbEngine(folder)
    assert caught.value.recovery is Recovery.REBUILD_TASKS
    assert caught.value.folder == str(folder)


def test_a_missing_file_is_damage(tmp_path: Path) -> None:
    folder = filled(tmp_path / "store")
    next(folder.glob("*.ldb")).unlink()
    with pytest.raises(StoreDamagedError):
        LevelDbEngine(folder)


def test_damage_within_a_table_is_never_read_as_a_value(tmp_path: Path) -> None:
    folder = filled(tmp_path / "store")
    for file in folder.glob("*.ldb"):
        overwrite_the_middle(file)
    engine = LevelDbEngine(folder)
    with pytest.raises(StoreDamagedError):
        [engine.get(key) for key, _ in ROWS]
    with pytest.raises(StoreDamagedError):
        list(engine.range(b"", None))
    assert engine.damaged
    engine.close()
    assert (folder / DAMAGED_MARK).exists()
    with pytest.raises(StoreDamagedError, match="before"):
        LevelDbEngine(folder)


def test_a_folder_of_another_version_is_refused(tmp_path: Path) -> None:
    other = plyvel.DB(str(tmp_path / "other"), create_if_missing=True)
    other.put(b"a", b"1")
    other.close()
    with pytest.raises(StoreDamagedError, match="layout version is none"):
        LevelDbEngine(tmp_path / "other")
    later = plyvel.DB(str(tmp_path / "later"), create_if_missing=True)
    later.put(b"m:version", b"99")
    later.close()
    with pytest.raises(StoreDamagedError, match="layout version is 99"):
        LevelDbEngine(tmp_path / "later")


def test_an_open_folder_is_held(tmp_path: Path) -> None:
    engine = LevelDbEngine(tmp_path)
    with pytest.raises(StoreHeldError):
        LevelDbEngine(tmp_path)
    engine.close()
    LevelDbEngine(tmp_path).close()


FULL_DISK = """
import resource, sys
from pathlib import Path
from streamcore.adapters.leveldb import LevelDbEngine
from streamcore.errors import StateDirError
from streamcore.model import Position

engine = LevelDbEngine(Path(sys.argv[1]))
engine.write([(b"a", b"1")], Position(1, "id"))
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
try:
    engine.write([(b"b", bytes(1_000_000))], Position(2, "id"))
except StateDirError as error:
    print(error)
"""


def test_no_space_is_told_and_what_was_there_stays(tmp_path: Path) -> None:
    # A limit on the size of files is the full disk that needs neither root nor a disk of its own.
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(tmp_path / "store")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "no space left for the state folder" in done.stdout
    assert "MB free on its disk" in done.stdout
    assert "state_dir" in done.stdout
    try:
        engine = LevelDbEngine(tmp_path / "store")
    except StoreDamagedError:
        return  # half a batch in the log: set aside, and restored from the changelog
    assert list(engine.range(b"", None)) == [(b"a", b"1")]
    assert engine.position() == Position(1, "id")
    engine.close()


KILLED = """
import os, sys
from pathlib import Path
from streamcore.adapters.leveldb import LevelDbEngine
from streamcore.model import Position

engine = LevelDbEngine(Path(sys.argv[1]))
for number in range(1, 200):
    engine.write([(b"%d" % row, b"%d" % number) for row in range(500)], Position(number, "id"))
print("written", flush=True)
os.kill(os.getpid(), 9)
"""


def test_a_killed_process_leaves_the_last_batch_whole(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.stdout == "written\n"
    engine = LevelDbEngine(tmp_path)
    assert engine.position() == Position(199, "id")
    assert {value for _, value in engine.range(b"", None)} == {b"199"}
    engine.close()


def test_a_place_that_cannot_be_a_folder_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"in the way")
    with pytest.raises(StateDirError, match="cannot be used"):
        LevelDbEngine(tmp_path / "file" / "store")


def test_a_folder_that_somebody_has_removed_has_no_size_and_ends_nothing(tmp_path: Path) -> None:
    engine = LevelDbEngine(tmp_path / "store")
    engine.write(ROWS[:100], Position(1, "id"))
    assert engine.size_bytes() > 5_000
    shutil.rmtree(tmp_path / "store")
    assert engine.size_bytes() == 0
    engine.close()


def test_the_size_of_a_store_in_memory_is_told_from_some_of_its_rows() -> None:
    engine = MemoryEngine()
    engine.write(ROWS, Position(1, "id"))
    assert engine.size_bytes() == len(ROWS) * 56
