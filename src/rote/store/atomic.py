"""How rote creates files and folders: whole or not at all, for their owner alone, and never through a link."""

import json
import math
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from rote.errors import StorageError

TEMPORARY = re.compile(r"\.(?P<target>.+)\.(?P<process>\d+)\.rote-tmp", re.DOTALL)
OWNER_FILE, OWNER_FOLDER = 0o600, 0o700
"""Permissions, which no umask widens: files hold texts and answers."""


@contextmanager
def atomic_file(path: Path) -> Iterator[BinaryIO]:
    """A file to write to. On a clean exit its bytes are on the disk under `path`; otherwise `path` is untouched.

    Its owner alone can read it, whatever the umask and whatever it replaces. Only a regular file is replaced.
    """
    temporary: Path | None = None
    try:
        _require_replaceable(path)
        temporary = path.with_name(f".{path.name}.{os.getpid()}.rote-tmp")
        with _created(temporary) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        sync_folder(path.parent)
    except BaseException as error:
        if temporary is not None:
            with suppress(OSError):
                os.unlink(temporary)
        if isinstance(error, OSError):
            raise StorageError(
                f"Cannot write {path}: {error.strerror or error}. Everything finished before is kept; "
                "make room or choose another folder, then run the same command again."
            ) from error
        raise


def _require_replaceable(path: Path) -> None:
    refuse_link(path)
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISREG(mode):
        kind = "a folder" if stat.S_ISDIR(mode) else "a device, pipe or socket"
        raise StorageError(f"{path} is {kind}, not a file; give the name of a file to write.")


def refuse_link(path: Path) -> None:
    """A link in a folder that came from elsewhere would lead writes to any file of the user."""
    if path.is_symlink():
        raise StorageError(f"{path} is a link, and rote writes through none; take it away, or write elsewhere.")


def _created(path: Path) -> BinaryIO:
    """A new file for reading and writing. One that a killed process of the same number left is removed."""
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    try:
        descriptor = os.open(path, flags, OWNER_FILE)
    except FileExistsError:
        os.unlink(path)
        descriptor = os.open(path, flags, OWNER_FILE)
    return os.fdopen(descriptor, "w+b")


def open_in_place(path: Path, flags: int = 0) -> int:
    """A descriptor of the file at `path` for reading and writing; it is created if need be.

    Afterwards its owner alone can read it. A link is an OSError.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | flags, OWNER_FILE)
    try:
        if stat.S_IMODE(os.fstat(descriptor).st_mode) & ~OWNER_FILE:
            os.fchmod(descriptor, OWNER_FILE)
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
    if isinstance(value, float):
        return value if math.isfinite(value) else non_finite_name(value)
    if isinstance(value, Mapping):
        return {str(key): plain_json(entry) for key, entry in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [plain_json(entry) for entry in value]
    return value


def non_finite_name(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"
