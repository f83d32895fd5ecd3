"""Sealed files: each holds the hash of its own bytes, so that a changed one is noticed whoever changed it, and how.

The seal is the word `rote-seal:` and 64 hexadecimal digits, near the end of the file: the SHA-256 of the whole file
with zeros in the place of the digits. JSON keeps it as its last entry, Parquet in the metadata of its footer.
"""

import hashlib
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from rote.errors import DamageError, RunError
from rote.files import read_bytes, require_regular
from rote.store.atomic import atomic_file, json_bytes

MARK = b"rote-seal:"
DIGITS = 64
OPEN_SEAL = (MARK + b"0" * DIGITS).decode()
"""What stands in the file until it is sealed."""
SEAL_KEY = "seal"
TAIL_BYTES = 1 << 16
CHUNK_BYTES = 1 << 20
RUN_AGAIN = "make the run again, in another folder or with --fresh"


class _Seal(NamedTuple):
    """Where the digits are, what they say, and what they should say."""

    place: int
    stored: bytes
    digest: bytes


def seal(file: BinaryIO) -> None:
    """Fill in the open seal of a file that can be read and written."""
    found = _seal_of(file)
    assert found is not None, "there is no seal to fill in"
    file.seek(found.place)
    file.write(found.digest)


def is_sealed(file: BinaryIO) -> bool:
    """Whether every byte is as it was when the file was sealed."""
    found = _seal_of(file)
    return found is not None and found.stored == found.digest


def hash_file(path: Path) -> str:
    """SHA-256 of a file's bytes."""
    require_regular(path)
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_sealed_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write atomically, the seal as the last entry."""
    with atomic_file(path) as file:
        file.write(json_bytes({**value, SEAL_KEY: OPEN_SEAL}))
        seal(file)


def read_sealed_json(path: Path, *, advice: str = RUN_AGAIN) -> dict[str, Any] | None:
    """The value without its seal; None when there is no file; a DamageError when it is not as it was written."""
    try:
        content = read_bytes(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise RunError(f"Cannot read {path}: {error.strerror}.") from error
    if not is_sealed(io.BytesIO(content)):
        raise damaged(path, f"its {len(content):,} bytes do not fit its seal", advice=advice)
    value: dict[str, Any] = json.loads(content)
    del value[SEAL_KEY]
    return value


def damaged(path: Path, finding: str, *, advice: str = RUN_AGAIN) -> DamageError:
    return DamageError(f"{path} is damaged or was changed ({finding}); restore it from a copy, or {advice}.")


def _seal_of(file: BinaryIO) -> _Seal | None:
    size = file.seek(0, io.SEEK_END)
    tail_start = max(0, size - TAIL_BYTES)
    file.seek(tail_start)
    # The last mark is ours: texts and names, which may hold anything, stand before it.
    place = tail_start + file.read().rfind(MARK) + len(MARK)
    if place < tail_start + len(MARK) or place + DIGITS > size:
        return None
    digest = hashlib.sha256()
    file.seek(0)
    _update(digest, file, place)
    stored = file.read(DIGITS)
    digest.update(b"0" * DIGITS)
    _update(digest, file, size - place - DIGITS)
    return _Seal(place, stored, digest.hexdigest().encode())


def _update(digest: "hashlib._Hash", file: BinaryIO, size: int) -> None:
    while size > 0:
        chunk = file.read(min(size, CHUNK_BYTES))
        digest.update(chunk)
        size -= len(chunk) or size
