"""What can go wrong with the text that is to be fed; each is told in one line."""

from streamcore.errors import StreamsError


class FeedError(StreamsError):
    """The text cannot be fed; the message names the file and what is wrong with it."""


class TextError(FeedError):
    """Bytes that are no text in the encoding; everything in front of that line was good."""

    def __init__(self, file: str, line: int, encoding: str, reason: str) -> None:
        self.file, self.line = file, line
        super().__init__(
            f"{file}, line {line}: not {encoding} ({reason}); repair it, or name its --encoding"
        )
