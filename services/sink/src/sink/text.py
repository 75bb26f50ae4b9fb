"""Words as PostgreSQL can hold them: an escape for what its text type refuses, and back.

PostgreSQL's ``text`` holds neither U+0000 nor lone surrogates, and a key in an index holds some
2,700 bytes. Stripping or replacing characters would merge two different words into one row, so the
words are escaped, and two different words stay different:

=====================  =====================================================================
in the word            in the column
=====================  =====================================================================
U+0000                 ``\\u0000`` (six characters)
a lone surrogate       ``\\ud83d`` (its code, six characters)
a backslash            ``\\\\`` (two of them)
over 1,000 bytes       its first characters, ``\\+``, and the SHA-256 of the whole in hexadecimal
=====================  =====================================================================

The words that our ingest makes hold neither backslashes nor the others: they stand as they are.

>>> storable("ab\\0cd"), storable("abcd"), storable("a\\\\b")
('ab\\\\u0000cd', 'abcd', 'a\\\\\\\\b')
>>> readable(storable("ab\\0cd")) == "ab\\0cd"
True
"""

import hashlib
import re
from collections.abc import Sequence
from typing import Final

BYTES_MAX: Final = 1_000
"""Longest escaped word in UTF-8: leaves room for the window in the key, and for other encodings."""

_REFUSED = re.compile(r"[\\\x00\ud800-\udfff]")
_ESCAPED = re.compile(r"\\(\\|u([0-9a-f]{4}))")
_SHORTENED: Final = r"\+"
_DIGEST_CHARACTERS: Final = 64


def storable_column(words: Sequence[str]) -> list[str]:
    """Return the words as the column holds them; most batches need no more than one look."""
    # A character takes 4 bytes at most.
    if _REFUSED.search("".join(words)) is None and max(map(len, words), default=0) * 4 <= BYTES_MAX:
        return list(words)
    return [storable(word) for word in words]


def storable(word: str) -> str:
    """Return the word as the column holds it; different words give different texts."""
    if len(word) * 4 <= BYTES_MAX and _REFUSED.search(word) is None:
        return word
    pieces = [_escaped(character) for character in word[: BYTES_MAX + 1]]
    if len(word) <= BYTES_MAX and sum(len(piece.encode()) for piece in pieces) <= BYTES_MAX:
        return "".join(pieces)
    room = BYTES_MAX - len(_SHORTENED) - _DIGEST_CHARACTERS
    kept = 0
    for piece in pieces:
        room -= len(piece.encode())
        if room < 0:
            break
        kept += 1
    digest = hashlib.sha256(word.encode(errors="surrogatepass")).hexdigest()
    return "".join(pieces[:kept]) + _SHORTENED + digest


def readable(text: str) -> str:
    """Return the word that was stored so; a shortened one stays as it is, its end is lost."""
    if _SHORTENED in text and is_shortened(text):
        return text
    return _ESCAPED.sub(lambda m: "\\" if m[1] == "\\" else chr(int(m[2], 16)), text)


def is_shortened(text: str) -> bool:
    """True if this is what is left of a word that was too long."""
    mark = len(text) - _DIGEST_CHARACTERS - len(_SHORTENED)
    if mark < 0 or text[mark : mark + 2] != _SHORTENED:
        return False
    before = text[:mark]
    return (len(before) - len(before.rstrip("\\"))) % 2 == 0


def _escaped(character: str) -> str:
    if _REFUSED.match(character) is None:
        return character
    return "\\\\" if character == "\\" else f"\\u{ord(character):04x}"
