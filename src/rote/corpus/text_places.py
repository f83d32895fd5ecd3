"""Where a text is while nobody looks at it: in memory, in a file of its own, or with others in a temporary file.

So a corpus weighs what its names and hashes weigh; a text is read again whenever it is needed.
"""

import hashlib
import tempfile
import weakref
from dataclasses import dataclass
from typing import Protocol

from rote.corpus.plain import read_plain_text
from rote.errors import TextError

SPOOL_BYTES = 1 << 26
"""Records beyond that are kept on the disk, in the folder for temporary files."""


class TextPlace(Protocol):
    def read(self) -> str: ...


@dataclass(frozen=True, slots=True)
class InMemory:
    text: str

    def read(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class InFile:
    """The whole of a text file, which must stay as it was when it was hashed."""

    path: str
    content_hash: str

    def read(self) -> str:
        text = read_plain_text(self.path)
        if hash_text(text) != self.content_hash:
            raise TextError(f"{self.path} was changed while it was scanned; run the same command again.")
        return text


class Spool:
    """Texts behind each other in a temporary file that has no name and goes with the last of its places."""

    def __init__(self) -> None:
        self._file = tempfile.SpooledTemporaryFile(max_size=SPOOL_BYTES)  # noqa: SIM115
        weakref.finalize(self, self._file.close)
        self._size = 0

    def add(self, text: str) -> "InSpool":
        content = text.encode()
        self._file.seek(self._size)
        self._file.write(content)
        self._size += len(content)
        return InSpool(self, self._size - len(content), len(content))

    def read(self, start: int, size: int) -> str:
        self._file.seek(start)
        return self._file.read(size).decode()


@dataclass(frozen=True, slots=True)
class InSpool:
    spool: Spool
    start: int
    size: int

    def read(self) -> str:
        return self.spool.read(self.start, self.size)


def hash_text(text: str) -> str:
    """SHA-256 of the UTF-8 bytes."""
    return hashlib.sha256(text.encode()).hexdigest()
