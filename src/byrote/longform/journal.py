"""The journal of an audit: every request before it is sent, every outcome before the next request.

One JSON object a line, only ever appended, each line on the disk before anything else happens, and each bound to the
one before by its hash (`chain`):

    {"kind": "intent", "place": "trial-0/section-0/phase-2/7", "attempt": 1, "digest": …, "messages": […], …}
    {"kind": "answer", "place": "trial-0/section-0/phase-2/7", "attempt": 1, "answers": […], "usage": {…}, "booked": …}
    {"kind": "failure", "place": "trial-0/section-0/phase-2/7", "attempt": 1, "error": …, …}

With perturbed instructions a line {"kind": "authorisation", "statement": …} comes before all that are sent.
A conversation repeats itself from request to request, so an intent holds only the messages that differ from the
intent before it; `shared_messages` says how many leading ones are the same. A last line that a kill cut off is
dropped when the journal is opened: a cut intent was never sent, a cut answer is an answer that was never journalled.
"""

import hashlib
import json
import os
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from byrote.errors import BudgetError, EndpointError, RunError, StorageError
from byrote.files import read_bytes
from byrote.longform.budget import MOST_BYTES_PER_TOKEN, Budget
from byrote.models.responder import (
    Answer,
    Message,
    Reply,
    Request,
    RequestFailed,
    RequestRejected,
    Responder,
    Retries,
    RetryPolicy,
    Usage,
)
from byrote.store.files import open_in_place, sync_folder
from byrote.store.journal import BrokenChain, first_hash, linked_line, links, whole_lines


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
    booked: Usage | None = None
    """What the reply was booked at when it came; a resumed audit books the same."""


class Journal:
    """Open from `open` to `close`; `states` holds what is known of the request at each place of the audit."""

    def __init__(self, path: Path, run_id: str, content: bytes, descriptor: int) -> None:
        self.path = path
        self.states: dict[str, RequestState] = {}
        self.attempts = 0
        """Requests that were sent, or about to be, by this process and those before it."""
        self.records = 0
        self.last_hash = first_hash(run_id)
        self._descriptor = descriptor
        self._last_messages: tuple[Message, ...] = ()
        for record, own in links(content, run_id):
            self._take(record, own)

    @classmethod
    def open(cls, path: Path, run_id: str) -> "Journal":
        """The journal of the run at `path`, created if there is none, cut to its last whole line."""
        content = whole_lines(_content(path))
        try:
            descriptor = open_in_place(path, os.O_APPEND)
        except OSError as error:
            raise StorageError(f"Cannot write the journal {path}: {error.strerror}; choose another --out.") from error
        try:
            journal = cls(path, run_id, content, descriptor)
            os.ftruncate(descriptor, len(content))
            if content and not content.endswith(b"\n"):
                os.write(descriptor, b"\n")
            os.fsync(descriptor)
            sync_folder(path.parent)
        except (BrokenChain, KeyError, TypeError) as error:
            os.close(descriptor)
            raise _damaged(path, error) from error
        except OSError as error:
            os.close(descriptor)
            raise StorageError(f"Cannot write the journal {path}: {error.strerror}; choose another --out.") from error
        return journal

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

    def answered(self, place: str, attempt: int, reply: Reply, *, booked: Usage) -> None:
        """On the disk: the answers, what the endpoint counted, and what that is booked at."""
        self._append(
            {
                "kind": "answer",
                "place": place,
                "attempt": attempt,
                "answers": [_present(answer._asdict()) for answer in reply.answers],
                "usage": reply.usage._asdict() if reply.usage else None,
                "booked": booked._asdict(),
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
                "is_rejected": isinstance(failure, RequestRejected),
            }
        )

    def _append(self, record: dict[str, Any]) -> None:
        line, own = linked_line(record, self.last_hash)
        try:
            written = os.write(self._descriptor, line)
            while written < len(line):
                written += os.write(self._descriptor, line[written:])
            os.fsync(self._descriptor)
        except OSError as error:
            raise StorageError(
                f"Cannot write the journal {self.path}: {error.strerror}; make room and run the same command again."
            ) from error
        self._take(record, own)

    def _take(self, record: dict[str, Any], own_hash: str) -> None:
        self.records += 1
        self.last_hash = own_hash
        if record["kind"] == "authorisation":
            return
        place = record["place"]
        if record["kind"] == "intent":
            worst_case = Usage(**record["worst_case"])
            state = self.states.setdefault(place, RequestState(record["digest"], worst_case))
            self.attempts += 1
            state.attempts = record["attempt"]
            state.worst_case = state.unresolved[state.attempts] = worst_case
            self._last_messages = _full_messages(self._last_messages, record)
            return
        state = self.states[place]
        if record["kind"] == "answer":
            answers = tuple(Answer(**_with_tuple(answer)) for answer in record["answers"])
            state.reply = Reply(answers, Usage(**record["usage"]) if record["usage"] else None)
            state.booked = Usage(**record["booked"])
        if record["kind"] == "answer" or not record["may_be_billed"]:
            del state.unresolved[record["attempt"]]


def read_journal(path: Path, run_id: str | None = None) -> list[dict[str, Any]]:
    """Every whole record, the chain checked, intents with all their messages. `run_id` None: of any run."""
    try:
        records = [link.record for link in links(whole_lines(_content(path)), run_id)]
    except BrokenChain as error:
        raise _damaged(path, error) from error
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
    """Token ids, refusals and cuts only where there are any."""
    rare = ("token_ids", "refusal", "cut_characters")
    return {name: value for name, value in fields.items() if name not in rare or value is not None}


def _with_tuple(fields: dict[str, Any]) -> dict[str, Any]:
    ids = fields.get("token_ids")
    return fields if ids is None else fields | {"token_ids": tuple(ids)}


def _shared_prefix(first: tuple[Message, ...], second: tuple[Message, ...]) -> int:
    shared = 0
    while shared < min(len(first), len(second)) and first[shared] == second[shared]:
        shared += 1
    return shared


def _content(path: Path) -> bytes:
    try:
        return read_bytes(path)
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise RunError(f"Cannot read the journal {path}: {error.strerror}.") from error


def _damaged(path: Path, error: Exception) -> RunError:
    reason = str(error) if isinstance(error, BrokenChain) else f"{error!r}"
    return RunError(
        f"The journal {path} is damaged: {reason}. It is left as it is; restore it or choose another --out."
    )


class JournalledAsk:
    """Answers from the journal as long as it has answers, then from the responder, journalling every step.

    A request that was sent but whose answer is not in the journal (the process was killed in between) is sent again
    under the same idempotency key, and the first sending stays booked as possibly paid.
    """

    def __init__(
        self,
        responder: Responder,
        journal: Journal,
        budget: Budget,
        *,
        run_id: str,
        retry: RetryPolicy | None = None,
        sleep: Callable[[float], None] = time.sleep,
        on_answer: Callable[[str, int], None] = lambda place, answered: None,
    ) -> None:
        self.responder = responder
        self.journal = journal
        self.budget = budget
        self.run_id = run_id
        self.retries = Retries(retry or RetryPolicy(), option="--endpoint", sleep=sleep)
        self.sleep = sleep
        self.on_answer = on_answer
        """Told the place and the number of answers so far, after every answer."""
        self.answered = 0
        self.sent = 0
        """Attempts sent by this process."""
        self.ceiling: BudgetError | None = None
        self._has_warned = False
        budget.requests = journal.attempts
        for state in journal.states.values():
            for worst_case in state.unresolved.values():
                budget.reserve(worst_case)

    def __call__(self, request: Request, *, place: str, wait_seconds: float = 0.0) -> Reply:
        reply = self._from_journal(place, request)
        if reply is None:
            if wait_seconds > 0:
                self.sleep(wait_seconds)
            reply = self.retries(lambda: self._attempt(place, request))
        self.answered += 1
        self.on_answer(place, self.answered)
        return reply

    def _from_journal(self, place: str, request: Request) -> Reply | None:
        state = self.journal.states.get(place)
        if state is None:
            return None
        if state.digest != digest_of(request):
            raise RunError(
                f"The request at {place} in the journal {self.journal.path} is not the one this audit makes; "
                "the folder belongs to another audit, so choose another --out."
            )
        if state.reply is not None and state.booked is not None:
            was_counted = state.reply.usage == state.booked
            self.budget.pay(request, state.booked, state.worst_case, was_counted=was_counted)
        return state.reply

    def _attempt(self, place: str, request: Request) -> Reply:
        worst_case = self.budget.worst_case(request)
        try:
            self.budget.require_room(worst_case)
        except BudgetError as error:
            self.ceiling = error
            raise
        attempt = self.journal.intend(place, request, worst_case=worst_case)
        self.budget.requests += 1
        self.sent += 1
        try:
            reply = self.responder.complete(request, idempotency_key=f"{self.run_id}/{place}")
        except EndpointError as failure:
            self.journal.failed(place, attempt, failure)
            if isinstance(failure, RequestFailed) and failure.may_be_billed:
                self.budget.reserve(worst_case)
            raise
        booked = self.budget.booking(request, reply, worst_case)
        # The rest is booked, but an endpoint that ignores its limits must not keep an audit busy for hours.
        reply = reply._replace(answers=tuple(_cut(one, request) for one in reply.answers[: request.completions]))
        self.journal.answered(place, attempt, reply, booked=booked)
        self.budget.pay(request, booked, worst_case, was_counted=booked == reply.usage)
        self._warn_of_cuts(place, request, reply)
        return reply

    def _warn_of_cuts(self, place: str, request: Request, reply: Reply) -> None:
        longest = max(answer.cut_characters or 0 for answer in reply.answers)
        if longest and not self._has_warned:
            self._has_warned = True
            warnings.warn(
                f"the answer at {place} had {longest:,} characters more than the {request.max_tokens:,} tokens asked "
                "for can have; they are left out, here and in later answers. Check --token-parameter.",
                stacklevel=2,
            )


def _cut(answer: Answer, request: Request) -> Answer:
    """The answer without what is more than the tokens asked for can have."""
    most = request.max_tokens * MOST_BYTES_PER_TOKEN
    refusal = answer.refusal[:most] if answer.refusal else answer.refusal
    beyond = max(0, len(answer.text) - most)
    # A model on this machine keeps the limit, and its text belongs to its tokens.
    if answer.token_ids is not None or not beyond:
        return answer._replace(refusal=refusal)
    return answer._replace(text=answer.text[:most], refusal=refusal, cut_characters=beyond)
