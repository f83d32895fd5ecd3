"""Shards: a run divided among processes that know nothing of each other.

Which shard a window belongs to follows from its id alone, so every process finds its own windows, in any order.
"""

import hashlib
import re
from dataclasses import dataclass

from rote.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Shard:
    """Shard `index` of `count`, counted from 0."""

    index: int
    count: int

    def holds(self, window_id: str) -> bool:
        digest = hashlib.blake2b(window_id.encode(), digest_size=8, person=b"rote shard").digest()
        return int.from_bytes(digest, "big") % self.count == self.index

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"


def parse_shard(text: str) -> Shard:
    """A shard written as `0/3`."""
    found = re.fullmatch(r"(\d{1,9})/(\d{1,9})", text)
    if found is None or int(found[1]) >= int(found[2]):
        raise ConfigError(f"shard is {text!r}; of three shards the first is 0/3 and the last 2/3.")
    return Shard(int(found[1]), int(found[2]))
