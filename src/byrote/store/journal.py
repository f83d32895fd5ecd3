"""Lines that hold each other: a file of JSON lines of which none can be changed, moved or taken out unseen.

    {"kind": …, …, "before": "<hash of the line before>", "hash": "<hash of this line>"}

The hash is the SHA-256 of the line's bytes without its last field, `, "hash": "…"`; the first line's `before` is the
hash of the name of the run. So a flipped bit, a line that is missing, repeated or moved, and a file of another run are
all found. Lines missing at the very end are not: the manifest of a finished run names the last hash.
"""

import base64
import fcntl
import hashlib
import json
import os
import re
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from byrote.errors import DamageError, RunError, StorageError
from byrote.files import require_regular
from byrote.store.files import open_in_place, sync_folder
from byrote.store.folder import RunFolder

_FIELD = b', "hash": "%s"}'
_FIELD_BYTES = len(_FIELD) - 2 + 64


class BrokenChain(Exception):
    """The message says at which line, and what is wrong with it."""


class Link(NamedTuple):
    record: dict[str, Any]
    """Without `before` and `hash`."""
    hash: str


def first_hash(run_id: str) -> str:
    return _hash(f"byrote run {run_id}".encode())


def linked_line(record: Mapping[str, Any], before: str) -> tuple[bytes, str]:
    """The line of a record, with its line end, and its hash."""
    body = json.dumps({**record, "before": before}, ensure_ascii=True, allow_nan=False).encode()
    own = _hash(body)
    return body[:-1] + _FIELD % own.encode() + b"\n", own


def whole_lines(content: bytes) -> bytes:
    """`content` up to the last whole line. What a kill cut off is dropped; a line whose end was damaged is not."""
    end = content.rfind(b"\n") + 1
    tail = content[end:]
    # A write that was cut off before the line end left a whole record; one byte more, and it was damaged later.
    if _is_whole(tail) or _is_whole(tail[:-1]):
        return content
    return content[:end]


def without_end(line: bytes) -> bytes | None:
    """A line as it was read from a file, without its end; None for a last one that a kill cut off."""
    if line.endswith(b"\n"):
        return line[:-1]
    return whole_lines(line) or None


def links(content: bytes, run_id: str | None) -> Iterator[Link]:
    """Every record of `content`, checked. `run_id` None: of whatever run it is."""
    before = None if run_id is None else first_hash(run_id)
    for number, line in enumerate(content.removesuffix(b"\n").split(b"\n") if content else (), 1):
        link = link_of(line, number, before)
        before = link.hash
        yield link


def link_of(line: bytes, number: int, before: str | None) -> Link:
    """The record of one line without its end, checked; `before` None: whatever comes before it."""
    record = _record(line, number)
    if before is not None and record["before"] != before:
        raise BrokenChain(
            f"line {number} belongs to another run" if number == 1 else f"line {number} does not follow the one before"
        )
    own = record.pop("hash")
    del record["before"]
    return Link(record, own)


def _record(line: bytes, number: int) -> dict[str, Any]:
    if not _is_whole(line):
        is_ours = b'"before": "' in line[-_FIELD_BYTES - 100 :]
        what = "was changed" if is_ours else "is no line of a journal with hashes"
        raise BrokenChain(f"line {number} {what}")
    record: dict[str, Any] = json.loads(line)
    return record


def _is_whole(line: bytes) -> bool:
    """Whether the line is one that `linked_line` wrote."""
    body, field = line[:-_FIELD_BYTES] + b"}", line[-_FIELD_BYTES:]
    return len(line) > _FIELD_BYTES and field == _FIELD % _hash(body).encode()


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


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
