"""Lines that hold each other: a file of JSON lines of which none can be changed, moved or taken out unseen.

    {"kind": …, …, "before": "<hash of the line before>", "hash": "<hash of this line>"}

The hash is the SHA-256 of the line's bytes without its last field, `, "hash": "…"`; the first line's `before` is the
hash of the name of the run. So a flipped bit, a line that is missing, repeated or moved, and a file of another run are
all found. Lines missing at the very end are not: the manifest of a finished run names the last hash.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

_FIELD = b', "hash": "%s"}'
_FIELD_BYTES = len(_FIELD) - 2 + 64


class BrokenChain(Exception):
    """The message says at which line, and what is wrong with it."""


class Link(NamedTuple):
    record: dict[str, Any]
    """Without `before` and `hash`."""
    hash: str


def first_hash(run_id: str) -> str:
    return _hash(f"rote run {run_id}".encode())


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
