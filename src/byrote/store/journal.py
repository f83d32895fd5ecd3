"""The append-only journal of a run: JSON lines chained by their hashes.

    {"kind": …, …, "before": "<hash of the line before>", "hash": "<hash of this line>"}

The hash is the SHA-256 of the line's bytes without its last field, `, "hash": "…"`; the first line's `before` is the
hash of the run's id. A flipped bit, a line that is missing, repeated or moved, and a file of another run are therefore
all detected. Lines missing at the very end are not: the manifest of a finished run holds the last hash.

`Journal` is the chain and the file. What its records mean is up to its subclasses: `AnswerFile` here, the answers of a
served model, and `longform.journal.AuditJournal`. `RequestCountFile` is the one number that is written in place.
"""

import base64
import hashlib
import json
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, Self

from byrote.errors import DamageError, RunError, StorageError
from byrote.files import open_regular, require_regular
from byrote.store.files import open_in_place, open_locked, sync_folder
from byrote.store.folder import RunFolder

_HASH_FIELD = b', "hash": "%s"}'
_HASH_FIELD_BYTES = len(_HASH_FIELD) - 2 + 64


class BrokenChain(Exception):
    """The message names the line, and what is wrong with it."""


class JournalLine(NamedTuple):
    record: dict[str, Any]
    """Without `before` and `hash`."""
    hash: str
    bytes: int
    """Length in the file, with its line end."""


class Journal:
    """One journal, open from `open` to `close` by one process. A subclass learns of every record, read or appended, by
    `_take`."""

    syncs_every_line = True
    """False: appended lines survive the end of the process at once, a power cut only after `close`."""

    def __init__(self, path: Path, run_id: str, descriptor: int) -> None:
        self.path = path
        self.records = 0
        self.last_hash = first_hash(run_id)
        self._descriptor = descriptor
        self._end = 0

    @classmethod
    def open(cls, path: Path, run_id: str) -> Self:
        """The journal of the run at `path`, created if there is none, cut to its last whole line."""
        try:
            with suppress(FileNotFoundError):
                require_regular(path)
            journal = cls(path, run_id, open_in_place(path, os.O_APPEND))
            try:
                journal._recover(run_id)
            except BaseException:
                os.close(journal._descriptor)
                raise
        except OSError as error:
            raise _not_written(path, error) from error
        except (BrokenChain, KeyError, TypeError) as error:
            raise _damaged(path, error) from error
        return journal

    def append(self, record: dict[str, Any]) -> None:
        line, own_hash = chained_line(record, self.last_hash)
        try:
            written = os.write(self._descriptor, line)
            while written < len(line):
                written += os.write(self._descriptor, line[written:])
            if self.syncs_every_line:
                os.fsync(self._descriptor)
        except OSError as error:
            # Requests that are under way still bring answers: their lines must not follow half of this one.
            with suppress(OSError):
                os.ftruncate(self._descriptor, self._end)
            raise StorageError(
                f"Cannot write {self.path}: {error.strerror}; make room and run the same command again."
            ) from error
        self._add(JournalLine(record, own_hash, len(line)))

    def close(self) -> None:
        try:
            os.fsync(self._descriptor)
        finally:
            os.close(self._descriptor)

    def _take(self, record: dict[str, Any], start: int, length: int) -> None:
        """A record that is in the file, at these bytes."""
        raise NotImplementedError

    def _add(self, line: JournalLine) -> None:
        self._take(line.record, self._end, line.bytes)
        self.records += 1
        self.last_hash = line.hash
        self._end += line.bytes

    def _recover(self, run_id: str) -> None:
        """Read what is there, and cut off the beginning of a line that a kill left."""
        with open(os.dup(self._descriptor), "rb") as file:
            for line in chained_records(file, run_id):
                self._add(line)
        if self._end > os.fstat(self._descriptor).st_size:
            os.write(self._descriptor, b"\n")  # the line end, which was all that a kill cut off
        os.ftruncate(self._descriptor, self._end)
        os.fsync(self._descriptor)
        sync_folder(self.path.parent)


def read_records(path: Path, run_id: str | None = None) -> Iterator[dict[str, Any]]:
    """Every whole record of the journal at `path`, checked; none when there is no file. `run_id` None: of any run.

    Raises a RunError for a record that was changed or is of another run.
    """
    try:
        with open_regular(path) as file:
            for line in chained_records(file, run_id):
                yield line.record
    except FileNotFoundError:
        return
    except OSError as error:
        raise RunError(f"Cannot read {path}: {error.strerror}.") from error
    except BrokenChain as error:
        raise _damaged(path, error) from error


def first_hash(run_id: str) -> str:
    """The `before` of the first line."""
    return _hash(f"byrote run {run_id}".encode())


def chained_line(record: Mapping[str, Any], before: str) -> tuple[bytes, str]:
    """The line of a record, with its line end, and its hash."""
    body = json.dumps({**record, "before": before}, ensure_ascii=True, allow_nan=False).encode()
    own_hash = _hash(body)
    return body[:-1] + _HASH_FIELD % own_hash.encode() + b"\n", own_hash


def chained_records(lines: Iterable[bytes], run_id: str | None) -> Iterator[JournalLine]:
    """The record of every line, checked. What a kill left of a last line is dropped; a damaged last line is not."""
    before = None if run_id is None else first_hash(run_id)
    for number, ended in enumerate(lines, 1):
        line = ended.removesuffix(b"\n")
        # A write that was cut off before the line end left a whole record; one byte more, and it was damaged later.
        if line == ended and not _is_whole(line) and not _is_whole(line[:-1]):
            return
        if not _is_whole(line):
            is_ours = b'"before": "' in line[-_HASH_FIELD_BYTES - 100 :]
            what = "was changed" if is_ours else "is not a line of a journal with hashes"
            raise BrokenChain(f"line {number} {what}")
        record = json.loads(line)
        if before is not None and record["before"] != before:
            is_foreign = "belongs to another run" if number == 1 else "does not follow the one before"
            raise BrokenChain(f"line {number} {is_foreign}")
        before = record.pop("hash")
        del record["before"]
        yield JournalLine(record, before, len(line) + 1)


def _is_whole(line: bytes) -> bool:
    """Whether the line is one that `chained_line` wrote."""
    body, field = line[:-_HASH_FIELD_BYTES] + b"}", line[-_HASH_FIELD_BYTES:]
    return len(line) > _HASH_FIELD_BYTES and field == _HASH_FIELD % _hash(body).encode()


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _damaged(path: Path, error: Exception) -> RunError:
    reason = str(error) if isinstance(error, BrokenChain) else repr(error)
    return RunError(f"{path} is damaged: {reason}. It is left as it is; restore it or choose another --out.")


def _not_written(path: Path, error: OSError) -> StorageError:
    return StorageError(f"Cannot write {path}: {error.strerror}; choose another --out.")


class AnswerFile(Journal):
    """The answers of a served model, by key: one record a request, {"kind": "answer", "rows": {key: base64}}."""

    # Forcing every answer through the disk's cache would take longer than many requests.
    syncs_every_line = False

    def __init__(self, path: Path, run_id: str, descriptor: int) -> None:
        super().__init__(path, run_id, descriptor)
        self._places: dict[str, tuple[int, int]] = {}

    def find(self, key: str) -> bytes | None:
        if key not in self._places:
            return None
        start, length = self._places[key]
        return base64.b64decode(json.loads(os.pread(self._descriptor, length, start))["rows"][key])

    def keep(self, answers: Mapping[str, bytes]) -> None:
        rows = {key: base64.b64encode(content).decode() for key, content in answers.items()}
        self.append({"kind": "answer", "rows": rows})

    def _take(self, record: dict[str, Any], start: int, length: int) -> None:
        if record["kind"] == "answer":
            self._places |= dict.fromkeys(record["rows"], (start, length))


_COUNT = re.compile(rb"(requests \d{15} tokens \d{18}) crc32 ([0-9a-f]{8})\n")
"""One line of fixed width, written in place: a kill leaves the count before or the one after."""


class RequestCountFile:
    """The requests that a run has sent and the tokens of their prompts, on the disk before each request goes out.

    Locked from `open` to `close`: a second process that would send requests for the same run is refused. A count
    survives the end of the process at any moment, but not a power cut, as `AnswerFile` does not.
    """

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path, self.requests, self.tokens = path, 0, 0
        self._descriptor: int | None = descriptor

    @classmethod
    def open(cls, folder: RunFolder, *, fresh: bool = False) -> Self:
        """The count of the run in `folder`, created if there is none; from 0 if the run is started over."""
        folder.create()
        path = folder.requests
        try:
            count = cls(path, open_locked(path))
            try:
                count._read(fresh=fresh)
            except BaseException:
                count.close()
                raise
        except BlockingIOError as error:
            raise RunError(
                f"{folder.path} is in use by another process; wait for it or choose another folder with --out."
            ) from error
        except OSError as error:
            raise _not_written(path, error) from error
        return count

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

    def _read(self, *, fresh: bool) -> None:
        """Take up the count that is there, 0 in a new file, and make the file last."""
        assert self._descriptor is not None
        if fresh:
            os.ftruncate(self._descriptor, 0)
        if content := os.pread(self._descriptor, 4096, 0):
            found = _COUNT.fullmatch(content)
            if found is None or int(found[2], 16) != zlib.crc32(found[1]):
                raise DamageError(
                    f"{self.path} is damaged or was changed, so what this run has sent is not known; restore it, or "
                    "start over with --fresh or another --out."
                )
            self.requests, self.tokens = map(int, found[1].split()[1::2])
        self._write()
        os.fsync(self._descriptor)
        sync_folder(self.path.parent)

    def _write(self) -> None:
        assert self._descriptor is not None, "nothing is sent after the count is closed"
        counts = b"requests %015d tokens %018d" % (self.requests, self.tokens)
        os.pwrite(self._descriptor, counts + b" crc32 %08x\n" % zlib.crc32(counts), 0)
