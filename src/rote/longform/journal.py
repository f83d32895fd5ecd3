"""The journal of an audit: every request before it is sent, every outcome before the next request.

One JSON object a line, only ever appended, each line on the disk before anything else happens:

    {"kind": "intent", "place": "trial-0/section-0/phase-2/7", "attempt": 1, "digest": …, "messages": […], …}
    {"kind": "answer", "place": "trial-0/section-0/phase-2/7", "attempt": 1, "answers": […], "usage": {…}}
    {"kind": "failure", "place": "trial-0/section-0/phase-2/7", "attempt": 1, "error": …, "may_be_billed": false}

With perturbed instructions a line {"kind": "authorisation", "statement": …} comes before all that are sent.
A conversation repeats itself from request to request, so an intent holds only the messages that differ from the
intent before it; `shared_messages` says how many leading ones are the same. A last line that a kill cut off is
dropped when the journal is opened: a cut intent was never sent, a cut answer is an answer that was never journalled.
"""

import hashlib
import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rote.errors import RunError, StorageError
from rote.models.responder import Answer, Message, Reply, Request, RequestFailed, Usage
from rote.store.atomic import sync_folder


def digest_of(request: Request) -> str:
    """The same for equal requests only: what tells a resumed audit that its journal fits."""
    canonical = json.dumps(asdict(request), ensure_ascii=True, sort_keys=True)
    return hashlib.sha256(canonical.encode()).hexdigest()


@dataclass(slots=True)
class RequestState:
    """What the journal knows of one request."""

    digest: str
    worst_case: Usage
    """Of the latest attempt."""
    attempts: int = 0
    unresolved: dict[int, Usage] = field(default_factory=dict)
    """Worst cases of the attempts that may have been billed though no answer of theirs reached the journal."""
    reply: Reply | None = None


class Journal:
    """Open from `open` to `close`; `states` holds what is known of the request at each place of the audit."""

    def __init__(self, path: Path, records: list[dict[str, Any]], descriptor: int) -> None:
        self.path = path
        self.states: dict[str, RequestState] = {}
        self._descriptor = descriptor
        self._last_messages: tuple[Message, ...] = ()
        try:
            for record in records:
                self._take(record)
        except (KeyError, TypeError) as error:
            os.close(descriptor)
            raise _damaged(path, error) from error

    @classmethod
    def open(cls, path: Path) -> "Journal":
        """The journal at `path`, created if there is none, cut to its last whole line."""
        records, whole_bytes = _whole_records(path)
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
            os.ftruncate(descriptor, whole_bytes)
            os.fsync(descriptor)
            sync_folder(path.parent)
        except OSError as error:
            raise StorageError(f"Cannot write the journal {path}: {error.strerror}; choose another --out.") from error
        return cls(path, records, descriptor)

    def close(self) -> None:
        os.close(self._descriptor)

    def intend(self, place: str, request: Request, *, worst_case: Usage) -> int:
        """On the disk: the request at `place` is about to be sent. Returns which attempt this is, from 1."""
        attempt = self.states[place].attempts + 1 if place in self.states else 1
        shared = _shared_prefix(self._last_messages, request.messages)
        settings = {key: value for key, value in asdict(request).items() if key != "messages"}
        self._append(
            {
                "kind": "intent",
                "place": place,
                "attempt": attempt,
                "digest": digest_of(request),
                "worst_case": worst_case._asdict(),
                "shared_messages": shared,
                "messages": [_present(message._asdict()) for message in request.messages[shared:]],
                "settings": settings,
            }
        )
        return attempt

    def authorised(self, statement: str, *, best_of_n: int) -> None:
        """On the disk, before anything perturbed is sent: who permits it."""
        self._append({"kind": "authorisation", "statement": statement, "best_of_n": best_of_n})

    def answered(self, place: str, attempt: int, reply: Reply) -> None:
        self._append(
            {
                "kind": "answer",
                "place": place,
                "attempt": attempt,
                "answers": [_present(answer._asdict()) for answer in reply.answers],
                "usage": reply.usage._asdict() if reply.usage else None,
            }
        )

    def failed(self, place: str, attempt: int, failure: Exception) -> None:
        self._append(
            {
                "kind": "failure",
                "place": place,
                "attempt": attempt,
                "error": str(failure),
                "may_be_billed": isinstance(failure, RequestFailed) and failure.may_be_billed,
            }
        )

    def _append(self, record: dict[str, Any]) -> None:
        line = json.dumps(record, ensure_ascii=True).encode() + b"\n"
        try:
            written = os.write(self._descriptor, line)
            while written < len(line):
                written += os.write(self._descriptor, line[written:])
            os.fsync(self._descriptor)
        except OSError as error:
            raise StorageError(
                f"Cannot write the journal {self.path}: {error.strerror}; make room and run the same command again."
            ) from error
        self._take(record)

    def _take(self, record: dict[str, Any]) -> None:
        if record["kind"] == "authorisation":
            return
        place = record["place"]
        if record["kind"] == "intent":
            worst_case = Usage(**record["worst_case"])
            state = self.states.setdefault(place, RequestState(record["digest"], worst_case))
            state.attempts = record["attempt"]
            state.worst_case = state.unresolved[state.attempts] = worst_case
            self._last_messages = _full_messages(self._last_messages, record)
            return
        state = self.states[place]
        if record["kind"] == "answer":
            answers = tuple(Answer(**_with_tuple(answer)) for answer in record["answers"])
            state.reply = Reply(answers, Usage(**record["usage"]) if record["usage"] else None)
        if record["kind"] == "answer" or not record["may_be_billed"]:
            del state.unresolved[record["attempt"]]


def read_journal(path: Path) -> list[dict[str, Any]]:
    """Every whole record, intents with all their messages."""
    records, _ = _whole_records(path)
    messages: tuple[Message, ...] = ()
    for record in records:
        if record["kind"] == "intent":
            messages = _full_messages(messages, record)
            record["messages"] = [_present(message._asdict()) for message in messages]
            del record["shared_messages"]
    return records


def _full_messages(last: tuple[Message, ...], record: dict[str, Any]) -> tuple[Message, ...]:
    return (*last[: record["shared_messages"]], *(Message(**_with_tuple(message)) for message in record["messages"]))


def _present(fields: dict[str, Any]) -> dict[str, Any]:
    """Token ids only where there are any."""
    return {name: value for name, value in fields.items() if name != "token_ids" or value is not None}


def _with_tuple(fields: dict[str, Any]) -> dict[str, Any]:
    ids = fields.get("token_ids")
    return fields if ids is None else fields | {"token_ids": tuple(ids)}


def _shared_prefix(first: tuple[Message, ...], second: tuple[Message, ...]) -> int:
    shared = 0
    while shared < min(len(first), len(second)) and first[shared] == second[shared]:
        shared += 1
    return shared


def _whole_records(path: Path) -> tuple[list[dict[str, Any]], int]:
    """The records of all complete lines, and how many bytes those take."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return [], 0
    except OSError as error:
        raise RunError(f"Cannot read the journal {path}: {error.strerror}.") from error
    whole = content[: content.rfind(b"\n") + 1]
    try:
        return [json.loads(line) for line in whole.splitlines()], len(whole)
    except ValueError as error:
        raise _damaged(path, error) from error


def _damaged(path: Path, error: Exception) -> RunError:
    return RunError(f"The journal {path} is damaged ({error!r}); restore it or choose another --out.")
