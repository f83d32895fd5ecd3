"""Runs of words as numbers: what two texts share is found by comparing 64-bit hashes, whatever the layout.

A word is a run of letters and digits; case, punctuation and white space do not count. In scripts that are written
without blanks every character is a word of its own. Two different runs get the same hash with a chance of 2⁻⁶⁴.
"""

from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rote.corpus.hashes import Hashes, mixed

Places = NDArray[np.int64]

CHUNK_CHARACTERS = 1 << 20
"""Longer texts are hashed piece by piece, so that memory does not grow with them."""
CODE_POINTS = 0x110000
FIRST_SUPPLEMENTARY_IDEOGRAPH, LAST_IDEOGRAPH = 0x20000, 0x3FFFF
WITHOUT_BLANKS = (
    (0x0E00, 0x109F),  # Thai, Lao, Tibetan, Myanmar
    (0x1780, 0x17FF),  # Khmer
    (0x3040, 0x30FF),  # Hiragana, Katakana
    (0x3400, 0x9FFF),  # ideographs
    (0xF900, 0xFAFF),
    (FIRST_SUPPLEMENTARY_IDEOGRAPH, LAST_IDEOGRAPH),
)
_LETTER_BASE = np.uint64(0x9E3779B97F4A7C15)
_WORD_BASE = np.uint64(0xD1342543DE82EF95)


class Runs(NamedTuple):
    """Every run of so many words of a text, in order: its hash and the characters it spans."""

    hashes: Hashes
    starts: Places
    ends: Places


class _Words(NamedTuple):
    hashes: Hashes
    starts: Places
    ends: Places

    def tail(self, count: int) -> "_Words":
        keep = slice(max(0, len(self.hashes) - count), None)
        return _Words(self.hashes[keep], self.starts[keep], self.ends[keep])

    def followed_by(self, other: "_Words") -> "_Words":
        return _Words(*(np.concatenate(pair) for pair in zip(self, other, strict=True)))


def runs_of(text: str, words: int) -> Iterator[Runs]:
    """The runs of `words` consecutive words, in pieces of bounded size."""
    carried = _Words(np.empty(0, np.uint64), np.empty(0, np.int64), np.empty(0, np.int64))
    for start, piece in _pieces(text):
        found = carried.followed_by(_words_of(piece, start))
        count = len(found.hashes) - words + 1
        if count > 0:
            yield Runs(_run_hashes(found.hashes, words), found.starts[:count], found.ends[words - 1 :])
        carried = found.tail(words - 1)


def _pieces(text: str) -> Iterator[tuple[int, str]]:
    """The text in pieces that end between words; a word of more than a million letters is cut."""
    start = 0
    while start < len(text):
        end = start + CHUNK_CHARACTERS
        while start < end < len(text) and text[end - 1].isalnum():
            end -= 1
        end = end if end > start else start + CHUNK_CHARACTERS
        yield start, text[start:end]
        start = end


def _words_of(text: str, offset: int) -> _Words:
    points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")
    letters = _letters()[points]
    is_letter = letters > 0
    stands_alone = is_letter & _stands_alone()[points]
    ends_word = ~is_letter | stands_alone
    # A word begins at a letter whose neighbour on the left is none, or stands alone, or that stands alone itself.
    begins = is_letter & (stands_alone | np.concatenate([[True], ends_word[:-1]]))
    places = np.flatnonzero(is_letter)
    firsts = np.flatnonzero(begins[places])
    if not firsts.size:
        return _Words(np.empty(0, np.uint64), np.empty(0, np.int64), np.empty(0, np.int64))
    lengths = np.diff(np.append(firsts, places.size))
    within = np.arange(places.size) - np.repeat(firsts, lengths)
    powers = _powers(_LETTER_BASE, int(lengths.max()))
    sums = np.add.reduceat(letters[places].astype(np.uint64) * powers[within], firsts)
    starts = places[firsts].astype(np.int64) + offset
    return _Words(mixed(sums), starts, starts + lengths)


def _run_hashes(words: Hashes, length: int) -> Hashes:
    count = words.size - length + 1
    total = np.zeros(count, np.uint64)
    for place, power in enumerate(_powers(_WORD_BASE, length)):
        total += words[place : place + count] * power
    return mixed(total)


def _powers(base: np.uint64, count: int) -> Hashes:
    powers = np.full(count, base, np.uint64)
    powers[:1] = 1
    return np.asarray(np.cumprod(powers, dtype=np.uint64))


@cache
def _letters() -> NDArray[np.uint32]:
    """Code point → its lower case, 0 for what is no letter or digit."""
    table = np.arange(CODE_POINTS, dtype=np.uint32)
    for point in range(FIRST_SUPPLEMENTARY_IDEOGRAPH):
        character = chr(point)
        lower = character.lower() if character.isalnum() else "\0"
        # A few letters have a lower case of two characters; they stay as they are.
        table[point] = ord(lower) if len(lower) == 1 else point
    table[LAST_IDEOGRAPH + 1 :] = 0
    return table


@cache
def _stands_alone() -> NDArray[np.bool_]:
    """Code point → whether its script is written without blanks."""
    table = np.zeros(CODE_POINTS, np.bool_)
    for first, last in WITHOUT_BLANKS:
        table[first : last + 1] = True
    return table
