"""Files that are either there and whole, or not there at all, whatever happens while they are written."""

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
PRIVATE = 0o600


@contextmanager
def atomic_file(path: Path, *, is_private: bool = False) -> Iterator[BinaryIO]:
    """A file to write to. On a clean exit its bytes are on the disk under `path`; otherwise `path` is untouched.

    A link stays a link: what it leads to is replaced. Only a regular file is replaced, and it keeps its permissions.
    A private file can be read by its owner alone.
    """
    temporary: Path | None = None
    try:
        target = Path(os.path.realpath(path))
        mode = PRIVATE if is_private else _mode_of(target)
        temporary = target.with_name(f".{target.name}.{os.getpid()}.rote-tmp")
        with _created(temporary, mode) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
        sync_folder(target.parent)
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


def _mode_of(target: Path) -> int | None:
    """Permissions of the file to replace; None when there is none. What is no regular file is refused."""
    try:
        mode = os.stat(target).st_mode
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(mode):
        kind = "a folder" if stat.S_ISDIR(mode) else "a device, pipe or socket"
        raise StorageError(f"{target} is {kind}, not a file; give the name of a file to write.")
    return stat.S_IMODE(mode)


def _created(path: Path, mode: int | None) -> BinaryIO:
    """A new file for reading and writing, nobody else's to read before its permissions are set."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o666 if mode is None else PRIVATE)
    if mode is not None:
        os.fchmod(descriptor, mode)
    return os.fdopen(descriptor, "w+b")


def sync_folder(folder: Path) -> None:
    """Make renames and removals in `folder` survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_json(path: Path, value: Mapping[str, Any], *, is_private: bool = False) -> None:
    """Write `value` atomically as JSON, keys in their own order, non-finite numbers as in `plain_json`."""
    with atomic_file(path, is_private=is_private) as file:
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
