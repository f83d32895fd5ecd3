"""What a run of a served model has asked and was answered.

.requests counts the requests that were sent, by all openings of the run. It exists before the run has an identity,
because a server is tried before the run is opened, and is no part of the results: the manifest does not bind it.

answers.jsonl holds every answer as it came:

    {"kind": "answer", "rows": {"<key>": "<base64>", …}, …}

Lines are only ever appended, and each is bound to the one before by its hash (`chain`). A line that a kill cut off is
dropped. Answers are read from the file when they are asked for; only where they stand is kept in memory.
"""

import base64
import fcntl
import json
import os
import re
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from rote.errors import DamageError, RunError, StorageError
from rote.files import require_regular
from rote.store.atomic import open_in_place, sync_folder
from rote.store.folder import RunFolder
from rote.store.hash_chain import BrokenChain, Link, first_hash, link_of, linked_line, without_end

_COUNT = re.compile(rb"requests (\d{15}) tokens (\d{18}) crc32 [0-9a-f]{8}\n")
"""One line of fixed width, written in place: a kill leaves the count before or the one after."""


class SentFile:
    """The requests that a run has sent and the tokens of their prompts, on the disk before each request goes out.

    Open from `open` to `close`, by one process: another one that would send for the same run is refused. A count
    survives the end of the process at any moment; it is not forced through the disk's cache, which would take longer
    than many requests.
    """

    def __init__(self, path: Path, descriptor: int, *, requests: int, tokens: int) -> None:
        self.path, self.requests, self.tokens = path, requests, tokens
        self._descriptor: int | None = descriptor

    @classmethod
    def open(cls, folder: RunFolder, *, fresh: bool = False) -> "SentFile":
        """The count of the run in `folder`, which is created if there is none; from 0 if it is started over."""
        folder.create()
        path = folder.requests
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise _not_written(path, error) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if fresh:
                os.ftruncate(descriptor, 0)
            requests, tokens = _counted(path, os.pread(descriptor, 4096, 0))
            sent = cls(path, descriptor, requests=requests, tokens=tokens)
            sent._write()
            os.fsync(descriptor)
            sync_folder(folder.path)
        except BlockingIOError as error:
            os.close(descriptor)
            raise RunError(
                f"{folder.path} is in use by another process; wait for it or choose another folder with --out."
            ) from error
        except OSError as error:
            os.close(descriptor)
            raise _not_written(path, error) from error
        except BaseException:
            os.close(descriptor)
            raise
        return sent

    def add(self, *, tokens: int) -> None:
        self.requests, self.tokens = self.requests + 1, self.tokens + tokens
        try:
            self._write()
        except OSError as error:
            raise _not_written(self.path, error) from error

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _write(self) -> None:
        assert self._descriptor is not None, "nothing is sent after the count is closed"
        os.pwrite(self._descriptor, _count_line(self.requests, self.tokens), 0)


def _count_line(requests: int, tokens: int) -> bytes:
    counts = b"requests %015d tokens %018d" % (requests, tokens)
    return counts + b" crc32 %08x\n" % zlib.crc32(counts)


def _counted(path: Path, content: bytes) -> tuple[int, int]:
    """Requests and tokens of a count; an empty one says 0."""
    found = _COUNT.fullmatch(content or _count_line(0, 0))
    requests, tokens = (int(found[1]), int(found[2])) if found else (0, 0)
    if found is None or found[0] != _count_line(requests, tokens):
        raise DamageError(
            f"{path} is damaged or was changed, so what this run has sent is not known; restore it, or start over with "
            "--fresh or another --out."
        )
    return requests, tokens


class AnswerFile:
    """Open from `open` to `close`, by one process."""

    def __init__(self, path: Path, run_id: str, descriptor: int) -> None:
        self.path = path
        self.records = 0
        self.last_hash = first_hash(run_id)
        self._descriptor = descriptor
        self._places: dict[str, tuple[int, int]] = {}
        self._end = 0
        with open(os.dup(descriptor), "rb") as file:
            for link, length in _links(file, run_id):
                self._take(link.record, link.hash, length)

    @classmethod
    def open(cls, path: Path, run_id: str) -> "AnswerFile":
        """The answers of the run at `path`, created if there are none, cut to the last whole line."""
        try:
            descriptor = open_in_place(path, os.O_APPEND)
        except OSError as error:
            raise _not_written(path, error) from error
        try:
            answers = cls(path, run_id, descriptor)
            if answers._end > os.fstat(descriptor).st_size:
                os.write(descriptor, b"\n")  # the end of a line, which was all that a kill cut off
            os.ftruncate(descriptor, answers._end)
            os.fsync(descriptor)
            sync_folder(path.parent)
        except BrokenChain as error:
            os.close(descriptor)
            raise _damaged(path, error) from error
        except OSError as error:
            os.close(descriptor)
            raise _not_written(path, error) from error
        return answers

    def close(self) -> None:
        try:
            os.fsync(self._descriptor)
        finally:
            os.close(self._descriptor)

    def find(self, key: str) -> bytes | None:
        place = self._places.get(key)
        if place is None:
            return None
        line = os.pread(self._descriptor, place[1], place[0])
        return base64.b64decode(json.loads(line)["rows"][key])

    def keep(self, answers: Mapping[str, bytes]) -> None:
        rows = {key: base64.b64encode(content).decode() for key, content in answers.items()}
        self._append({"kind": "answer", "rows": rows})

    def _append(self, record: dict[str, Any]) -> None:
        line, own = linked_line(record, self.last_hash)
        try:
            written = os.write(self._descriptor, line)
            while written < len(line):
                written += os.write(self._descriptor, line[written:])
        except OSError as error:
            # Requests that are under way still bring answers: their lines must not follow half of this one.
            with suppress(OSError):
                os.ftruncate(self._descriptor, self._end)
            raise StorageError(
                f"Cannot write {self.path}: {error.strerror}; make room and run the same command again."
            ) from error
        self._take(record, own, len(line))

    def _take(self, record: dict[str, Any], own_hash: str, length: int) -> None:
        self.records += 1
        self.last_hash = own_hash
        if record["kind"] == "answer":
            self._places |= dict.fromkeys(record["rows"], (self._end, length))
        self._end += length


def check_answers(path: Path, run_id: str) -> int:
    """The number of records at `path`; a RunError when one was changed or is of another run."""
    require_regular(path)
    try:
        with open(path, "rb") as file:
            return sum(1 for _ in _links(file, run_id))
    except BrokenChain as error:
        raise _damaged(path, error) from error


def _links(file: BinaryIO, run_id: str) -> Iterator[tuple[Link, int]]:
    """Every whole record, checked, and the bytes of its line."""
    before = first_hash(run_id)
    for number, ended in enumerate(file, 1):
        if (line := without_end(ended)) is not None:
            link = link_of(line, number, before)
            before = link.hash
            yield link, len(line) + 1


def _not_written(path: Path, error: OSError) -> StorageError:
    return StorageError(f"Cannot write {path}: {error.strerror}; choose another --out.")


def _damaged(path: Path, error: BrokenChain) -> RunError:
    return RunError(
        f"The answers in {path} are damaged: {error}. They are left as they are; restore them or choose another --out."
    )
