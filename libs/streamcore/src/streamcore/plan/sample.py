"""Sample text: lines of words that repeat as words of a language do, the same at each call."""

import random
from bisect import bisect
from collections.abc import Iterator
from functools import lru_cache
from itertools import accumulate
from typing import Final

_CONSONANTS: Final = "tnsrhdlcmfpgwybv"
_VOWELS: Final = "eaoiu"


@lru_cache(maxsize=2)
def vocabulary(distinct_words: int) -> tuple[str, ...]:
    """Return different words, the most frequent (and shortest) first.

    >>> words = vocabulary(300)
    >>> len(set(words)), len(words[0]), len(words[-1])
    (300, 2, 6)
    """
    chance = random.Random(1)  # noqa: S311  # the same words each time
    words: dict[str, None] = {}
    while len(words) < distinct_words:
        length = 2 + len(words).bit_length() // 2
        letters = (
            chance.choice(_CONSONANTS if place % 2 == 0 else _VOWELS) for place in range(length)
        )
        words["".join(letters)] = None
    return tuple(words)


def lines(words_per_line: int, distinct_words: int) -> Iterator[str]:
    """Yield lines without end; the n-th word of the vocabulary comes 1/n as often as the first."""
    words = vocabulary(distinct_words)
    weights = list(accumulate(1 / rank for rank in range(1, len(words) + 1)))
    chance = random.Random(2)  # noqa: S311
    while True:
        picks = (bisect(weights, chance.random() * weights[-1]) for _ in range(words_per_line))
        yield " ".join(words[min(pick, len(words) - 1)] for pick in picks)
