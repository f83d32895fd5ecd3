"""What controls share with targets: runs of eight words, compared as 64-bit hashes, whatever the layout.

A word is a run of letters and digits; case, punctuation and white space do not count. In scripts that are written
without blanks every character is a word of its own. Two different runs get the same hash with a chance of 2⁻⁶⁴.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from byrote.corpus.read import Document
from byrote.corpus.select import Hashes, mixed
from byrote.types import Split, Window

Places = NDArray[np.int64]

RUN_WORDS = 8
LEAST_SHARE = 0.5
GROUP_RUNS = 1 << 21
"""Runs of one group of controls: about 100 MB, and two million words (a dozen books) go through the targets once."""
SHARE_COLUMN = "shared_share"
WITH_COLUMN = "shared_with"
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


class Passages(NamedTuple):
    """Shared passages of one control document, in order and disjoint, each with a target that holds it."""

    starts: Places
    ends: Places
    targets: NDArray[np.int64]


NO_PASSAGES = Passages(*(np.empty(0, np.int64) for _ in range(3)))


@dataclass(frozen=True, slots=True)
class SharedText:
    """What the controls of a corpus share with its targets."""

    targets: dict[int, str] = field(default_factory=dict)
    """Names of the targets that passages are shared with."""
    passages: dict[str, Passages] = field(default_factory=dict)
    """By control document; documents that share nothing are not listed."""

    def share_of(self, document: str, start: int, end: int) -> tuple[float, str | None]:
        """Share of the characters `start` to `end` of a control document that occur in targets, and the name of the
        target that holds most of them."""
        found = self.passages.get(document)
        if found is None or end <= start:
            return 0.0, None
        first, last = np.searchsorted(found.ends, start, "right"), np.searchsorted(found.starts, end, "left")
        if first >= last:
            return 0.0, None
        overlap = np.minimum(found.ends[first:last], end) - np.maximum(found.starts[first:last], start)
        by_target = np.bincount(found.targets[first:last], weights=overlap)
        return float(overlap.sum()) / (end - start), self.targets[int(by_target.argmax())]


def find_shared(documents: Iterable[Document]) -> SharedText:
    """The shared passages of every control. `documents` is iterated once, and once more for every group."""
    shared = SharedText()
    for group in _groups(document for document in documents if document.split is Split.CONTROL):
        hashes: Hashes = np.unique(np.concatenate([runs.hashes for _, runs in group]))
        first_target = np.full(hashes.size, -1, np.int64)  # [runs] number of the first target that holds it
        for number, target in enumerate(documents):
            for runs in runs_of(target.text, RUN_WORDS) if target.split is Split.TARGET else ():
                places = np.minimum(np.searchsorted(hashes, runs.hashes), hashes.size - 1)
                found = places[(hashes[places] == runs.hashes) & (first_target[places] < 0)]
                first_target[found] = number
                if found.size:
                    shared.targets[number] = target.name
        for name, runs in group:
            targets = first_target[np.searchsorted(hashes, runs.hashes)]
            is_held = targets >= 0
            if is_held.any():
                held = runs.starts[is_held], runs.ends[is_held], targets[is_held]
                earlier = shared.passages.get(name, NO_PASSAGES)
                shared.passages[name] = _joined(*map(np.concatenate, zip(earlier, held, strict=True)))
    return shared


def mark_shared(windows: Iterable[Window], shared: SharedText) -> Iterator[Window]:
    """The same windows, each with its two columns: nulls for targets, which cannot leak into themselves."""
    for window in windows:
        share, target = None, None
        if window.split is Split.CONTROL:
            share, target = shared.share_of(window.document, window.suffix_char_start, window.char_end)
        columns = {SHARE_COLUMN: share, WITH_COLUMN: target if (share or 0.0) >= LEAST_SHARE else None}
        yield replace(window, further={**window.further, **columns})


def _joined(starts: Places, ends: Places, targets: NDArray[np.int64]) -> Passages:
    """Stretches that overlap and occur in the same target, as one passage each."""
    # They come in order, and later ones end later: only neighbours can overlap.
    begins = np.concatenate([[True], (starts[1:] >= ends[:-1]) | (targets[1:] != targets[:-1])])
    firsts = np.flatnonzero(begins)
    lasts = np.append(firsts[1:], starts.size) - 1
    # Where the target changes inside an overlap, the earlier passage ends where the later one begins.
    stops = np.minimum(ends[lasts], np.append(starts[firsts[1:]], ends[-1]))
    return Passages(starts[firsts], stops, targets[firsts])


def _groups(controls: Iterable[Document]) -> Iterator[list[tuple[str, "WordSpans"]]]:
    """The runs of the controls, each with its document's name, in groups of about GROUP_RUNS."""
    group: list[tuple[str, WordSpans]] = []
    size = 0
    for control in controls:
        for runs in runs_of(control.text, RUN_WORDS):
            group.append((control.name, runs))
            size += runs.hashes.size
            if size >= GROUP_RUNS:
                yield group
                group, size = [], 0
    if group:
        yield group


class WordSpans(NamedTuple):
    """Words of a text, or runs of its words, in order: their hashes, and the characters they span."""

    hashes: Hashes
    starts: Places
    ends: Places


NO_SPANS = WordSpans(np.empty(0, np.uint64), np.empty(0, np.int64), np.empty(0, np.int64))


def runs_of(text: str, words: int) -> Iterator[WordSpans]:
    """The runs of `words` consecutive words, in pieces of bounded size."""
    hashes, starts, ends = NO_SPANS
    for offset, piece in _pieces(text):
        found = _words_of(piece, offset)
        hashes = np.concatenate([hashes, found.hashes])
        starts, ends = np.concatenate([starts, found.starts]), np.concatenate([ends, found.ends])
        count = max(0, hashes.size - words + 1)
        if count:
            yield WordSpans(_run_hashes(hashes, words), starts[:count], ends[words - 1 :])
        # The last words of a piece begin runs that end in the next.
        hashes, starts, ends = hashes[count:], starts[count:], ends[count:]


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


def _words_of(text: str, offset: int) -> WordSpans:
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
        return NO_SPANS
    lengths = np.diff(np.append(firsts, places.size))
    within = np.arange(places.size) - np.repeat(firsts, lengths)
    powers = _powers(_LETTER_BASE, int(lengths.max()))
    sums = np.add.reduceat(letters[places].astype(np.uint64) * powers[within], firsts)
    starts = places[firsts].astype(np.int64) + offset
    return WordSpans(mixed(sums), starts, starts + lengths)


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
    """Code point → its lower case, 0 for what is neither a letter nor a digit."""
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
