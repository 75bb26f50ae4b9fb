"""LevelDbEngine: the engine on disk, over plyvel.

Beside the data a folder holds the position in the changelog with the time of its writing, and the
version of this layout, under keys of their own. One ``write`` is one LevelDB batch: after a crash
of the process it is there as a whole; after a crash of the machine the newest batches may be
missing, each as a whole.
"""

import contextlib
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import plyvel

from streamcore.errors import StateDirError, StoreDamagedError, StreamsError
from streamcore.model import Position

LAYOUT_VERSION = b"1"
DAMAGED_MARK = "DAMAGED"
"""A file of this name in a folder says that what is in it must not be trusted."""

_DATA = b"d"
_META_POSITION = b"m:position"
_META_WRITTEN = b"m:written"
_META_VERSION = b"m:version"

_WRITE_BUFFER_BYTES = 4 << 20  # two of these a store are the most that waits in memory
_BLOCK_CACHE_BYTES = 1 << 20  # blocks are not compressed, so LevelDB reads them from mapped files
_BLOOM_BITS = 10  # a key that is not there is found out without a read, in 99 of 100 cases

_NO_SPACE = ("No space left", "Disk quota exceeded", "File too large")
_HELD = "IO error: lock "
_MACHINE = (
    "Permission denied",
    "Not a directory",
    "Read-only file system",
    "Too many open files",
    "Cannot allocate",
)


class StoreHeldError(StateDirError):
    """The folder is open already, here or in another process."""


class LevelDbEngine:
    """One LevelDB folder. Contract: ``state.engine``; world's faults as errors of the engine."""

    def __init__(self, folder: Path) -> None:
        """Open the folder, or make it.

        :raises StoreDamagedError: what is in it cannot be read, or is of another version.
        :raises StoreHeldError: somebody has it open.
        :raises StateDirError: the disk is full, or a right is missing.
        """
        self.folder = folder
        self.damaged = False
        self.closed = False
        if (folder / DAMAGED_MARK).exists():
            raise StoreDamagedError(str(folder), "it was found damaged before")
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._db = plyvel.DB(
                str(folder),
                create_if_missing=True,
                # Without it a hole in the log loses a batch, and a later one brings its position.
                paranoid_checks=True,
                write_buffer_size=_WRITE_BUFFER_BYTES,
                lru_cache_size=_BLOCK_CACHE_BYTES,
                bloom_filter_bits=_BLOOM_BITS,
                compression=None,  # 1.8 x the room, but reads are 5 x as fast
            )
        except (plyvel.Error, OSError) as error:
            raise self._fault(error) from error
        try:
            self._check_version()
        except BaseException:
            self.close()
            raise
        self._data = self._db.prefixed_db(_DATA)

    def _check_version(self) -> None:
        try:
            version = self._db.get(_META_VERSION)
            if version is None and next(self._db.iterator(), None) is None:
                self._db.put(_META_VERSION, LAYOUT_VERSION)
                return
        except plyvel.Error as error:
            raise self._fault(error) from error
        if version != LAYOUT_VERSION:
            found = "none" if version is None else version.decode(errors="replace")
            raise StoreDamagedError(
                str(self.folder),
                f"its layout version is {found}, this program writes {LAYOUT_VERSION.decode()}",
            )

    def get(self, key: bytes) -> bytes | None:
        try:
            return self._data.get(key, verify_checksums=True)
        except plyvel.Error as error:
            raise self._fault(error) from error

    def range(self, start: bytes, stop: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        # The snapshot is taken here, not when the first row is asked for.
        return self._rows(self._data.iterator(start=start, stop=stop, verify_checksums=True))

    def _rows(self, rows: Iterator[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
        try:
            yield from rows
        except plyvel.Error as error:
            raise self._fault(error) from error

    def write(
        self, changes: Iterable[tuple[bytes, bytes | None]], position: Position | None
    ) -> None:
        batch = self._db.write_batch()
        put, delete, prefix = batch.put, batch.delete, _DATA
        for key, value in changes:
            if value is None:
                delete(prefix + key)
            else:
                put(prefix + key, value)
        if position is not None:
            offset = position.offset.to_bytes(8, "big")
            put(_META_POSITION, offset + position.topic_id.encode())
            put(_META_WRITTEN, (time.time_ns() // 1_000_000).to_bytes(8, "big"))
        try:
            batch.write()
        except plyvel.Error as error:
            raise self._fault(error) from error

    def position(self) -> Position | None:
        try:
            raw = self._db.get(_META_POSITION, verify_checksums=True)
            written = self._db.get(_META_WRITTEN, verify_checksums=True)
        except plyvel.Error as error:
            raise self._fault(error) from error
        if raw is None:
            return None
        written_ms = int.from_bytes(written or b"", "big")
        return Position(int.from_bytes(raw[:8], "big"), raw[8:].decode(), written_ms)

    def compact(self, start: bytes, stop: bytes) -> None:
        self._db.compact_range(start=_DATA + start, stop=_DATA + stop)

    def size_bytes(self) -> int:
        try:
            return sum(map(_size_of, os.scandir(self.folder)))
        except OSError:  # somebody has removed it; the next write says so
            return 0

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._db.close()

    def _fault(self, error: Exception) -> StreamsError:
        """Return the engine's error for one of plyvel's or of the file system."""
        text = _text_of(error)
        if any(word in text for word in _NO_SPACE):
            return StateDirError(
                f"no space left for the state folder {self.folder} ({_free(self.folder)}): {text}; "
                "free some, or set state_dir to a larger disk"
            )
        if _HELD in text:
            return StoreHeldError(f"the state folder {self.folder} is open elsewhere: {text}")
        if any(word in text for word in _MACHINE):
            return StateDirError(f"the state folder {self.folder} cannot be used: {text}")
        self.damaged = True
        with contextlib.suppress(OSError):
            (self.folder / DAMAGED_MARK).touch()
        return StoreDamagedError(str(self.folder), text)


def _text_of(error: Exception) -> str:
    """Return the message; LevelDB's come as bytes."""
    first = error.args[0] if error.args else ""
    return first.decode(errors="replace") if isinstance(first, bytes) else str(error)


def _size_of(entry: os.DirEntry[str]) -> int:
    try:
        return entry.stat().st_size
    except FileNotFoundError:  # LevelDB's own thread has removed it meanwhile
        return 0


def _free(folder: Path) -> str:
    """Return how much is free on the disk of ``folder``, in words."""
    try:
        disk = os.statvfs(folder if folder.exists() else folder.parent)
    except OSError:
        return "free space unknown"
    return f"{disk.f_bavail * disk.f_frsize // (1 << 20)} MB free on its disk"
