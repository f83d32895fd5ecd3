"""A set of window ids in 16 bytes each: tens of millions of them fit into memory, and thousands are looked up at once.

What is kept of an id is a key of 128 bits. The key of `<document>@<start>` is the hash of the document's name, plus the
start: the keys of a whole document are a sum of arrays. That two of 10^8 windows share a key has a chance below 10^-20.
"""

import hashlib
import re
import sys
from collections.abc import Iterable
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

KEY_COLUMNS = ("window_id", "document", "char_start")
RECENT = 1 << 16
"""Keys that are held as a Python set before they join the sorted array."""
KEY_BYTES = 16
_PLACE = re.compile(r"(.*)@(0|[1-9][0-9]{0,17})", re.DOTALL | re.ASCII)

Keys = NDArray[np.uint64]
"""[2, ids]."""
NO_KEYS: Keys = np.empty((2, 0), np.uint64)


class IdSet:
    """Ids as sorted keys, and the newest ones as they come."""

    def __init__(self, ids: Iterable[str] = ()) -> None:
        self._recent: set[bytes] = set()
        self._sorted = NO_KEYS  # by the second half
        self.update(ids)

    def update(self, ids: Iterable[str]) -> None:
        for window_id in ids:
            self._recent.add(_key(window_id))
            if len(self._recent) >= RECENT:
                self.add_keys(_keys(self._recent))
                self._recent = set()

    def add_keys(self, keys: Keys) -> None:
        """Many at once: everything is sorted again."""
        together = np.concatenate([self._sorted, keys], axis=1)
        self._sorted = together[:, np.argsort(together[1], kind="stable")]

    def __len__(self) -> int:
        return int(self._sorted.shape[1]) + len(self._recent)

    def __contains__(self, window_id: str) -> bool:
        key = _key(window_id)
        return key in self._recent or bool(self._are_sorted_in(_keys([key]))[0])

    def holds_places(self, document: str, char_starts: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which windows `<document>@<start>` are in the set."""
        keys = place_keys(document, char_starts)
        held = self._are_sorted_in(keys)
        if self._recent:
            joined = keys.T.tobytes()
            places = range(0, len(joined), KEY_BYTES)
            held |= np.array([joined[at : at + KEY_BYTES] in self._recent for at in places], bool)
        return held

    def _are_sorted_in(self, keys: Keys) -> NDArray[np.bool_]:
        held = np.zeros(keys.shape[1], bool)
        places, asked = np.searchsorted(self._sorted[1], keys[1]), np.arange(keys.shape[1])
        while (asked := asked[places[asked] < self._sorted.shape[1]]).size:
            first, second = self._sorted[:, places[asked]] == keys[:, asked]
            held[asked] = first & second
            # Another one may be equal in the half that they are sorted by.
            asked = asked[second & ~first]
            places[asked] += 1
        return held


def place_keys(document: str, char_starts: NDArray[np.int64]) -> Keys:
    """The keys of the windows of one document."""
    first, second = np.frombuffer(_document_hash(document), np.uint64)
    return np.stack([np.full(char_starts.size, first), char_starts.astype(np.uint64) + second])


def keys_of_file(file: pq.ParquetFile) -> Keys:
    """The keys of all windows of a table."""
    table = file.read(columns=[name for name in KEY_COLUMNS if name in file.schema_arrow.names])
    ids = table.column("window_id")
    if len(table.column_names) < len(KEY_COLUMNS):
        return _keys(map(_key, ids.to_pylist()))
    document, start = table.column("document"), table.column("char_start")
    is_place = pc.equal(ids, pc.binary_join_element_wise(document, start.cast(pa.string()), "@"))
    if not pc.all(is_place).as_py():
        return _keys(map(_key, ids.to_pylist()))
    codes = document.combine_chunks().dictionary_encode()
    keys = _keys(map(_document_hash, codes.dictionary.to_pylist()))[:, codes.indices.to_numpy()]
    keys[1] += start.to_numpy().astype(np.uint64)
    return keys


def _keys(keys: Iterable[bytes]) -> Keys:
    return np.frombuffer(b"".join(keys), np.uint64).reshape(-1, 2).T


def _key(window_id: str) -> bytes:
    place = _PLACE.fullmatch(window_id)
    if place is None:
        return hashlib.blake2b(window_id.encode(), digest_size=KEY_BYTES, person=b"rote id").digest()
    base = _document_hash(place[1])
    half = KEY_BYTES // 2
    second = (int.from_bytes(base[half:], sys.byteorder) + int(place[2])) % (1 << 64)
    return base[:half] + second.to_bytes(half, sys.byteorder)


@lru_cache(maxsize=1024)
def _document_hash(name: str) -> bytes:
    return hashlib.blake2b(name.encode(), digest_size=KEY_BYTES, person=b"rote document").digest()
