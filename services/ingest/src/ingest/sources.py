"""Where lines come from: files, standard input, or the sample. Reading waits, but not for ever.

A source yields lists of lines; an empty list says that it waits for more, so that whoever reads can
do something else meanwhile.
"""

import os
import select
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from pydoc_data.topics import topics
from threading import Event

from ingest.errors import FeedError
from ingest.lines import LineDecoder

STANDARD_INPUT = "-"

_BLOCK_BYTES = 1 << 16
_LOOK_AGAIN_S = 0.2


@dataclass(frozen=True, slots=True)
class Text:
    """What to read: files in order (``-`` is standard input), or the sample when there are none."""

    files: tuple[str, ...] = ()
    encoding: str = "utf-8"
    follow: bool = False
    loop: bool = False

    def check(self) -> None:
        """Refuse what cannot work, before the first line is sent.

        :raises FeedError: with what is wrong.
        """
        LineDecoder("", self.encoding)
        if self.follow and self.loop:
            raise FeedError("--follow waits at the end and --loop begins anew: choose one")
        if self.follow and not self.files:
            raise FeedError("--follow needs a file: the sample does not grow")
        if self.loop and STANDARD_INPUT in self.files:
            raise FeedError("--loop cannot read standard input twice")
        for file in self.files:
            if file != STANDARD_INPUT and Path(file).is_dir():
                raise FeedError(f"{file} is a folder; name the files in it")
            if file != STANDARD_INPUT and not Path(file).exists():
                raise FeedError(f"there is no file {file}")

    def lines(self, stopped: Event) -> Iterator[list[str]]:
        """Yield the lines until there are no more or ``stopped`` is set.

        :raises FeedError: if a file cannot be read or is not text; the lines in front came out.
        """
        while True:
            any_line = False
            for lines in self._once(stopped):
                any_line = any_line or bool(lines)
                yield lines
            if not self.loop or stopped.is_set():
                return
            if not any_line:
                raise FeedError(f"--loop would never end: no line in {', '.join(self.files)}")

    def _once(self, stopped: Event) -> Iterator[list[str]]:
        if not self.files:
            yield sample()
        for file in self.files:
            if stopped.is_set():
                return
            follow = self.follow and file == self.files[-1]
            yield from _lines_of(file, self.encoding, follow, stopped)


def sample() -> list[str]:
    """Return English text that ships with Python itself: its reference manual, line by line."""
    return [line for topic in topics.values() for line in topic.splitlines() if line.strip()]


def _lines_of(file: str, encoding: str, follow: bool, stopped: Event) -> Iterator[list[str]]:
    name = "standard input" if file == STANDARD_INPUT else file
    decoder = LineDecoder(name, encoding)
    try:
        for block in _blocks(file, follow, stopped):
            yield decoder.lines(block) if block else []
            if decoder.fault is not None:
                raise decoder.fault
    except OSError as error:
        raise FeedError(f"{name} cannot be read: {error.strerror}") from None
    if stopped.is_set():
        return  # what stands there of a line is not all of it
    yield decoder.last()
    if decoder.fault is not None:
        raise decoder.fault


def _blocks(file: str, follow: bool, stopped: Event) -> Iterator[bytes]:
    """Yield the file's bytes; an empty block while there are none yet."""
    is_input = file == STANDARD_INPUT
    # A named pipe nobody writes to would hold a plain open for ever.
    descriptor = sys.stdin.fileno() if is_input else os.open(file, os.O_RDONLY | os.O_NONBLOCK)
    try:
        while not stopped.is_set():
            if not select.select([descriptor], [], [], _LOOK_AGAIN_S)[0]:
                yield b""
            elif block := os.read(descriptor, _BLOCK_BYTES):
                yield block
            elif not follow:
                return
            else:
                yield b""
                stopped.wait(_LOOK_AGAIN_S)
    finally:
        if not is_input:
            os.close(descriptor)
