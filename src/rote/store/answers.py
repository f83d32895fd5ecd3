"""answers.jsonl of a run: every request to a server before it was sent, every answer as it came.

    {"kind": "sent", "prompts": 20, "tokens": 1340, …}
    {"kind": "answer", "rows": {"<key>": "<base64>", …}, …}

Lines are only ever appended, and each is bound to the one before by its hash (`chain`). A line that a kill cut off is
dropped. Answers are read from the file when they are asked for; only where they stand is kept in memory.
"""

import base64
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from rote.errors import RunError, StorageError
from rote.files import require_regular
from rote.store.atomic import sync_folder
from rote.store.hash_chain import BrokenChain, Link, first_hash, link_of, linked_line, without_end

_SENT = b'{"kind": "sent"'


def sent_before(path: Path) -> tuple[int, int]:
    """Requests and tokens that the file at `path` says were sent, before it is opened and checked; 0 without one."""
    requests = tokens = 0
    try:
        with path.open("rb") as file:
            for line in file:
                record = json.loads(line) if line.startswith(_SENT) else {}
                requests, tokens = requests + bool(record), tokens + record.get("tokens", 0)
    except (OSError, ValueError, TypeError, AttributeError):
        # What is damaged is refused when it is opened.
        return requests, tokens
    return requests, tokens


class AnswerFile:
    """Open from `open` to `close`, by one process."""

    def __init__(self, path: Path, run_id: str, descriptor: int) -> None:
        self.path = path
        self.requests = self.tokens = self.records = 0
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
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        except OSError as error:
            raise StorageError(f"Cannot write {path}: {error.strerror}; choose another --out.") from error
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
            raise StorageError(f"Cannot write {path}: {error.strerror}; choose another --out.") from error
        return answers

    def close(self) -> None:
        os.fsync(self._descriptor)
        os.close(self._descriptor)

    def find(self, key: str) -> bytes | None:
        place = self._places.get(key)
        if place is None:
            return None
        line = os.pread(self._descriptor, place[1], place[0])
        return base64.b64decode(json.loads(line)["rows"][key])

    def sending(self, *, prompts: int, tokens: int) -> None:
        self._append({"kind": "sent", "prompts": prompts, "tokens": tokens})

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
        if record["kind"] == "sent":
            self.requests += 1
            self.tokens += record["tokens"]
        else:
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


def _damaged(path: Path, error: BrokenChain) -> RunError:
    return RunError(
        f"The answers in {path} are damaged: {error}. They are left as they are; restore them or choose another --out."
    )
