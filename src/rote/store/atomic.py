"""Files that are either there and whole, or not there at all, whatever happens while they are written."""

import json
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from rote.errors import StorageError

TEMPORARY = re.compile(r"\.(?P<target>.+)\.\d+\.rote-tmp")


@contextmanager
def atomic_file(path: Path) -> Iterator[BinaryIO]:
    """A file to write to. On a clean exit its bytes are on the disk under `path`; otherwise `path` is untouched."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.rote-tmp")
    try:
        with open(temporary, "wb") as file:
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


def sync_folder(folder: Path) -> None:
    """Make renames and removals in `folder` survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write `value` atomically as JSON, keys in their own order, non-finite numbers as in `plain_json`."""
    text = json.dumps(plain_json(value), indent=2, ensure_ascii=False, allow_nan=False)
    with atomic_file(path) as file:
        # A lone surrogate (a file name in the command line, say) is escaped rather than refused.
        file.write(text.encode("utf-8", "backslashreplace") + b"\n")


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
