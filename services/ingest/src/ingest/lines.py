"""Bytes to lines: decoding that knows at which line it stands. No I/O of its own."""

import codecs
import io
from collections.abc import Iterator

from ingest.errors import FeedError, TextError

LINE_CHARS_MAX = 200_000
"""Longer lines go out in pieces: in UTF-8 four bytes each, this stays below a broker's 1 MiB."""


class LineDecoder:
    """Decodes one file block by block; ``\\n``, ``\\r\\n`` and ``\\r`` end a line.

    After a block with bytes that are no text, ``fault`` is set: the lines returned are the good
    ones in front, and no further block may be given.
    """

    def __init__(self, file: str, encoding: str) -> None:
        """Begin a file; ``file`` is its name for messages.

        :raises FeedError: if there is no such text encoding.
        """
        self.fault: TextError | None = None
        self._file, self._encoding = file, encoding
        try:
            b"x".decode(encoding, "replace")  # unlike a look-up, this refuses base64 and the like
            name = codecs.lookup(encoding).name
        except (LookupError, UnicodeError):
            raise FeedError(f"there is no text encoding {encoding!r}") from None
        # The byte order mark that some editors write is no part of the first line.
        self._decoder = codecs.getincrementaldecoder("utf-8-sig" if name == "utf-8" else name)()
        self._newlines = io.IncrementalNewlineDecoder(None, translate=True)
        self._pending = ""
        self._ended = 0

    def lines(self, block: bytes) -> list[str]:
        """Return the lines that the block completes."""
        return self._complete(self._decoded(block, final=False))

    def last(self) -> list[str]:
        """Return what the end of the file completes: a last line without an end of its own."""
        lines = self._complete(self._decoded(b"", final=True))
        if self._pending and self.fault is None:
            lines.append(self._pending)
        self._pending = ""
        return lines

    def _decoded(self, block: bytes, *, final: bool) -> str:
        assert self.fault is None, f"{self._file} was given up at line {self.fault.line}"
        before = self._decoder.getstate()
        try:
            return self._newlines.decode(self._decoder.decode(block, final), final)
        except UnicodeError as error:
            good = self._newlines.decode(self._in_front(error, block, before))
            line = self._ended + good.count("\n") + 1
            reason = getattr(error, "reason", str(error))
            self.fault = TextError(self._file, line, self._encoding, reason)
            return good

    def _in_front(self, error: UnicodeError, block: bytes, before: tuple[bytes, int]) -> str:
        """Return the text in front of the fault; the decoder had kept some bytes from before."""
        if not isinstance(error, UnicodeDecodeError):
            return ""
        self._decoder.setstate(before)
        good = block[: max(0, error.start - len(before[0]))]
        return self._decoder.decode(good)

    def _complete(self, text: str) -> list[str]:
        self._ended += text.count("\n")
        *lines, self._pending = (self._pending + text).split("\n")
        if len(self._pending) > LINE_CHARS_MAX:
            *pieces, self._pending = _pieces(self._pending)
            lines += pieces
        if max(map(len, lines), default=0) > LINE_CHARS_MAX:
            lines = [piece for line in lines for piece in _pieces(line)]
        return lines


def _pieces(line: str) -> Iterator[str]:
    """Yield the line in pieces that a record can hold, cut in front of a space where one is."""
    while len(line) > LINE_CHARS_MAX:
        space = line.rfind(" ", 1, LINE_CHARS_MAX)
        cut = space if space > 0 else LINE_CHARS_MAX
        yield line[:cut]
        line = line[cut:]
    yield line
