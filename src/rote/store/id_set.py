"""A set of window ids in 16 bytes each: tens of millions of them fit into memory.

What is kept of an id is a hash of 128 bits. That two of 10^8 ids share one has a chance of 10^-23.
"""

import hashlib
from collections.abc import Iterable

import numpy as np

RECENT = 1 << 16
"""Hashes that are held as a Python set before they join the sorted arrays."""


class IdSet:
    def __init__(self, ids: Iterable[str] = ()) -> None:
        self._recent: set[bytes] = set()
        # Sorted by the first half; equal ones, which hardly occur, stand beside each other.
        self._first, self._second = np.empty(0, np.uint64), np.empty(0, np.uint64)
        self.update(ids)

    def update(self, ids: Iterable[str]) -> None:
        for window_id in ids:
            self._recent.add(_hash(window_id))
            if len(self._recent) >= RECENT:
                self._settle()

    def __contains__(self, window_id: str) -> bool:
        digest = _hash(window_id)
        if digest in self._recent:
            return True
        first, second = np.frombuffer(digest, np.uint64)
        place = int(np.searchsorted(self._first, first))
        while place < self._first.size and self._first[place] == first:
            if self._second[place] == second:
                return True
            place += 1
        return False

    def _settle(self) -> None:
        added = np.frombuffer(b"".join(self._recent), np.uint64).reshape(-1, 2)
        added = added[np.argsort(added[:, 0])]
        places = np.searchsorted(self._first, added[:, 0])
        self._first = np.insert(self._first, places, added[:, 0])
        self._second = np.insert(self._second, places, added[:, 1])
        self._recent = set()


def _hash(window_id: str) -> bytes:
    return hashlib.blake2b(window_id.encode(), digest_size=16).digest()
