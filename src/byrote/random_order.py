"""The random order in which a run measures its windows. It follows from their names and the seed alone, so that resumed
runs, shards and executors agree; wherever a run stops, what it measured is a random sample.
"""

import hashlib
import heapq
from collections.abc import Iterable, Iterator

from byrote.types import Window


def sample_key(window_id: str, seed: int) -> bytes:
    """A random-looking key that depends on the id and the seed alone: the smallest keys are a uniform sample."""
    return hashlib.blake2b(window_id.encode(), digest_size=16, key=str(seed).encode()).digest()


class MeasuredOrder:
    """How far the order is measured without a gap. Windows that are measured quickly are finished first, so all that
    are finished would be too many cheap ones; up to `mark`, the key of the last window that has no open one before it,
    they are a random sample."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._open: list[bytes] = []
        self._ended: set[bytes] = set()
        self.mark: bytes | None = None

    def begin(self, windows: Iterable[Window]) -> Iterator[Window]:
        for window in windows:
            heapq.heappush(self._open, sample_key(window.window_id, self._seed))
            yield window

    def end(self, window_id: str) -> None:
        self._ended.add(sample_key(window_id, self._seed))
        while self._open and self._open[0] in self._ended:
            key = heapq.heappop(self._open)
            self._ended.remove(key)
            # Windows that replace short ones come last, from anywhere in the order.
            self.mark = key if self.mark is None else max(self.mark, key)
