"""One process a run: an exclusive lock that the kernel releases when its holder dies, however it dies."""

import fcntl
import json
import os
import socket
from contextlib import suppress
from pathlib import Path

from rote.errors import RunError
from rote.store.atomic import open_in_place


class RunLock:
    """Holds the lock from `acquire` to `release`. The file stays behind; only the kernel's lock on it counts."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor

    @classmethod
    def acquire(cls, path: Path) -> "RunLock":
        """Take the lock on `path` or raise a RunError that names the process that has it."""
        try:
            descriptor = open_in_place(path)
        except OSError as error:
            raise RunError(
                f"Cannot write into {path.parent}: {error.strerror}; choose another folder with --out."
            ) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, json.dumps({"pid": os.getpid(), "host": socket.gethostname()}).encode(), 0)
        except BlockingIOError as error:
            holder = _holder(descriptor)
            os.close(descriptor)
            raise RunError(
                f"{path.parent} is in use by {holder}; wait for it or choose another folder with --out."
            ) from error
        except OSError as error:
            os.close(descriptor)
            raise RunError(
                f"Cannot lock {path}: {error.strerror}; choose a folder on a file system with locks."
            ) from error
        return cls(descriptor)

    def release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _holder(descriptor: int) -> str:
    with suppress(OSError, ValueError, KeyError, TypeError):
        holder = json.loads(os.pread(descriptor, 4096, 0))
        return f"process {holder['pid']} on {holder['host']}"
    return "another process"
