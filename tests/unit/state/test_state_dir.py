"""State folders: slots of processes, stores set aside, what a lock that nobody holds means."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from streamcore.adapters.leveldb import LevelDbEngine
from streamcore.adapters.state_dir import SET_ASIDE_MAX, FileStateDir
from streamcore.errors import StateDirError, StateDirLockedError, StoreDamagedError
from streamcore.model import Position, TaskId

TASK = TaskId(1, 3)

HOLDER = """
import sys
import time
from pathlib import Path
from streamcore.adapters.state_dir import FileStateDir
from streamcore.model import Position, TaskId

folders = FileStateDir(Path(sys.argv[1]), "app")
engine = folders.open(TaskId(1, 3), "counts")
known = engine.position()
offset = 0 if known is None else known.offset
engine.write([], Position(offset + 1, "id"))
print(folders.slot, offset, flush=True)
sys.stdin.read()
"""


def hold(state_dir: Path) -> tuple[subprocess.Popen[str], str]:
    """Start a process that takes a slot and opens a store; return what it says."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(state_dir)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


def end(process: subprocess.Popen[str], how: signal.Signals | None = None) -> None:
    if how is not None:
        process.send_signal(how)
    process.communicate(timeout=20)


def test_processes_on_one_folder_get_slots_of_their_own(tmp_path: Path) -> None:
    first, first_said = hold(tmp_path)
    second, second_said = hold(tmp_path)
    assert (first_said, second_said) == ("0 0", "1 0")
    end(first, signal.SIGKILL)
    third, third_said = hold(tmp_path)
    assert third_said == "0 1", "a killed process's lock file means nothing, its state is kept"
    end(second)
    end(third)
    assert {file.name for file in (tmp_path / "app").glob("*.lock")} == {"0.lock", "1.lock"}


def test_the_layout_is_application_slot_task_store(tmp_path: Path) -> None:
    folders = FileStateDir(tmp_path, "word count/1")
    folders.open(TASK, "windowed-counts")
    assert (tmp_path / "word%20count%2F1" / "0" / "1_3" / "windowed-counts" / "CURRENT").exists()
    assert folders.folder(TASK, "..").name == "%2E%2E"
    assert folders.folder(TASK, "a~1") != folders.folder(TASK, "a")
    folders.close()


def test_applications_do_not_share_slots(tmp_path: Path) -> None:
    one, other = FileStateDir(tmp_path, "one"), FileStateDir(tmp_path, "other")
    assert (one.slot, other.slot) == (0, 0)
    one.close()
    other.close()


def test_a_slot_is_given_back(tmp_path: Path) -> None:
    first = FileStateDir(tmp_path, "app")
    second = FileStateDir(tmp_path, "app")
    assert (first.slot, second.slot) == (0, 1)
    engine = first.open(TASK, "counts")
    engine.write([(b"a", b"1")], Position(1, "id"))
    first.close()
    first.close()
    third = FileStateDir(tmp_path, "app")
    assert third.slot == 0
    assert third.open(TASK, "counts").get(b"a") == b"1"
    second.close()
    third.close()


def test_a_slot_tells_who_had_it_before(tmp_path: Path) -> None:
    first = FileStateDir(tmp_path, "app", "f00d-1")
    second = FileStateDir(tmp_path, "app", "beef")
    assert (first.predecessor, second.predecessor) == ("", "")
    first.close()
    third = FileStateDir(tmp_path, "app", "cafe")
    assert (third.slot, third.predecessor) == (0, "f00d-1")
    third.close()
    second.close()
    fourth = FileStateDir(tmp_path, "app", "0")
    fifth = FileStateDir(tmp_path, "app", "1")
    assert (fourth.predecessor, fifth.predecessor) == ("cafe", "beef")
    fourth.close()
    fifth.close()
    assert (tmp_path / "app" / "0.lock").read_bytes() == b"0", "a longer run leaves no rest"


@pytest.mark.parametrize("damage", [b"", b"two words", b"a\n", b"dot.ted", b"\xff\x00", b"a" * 65])
def test_a_lock_file_that_makes_no_sense_names_nobody(tmp_path: Path, damage: bytes) -> None:
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "0.lock").write_bytes(damage)
    folders = FileStateDir(tmp_path, "app", "cafe")
    assert (folders.slot, folders.predecessor) == (0, "")
    folders.close()
    assert (tmp_path / "app" / "0.lock").read_bytes() == b"cafe"


def test_an_open_store_is_answered_again(tmp_path: Path) -> None:
    folders = FileStateDir(tmp_path, "app")
    engine = folders.open(TASK, "counts")
    assert folders.open(TASK, "counts") is engine
    engine.close()
    again = folders.open(TASK, "counts")
    assert again is not engine
    assert again.position() is None
    folders.close()


def test_a_folder_that_somebody_else_has_open_is_told_with_its_task(tmp_path: Path) -> None:
    folders = FileStateDir(tmp_path, "app")
    intruder = LevelDbEngine(folders.folder(TASK, "counts"))
    with pytest.raises(StateDirLockedError, match="task 1_3") as caught:
        folders.open(TASK, "counts")
    assert caught.value.task == TASK
    intruder.close()
    folders.open(TASK, "counts")
    folders.close()


def test_a_damaged_store_is_set_aside_with_one_warning_and_begun_anew(tmp_path: Path) -> None:
    folders = FileStateDir(tmp_path, "app")
    for round_ in range(SET_ASIDE_MAX + 2):
        engine = folders.open(TASK, "counts")
        engine.write([(b"a", b"1")], Position(1, "id"))
        engine.close()
        (folders.folder(TASK, "counts") / "CURRENT").write_text("nonsense")
        with capture_logs() as logs:
            engine = folders.open(TASK, "counts")
        assert [entry["log_level"] for entry in logs] == ["warning"], round_
        assert engine.position() is None
        assert list(engine.range(b"", None)) == []
    kept = sorted(place.name for place in folders.folder(TASK, "counts").parent.glob("*~*"))
    assert kept == ["counts~3", "counts~4"]
    folders.close()


def test_a_store_found_damaged_while_it_is_read_is_begun_anew_when_opened_again(
    tmp_path: Path,
) -> None:
    folders = FileStateDir(tmp_path, "app")
    engine = folders.open(TASK, "counts")
    engine.write([(b"%05d" % row, os.urandom(100)) for row in range(20_000)], Position(1, "id"))
    engine.compact(b"", b"\xff")
    engine.close()
    for table in folders.folder(TASK, "counts").glob("*.ldb"):
        raw = bytearray(table.read_bytes())
        raw[len(raw) // 2] ^= 0xFF
        table.write_bytes(raw)
    engine = folders.open(TASK, "counts")
    with pytest.raises(StoreDamagedError):
        list(engine.range(b"", None))
    anew = folders.open(TASK, "counts")
    assert anew is not engine
    assert anew.position() is None
    folders.close()


def test_what_others_own_now_is_removed_and_what_is_open_never(tmp_path: Path) -> None:
    folders = FileStateDir(tmp_path, "app")
    kept, opened, gone = TaskId(1, 0), TaskId(1, 1), TaskId(1, 2)
    engines = {task: folders.open(task, "counts") for task in (kept, opened, gone)}
    for task in (kept, gone):
        engines[task].close()
    with capture_logs() as lines:
        folders.clean_up({kept})
    assert [folders.folder(task, "counts").exists() for task in (kept, opened, gone)] == [
        True,
        True,
        False,
    ]
    assert len(lines) == 1
    assert lines[0]["folder"].endswith("/0/1_2")
    assert folders.open(gone, "counts").position() is None
    folders.close()


def test_a_position_knows_when_it_was_written(tmp_path: Path) -> None:
    folders = FileStateDir(tmp_path, "app")
    engine = folders.open(TASK, "counts")
    before_ms = time.time_ns() // 1_000_000
    engine.write([], Position(3, "id"))
    position = engine.position()
    assert position is not None
    assert before_ms <= position.written_ms <= time.time_ns() // 1_000_000
    engine.write([(b"a", b"1")], None)
    assert engine.position() == Position(3, "id")
    folders.close()


def test_a_discarded_store_begins_anew(tmp_path: Path) -> None:
    folders = FileStateDir(tmp_path, "app")
    folders.discard(TASK, "never-opened")
    folders.open(TASK, "counts").write([(b"a", b"1")], Position(1, "id"))
    folders.discard(TASK, "counts")
    assert folders.open(TASK, "counts").position() is None
    folders.close()


def test_a_state_dir_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"in the way")
    with pytest.raises(StateDirError, match="set state_dir"):
        FileStateDir(tmp_path / "file", "app")
