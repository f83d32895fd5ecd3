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
from pathlib import Path
from typing import Any

from rote.errors import RunError, StorageError
from rote.store.atomic import sync_folder
from rote.store.hash_chain import BrokenChain, first_hash, link_of, linked_line


class AnswerFile:
    """Open from `open` to `close`, by one process."""

    def __init__(self, path: Path, run_id: str, descriptor: int) -> None:
        self.path = path
        self.requests = self.tokens = self.records = 0
        self.last_hash = first_hash(run_id)
        self._descriptor = descriptor
        self._places: dict[str, tuple[int, int]] = {}
        self._end = 0
        for line in self._whole_lines():
            record, own = link_of(line, self.records + 1, self.last_hash)
            self._take(record, own, len(line) + 1)

    @classmethod
    def open(cls, path: Path, run_id: str) -> "AnswerFile":
        """The answers of the run at `path`, created if there are none, cut to the last whole line."""
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        except OSError as error:
            raise StorageError(f"Cannot write {path}: {error.strerror}; choose another --out.") from error
        try:
            answers = cls(path, run_id, descriptor)
            os.ftruncate(descriptor, answers._end)
            os.fsync(descriptor)
            sync_folder(path.parent)
        except BrokenChain as error:
            os.close(descriptor)
            raise RunError(
                f"The answers in {path} are damaged: {error}. They are left as they are; restore them or choose "
                "another --out."
            ) from error
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

    def _whole_lines(self) -> Iterator[bytes]:
        """Lines with their end, without it; a last one that was cut off is left out."""
        with open(os.dup(self._descriptor), "rb") as file:
            for line in file:
                if line.endswith(b"\n"):
                    yield line[:-1]
