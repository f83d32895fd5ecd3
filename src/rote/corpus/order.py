"""The order in which window starts are chosen: every document gives its share, whatever number is taken.

Start j of a document with w starts has rank (j + u) / w, with one u in [0, 1) per document. The N starts of smallest
rank, out of W, then hold a share N/W of every document's starts, give or take one: a proportionate stratified sample.
Inside a document starts are numbered as they stand in the text (a limit) or in the order of a hash (a sample); u is
smallest for the document given first (a limit) or a hash (a sample). A hash depends on the document's name, the
position and the seed alone.
"""

import hashlib
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rote.corpus.hashes import Hashes, mixed

SLACK = 4096


class Ranked(NamedTuple):
    """Starts by number of their document and first character, smallest rank first."""

    documents: NDArray[np.int64]
    char_starts: NDArray[np.int64]

    def behind(self, count: int) -> "Ranked":
        """Without the first `count`."""
        return Ranked(self.documents[count:], self.char_starts[count:])


class SmallestRanks:
    """The `size` starts of smallest rank among all that are added, in memory for some four times as many."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._pieces: list[tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]] = []
        self._held = 0
        self._bound = np.inf

    def add(self, document: int, char_starts: NDArray[np.int64], ranks: NDArray[np.float64]) -> None:
        kept = ranks <= self._bound
        starts = char_starts[kept]
        self._pieces.append((ranks[kept], np.full(starts.size, document), starts))
        self._held += starts.size
        if self._held > 4 * self._size + SLACK:
            self._shrink()

    def ranked(self) -> Ranked:
        self._shrink()
        return Ranked(*self._pieces[0][1:]) if self._pieces else Ranked(np.empty(0, np.int64), np.empty(0, np.int64))

    def _shrink(self) -> None:
        if not self._pieces:
            return
        ranks, documents, starts = (np.concatenate(parts) for parts in zip(*self._pieces, strict=True))
        order = np.lexsort((starts, documents, ranks))[: self._size]
        self._pieces = [(ranks[order], documents[order], starts[order])]
        self._held = order.size
        if order.size == self._size:
            self._bound = float(ranks[order[-1]])


def limit_ranks(place: int, char_starts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Ranks of a document's starts in text order; `place` is the document's number."""
    return (np.arange(char_starts.size) + place / (place + 1)) / char_starts.size


def sample_ranks(name: str, char_starts: NDArray[np.int64], seed: int) -> NDArray[np.float64]:
    """Ranks of a document's starts in the order of their hashes."""
    keys = sample_keys(name, char_starts, seed)
    order = np.empty(char_starts.size)
    order[np.argsort(keys, kind="stable")] = np.arange(char_starts.size)
    return (order + float(sample_keys(name, np.array([-1]), seed)[0]) / 2**64) / char_starts.size


def sample_keys(name: str, char_starts: NDArray[np.int64], seed: int) -> Hashes:
    """A 64-bit number for each start that depends on the document's name, the position and the seed alone."""
    digest = hashlib.blake2b(name.encode(), digest_size=8, key=str(seed).encode()).digest()
    base = np.uint64(int.from_bytes(digest, "big"))
    # The generator splitmix64: a counter in odd steps, mixed.
    return mixed(base + (char_starts.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15))
