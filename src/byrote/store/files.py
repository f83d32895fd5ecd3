"""How byrote writes its files, and how a reader checks that they are as they were written.

Files are created whole or not at all, for their owner alone, and never through a link. Integrity follows one scheme:

- A sealed file carries the SHA-256 of its own bytes: identity.json, parts.json and manifest.json as their last entry,
  every Parquet table of an unfinished run in its footer, beside its name and the id of its run (`tables.py`).
- parts.json lists the parts of an unfinished run, so that a missing one is noticed (`parts.py`).
- manifest.json, written last, binds every file of a finished run by size and SHA-256 (`manifest.py`).
- written.json in the folder of a report or an export has size and SHA-256 of what was written there.
- Journals grow line by line; each line carries the hash of the one before (`journal.py`).
"""

import fcntl
import hashlib
import io
import json
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from byrote.errors import DamageError, RunError, StorageError
from byrote.files import open_regular, read_bytes

TEMPORARY = re.compile(r"\.(?P<target>.+)\.(?P<process>\d+)\.byrote-tmp", re.DOTALL)
OWNER_FILE, OWNER_FOLDER = 0o600, 0o700
"""Permissions, which no umask widens: files hold texts and answers."""
MARK = b"byrote-seal:"
DIGITS = 64
OPEN_SEAL = (MARK + b"0" * DIGITS).decode()
"""In the place of the seal until a file is sealed."""
TAIL_BYTES = 1 << 16
"""The seal is within the last bytes of its file."""
CHUNK_BYTES = 1 << 20
WRITTEN = "written.json"
RUN_AGAIN = "make the run again, in another folder or with --fresh"


@contextmanager
def atomic_file(path: Path) -> Iterator[BinaryIO]:
    """A file to write to. On a clean exit its bytes are on the disk under `path`; otherwise `path` is untouched.

    Its owner alone can read it, whatever the umask and whatever it replaces. Only a regular file is replaced.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.byrote-tmp")
    try:
        refuse_link(path)
        if path.exists() and not path.is_file():
            kind = "a folder" if path.is_dir() else "a device, pipe or socket"
            raise StorageError(f"{path} is {kind}, not a file; give the name of a file to write.")
        with _created(temporary) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        sync_folder(path.parent)
    except BaseException as error:
        with suppress(OSError):
            os.unlink(temporary)
        if isinstance(error, OSError):
            raise StorageError(
                f"Cannot write {path}: {error.strerror or error}. Everything finished before is kept; "
                "make room or choose another folder, then run the same command again."
            ) from error
        raise


def refuse_link(path: Path) -> None:
    """A link in a folder that came from elsewhere would lead writes to any file of the user."""
    if path.is_symlink():
        raise StorageError(f"{path} is a link, and byrote does not write through links; remove it, or write elsewhere.")


def _created(path: Path) -> BinaryIO:
    """A new file for reading and writing. One that a killed process of the same number left is removed."""
    path.unlink(missing_ok=True)
    return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, OWNER_FILE), "w+b")


def open_in_place(path: Path, flags: int = 0) -> int:
    """A descriptor of the file at `path` for reading and writing; it is created if need be.

    Afterwards its owner alone can read it. A link is an OSError.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | flags, OWNER_FILE)
    try:
        os.fchmod(descriptor, OWNER_FILE)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def open_locked(path: Path) -> int:
    """As `open_in_place`, under the kernel's lock until it is closed; a BlockingIOError if another process has that."""
    descriptor = open_in_place(path)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def make_folder(path: Path, *, inside: Path) -> None:
    """Make `path` and every folder on the way from `inside`, for their owner alone; none of them may be a link.

    `inside` is a folder that the user named: it is made too, and may be a link.
    """
    inside.mkdir(OWNER_FOLDER, parents=True, exist_ok=True)
    for name in path.relative_to(inside).parts:
        inside /= name
        refuse_link(inside)
        inside.mkdir(OWNER_FOLDER, exist_ok=True)


def sync_folder(folder: Path) -> None:
    """Make renames and removals in `folder` survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write `value` atomically as JSON, keys in their own order, non-finite numbers as in `plain_json`."""
    with atomic_file(path) as file:
        file.write(json_bytes(value))


def json_bytes(value: Mapping[str, Any]) -> bytes:
    text = json.dumps(plain_json(value), indent=2, ensure_ascii=False, allow_nan=False)
    # A lone surrogate (a file name in the command line, say) is escaped rather than refused.
    return text.encode("utf-8", "backslashreplace") + b"\n"


def plain_json(value: Any) -> Any:
    """The same value in JSON's own types. NaN and infinities, which JSON lacks, become the strings "NaN",
    "Infinity" and "-Infinity"; null keeps meaning absent.
    """
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Mapping):
        return {str(key): plain_json(entry) for key, entry in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [plain_json(entry) for entry in value]
    return value


def hash_file(path: Path) -> str:
    """SHA-256 of a file's bytes."""
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def bound(folder: Path, files: Iterable[Path]) -> dict[str, dict[str, Any]]:
    """Size and SHA-256 of `files` inside `folder`, by name."""
    return {
        file.relative_to(folder).as_posix(): {"bytes": file.stat().st_size, "sha256": hash_file(file)} for file in files
    }


def require_bound(folder: Path, name: str, entry: Mapping[str, Any], *, advice: str = RUN_AGAIN) -> None:
    """Raise a DamageError unless the file is the one that `bound` has seen."""
    file = folder / name
    try:
        size, digest = file.stat().st_size, hash_file(file)
    except FileNotFoundError:
        raise damaged(file, "it is missing", advice=advice) from None
    except OSError as error:
        raise RunError(f"Cannot read {file}: {error.strerror}.") from error
    if size != entry["bytes"]:
        raise damaged(file, f"it has {size:,} bytes, {entry['bytes']:,} were written", advice=advice)
    if digest != entry["sha256"]:
        found = f"its hash is {digest[:8]}…, that of the file written {entry['sha256'][:8]}…"
        raise damaged(file, found, advice=advice)


def note_written(folder: Path, files: Iterable[Path]) -> None:
    """Add `files` inside `folder`, just written, to its written.json; what is gone from the folder leaves it."""
    kept = {name: entry for name, entry in noted_before(folder).items() if (folder / name).exists()}
    write_sealed_json(folder / WRITTEN, {"files": kept | bound(folder, files)})


def noted_before(folder: Path) -> dict[str, Any]:
    """The files in the folder's written.json, by name; none where it is not as it was written."""
    try:
        found: dict[str, Any] = (read_sealed_json(folder / WRITTEN) or {}).get("files", {})
    except DamageError:
        return {}
    return found


def write_sealed_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write atomically, the seal as the last entry."""
    with atomic_file(path) as file:
        file.write(json_bytes({**value, "seal": OPEN_SEAL}))
        seal(file)


def read_sealed_json(path: Path, *, advice: str = RUN_AGAIN) -> dict[str, Any] | None:
    """The value without its seal; None when there is no file; a DamageError when it is not as it was written."""
    try:
        content = read_bytes(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise RunError(f"Cannot read {path}: {error.strerror}.") from error
    require_sealed(io.BytesIO(content), path, advice=advice)
    value: dict[str, Any] = json.loads(content)
    del value["seal"]
    return value


def seal(file: BinaryIO) -> None:
    """Fill in the open seal of a file that can be read and written."""
    found = _seal_of(file)
    assert found is not None, "there is no seal to fill in"
    position, _, digest = found
    file.seek(position)
    file.write(digest)


def require_sealed(file: BinaryIO, path: Path, *, advice: str = RUN_AGAIN) -> None:
    """Raise a DamageError unless every byte is as it was when the file was sealed."""
    found = _seal_of(file)
    if found is None or found[1] != found[2]:
        raise damaged(path, f"its {file.seek(0, io.SEEK_END):,} bytes do not match its seal", advice=advice)


def damaged(path: Path, finding: str, *, advice: str = RUN_AGAIN) -> DamageError:
    return DamageError(f"{path} is damaged or was changed ({finding}); restore it from a copy, or {advice}.")


def _seal_of(file: BinaryIO) -> tuple[int, bytes, bytes] | None:
    """Position of the seal's digits, the digits there, and those that fit the file; None where there is no seal.

    The digest is that of the file with zeros for digits.
    """
    size = file.seek(0, io.SEEK_END)
    tail_start = max(0, size - TAIL_BYTES)
    file.seek(tail_start)
    # The last mark is ours: texts and names, which may hold anything, stand before it.
    found = file.read().rfind(MARK)
    position = tail_start + found + len(MARK)
    if found < 0 or position + DIGITS > size:
        return None
    digest = hashlib.sha256()
    file.seek(0)
    _update(digest, file, position)
    stored = file.read(DIGITS)
    digest.update(b"0" * DIGITS)
    _update(digest, file, size - position - DIGITS)
    return position, stored, digest.hexdigest().encode()


def _update(digest: "hashlib._Hash", file: BinaryIO, size: int) -> None:
    while size > 0:
        chunk = file.read(min(size, CHUNK_BYTES))
        digest.update(chunk)
        size -= len(chunk) or size
