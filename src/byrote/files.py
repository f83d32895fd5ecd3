"""Reading what a user names: regular files only, so that nothing waits at a pipe or wakes a device; JSON within limits.

Refusals are OSError and ValueError with plain words, which every reader turns into its own sentence.
"""

import errno
import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import Any

_KINDS = {
    stat.S_IFDIR: "it is a folder",
    stat.S_IFIFO: "it is a pipe, not a file",
    stat.S_IFSOCK: "it is a socket, not a file",
    stat.S_IFCHR: "it is a device, not a file",
    stat.S_IFBLK: "it is a device, not a file",
}


def require_regular(path: str | Path) -> None:
    """Raise an OSError unless `path` leads to a regular file."""
    try:
        mode = os.stat(path).st_mode
    except ValueError as error:  # a zero byte, half of a surrogate pair: no file has such a name
        raise FileNotFoundError(errno.ENOENT, "no file can have this name", os.fspath(path)) from error
    _check(mode, path)


def read_bytes(path: str | Path, *, most: int | None = None) -> bytes:
    """The content of a regular file, or its first `most` bytes."""
    with open_regular(path) as file:
        return file.read(-1 if most is None else most)


@contextmanager
def open_regular(path: str | Path) -> Iterator[BufferedReader]:
    """A regular file, to be read."""
    require_regular(path)
    # Without waiting, and looked at again: the name may lead elsewhere by now.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        _check(os.fstat(descriptor).st_mode, path)
        yield file


def _check(mode: int, path: str | Path) -> None:
    if words := _KINDS.get(stat.S_IFMT(mode)):
        raise OSError(errno.EINVAL, words, os.fspath(path))


def parse_json(text: str | bytes) -> Any:
    """The value, or a ValueError: also for names given twice, and for nesting or numbers beyond Python's limits."""
    try:
        return json.loads(text, object_pairs_hook=_unique)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise ValueError("a name is given twice")
    return fields
