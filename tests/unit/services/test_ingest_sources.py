"""Where lines come from: files, a growing file, a pipe, the sample."""

import os
import threading
from pathlib import Path
from threading import Event

import pytest

from ingest.errors import FeedError, TextError
from ingest.sources import Text, sample


def all_of(text: Text) -> list[str]:
    text.check()
    return [line for lines in text.lines(Event()) for line in lines]


def test_files_are_read_in_the_order_given(tmp_path: Path) -> None:
    (tmp_path / "one").write_text("a\nb")
    (tmp_path / "two").write_text("c\n")
    files = (str(tmp_path / "two"), str(tmp_path / "one"))
    assert all_of(Text(files)) == ["c", "a", "b"]


def test_lines_in_front_of_a_fault_come_out(tmp_path: Path) -> None:
    file = tmp_path / "bad"
    file.write_bytes(b"good\nbad \xff\n")
    came: list[str] = []
    source = Text((str(file),)).lines(Event())
    with pytest.raises(TextError, match=r"bad, line 2: not utf-8"):
        came.extend(line for lines in source for line in lines)
    assert came == ["good"]


def test_a_file_that_grows_is_followed_until_stopped(tmp_path: Path) -> None:
    file, stopped = tmp_path / "log", Event()
    file.write_text("one\ntwo")
    came: list[str] = []
    for lines in Text((str(file),), follow=True).lines(stopped):
        came += lines
        if not lines and came == ["one"]:
            with file.open("a") as more:
                more.write(" and a half\nthree")
        elif "two and a half" in came:
            stopped.set()
    assert came == ["one", "two and a half"]


def test_a_pipe_is_read_to_its_end_and_waits_meanwhile(tmp_path: Path) -> None:
    pipe, go_on = tmp_path / "pipe", Event()
    os.mkfifo(pipe)

    def write() -> None:
        with pipe.open("w") as out:
            out.write("one\n")
            out.flush()
            go_on.wait(10)
            out.write("two\n")

    writer = threading.Thread(target=write)
    writer.start()
    came: list[list[str]] = []
    for lines in Text((str(pipe),)).lines(Event()):
        came.append(lines)
        if ["one"] in came and not lines:
            go_on.set()
    writer.join(10)
    assert [line for lines in came for line in lines] == ["one", "two"]
    assert [] in came


def test_a_loop_begins_anew_until_stopped(tmp_path: Path) -> None:
    file, stopped = tmp_path / "text", Event()
    file.write_text("a\nb\n")
    came: list[str] = []
    for lines in Text((str(file),), loop=True).lines(stopped):
        came += lines
        if len(came) >= 5:
            stopped.set()
    assert came == ["a", "b"] * 3


def test_the_sample_is_english_text_without_blank_lines() -> None:
    lines = all_of(Text())
    assert lines == sample()
    assert len(lines) > 5_000
    assert all(line.strip() for line in lines)
    assert any("the" in line.split() for line in lines)


def test_what_cannot_work_is_refused_before_the_first_line(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    empty = str(tmp_path / "empty")
    for text, reason in [
        (Text((f"{tmp_path}/none",)), r"there is no file .*/none"),
        (Text((str(tmp_path),)), "is a folder"),
        (Text((empty,), encoding="nonsense"), "no text encoding 'nonsense'"),
        (Text((empty,), follow=True, loop=True), "choose one"),
        (Text(follow=True), "needs a file"),
        (Text(("-",), loop=True), "standard input twice"),
        (Text((empty,), loop=True), r"no line in .*/empty"),
    ]:
        with pytest.raises(FeedError, match=reason):
            all_of(text)
