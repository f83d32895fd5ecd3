"""The journal of an audit: every request before it is sent, every outcome before the next request.

    {"kind": "intent", "place": "trial-0/section-0/phase-2/7", "attempt": 1, "digest": …, "messages": […], …}
    {"kind": "answer", "place": "trial-0/section-0/phase-2/7", "attempt": 1, "answers": […], "usage": {…}, "booked": …}
    {"kind": "failure", "place": "trial-0/section-0/phase-2/7", "attempt": 1, "error": …, …}

With perturbed instructions a line {"kind": "authorisation", "statement": …} comes before all that are sent.
A conversation repeats itself from request to request, so an intent holds only the messages that differ from the
intent before it; `shared_messages` is the number of leading ones that are the same. A last line that a kill cut off is
dropped when the journal is opened: a cut intent was never sent, a cut answer is an answer that was never journalled.
"""

import hashlib
import json
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from byrote.errors import BudgetError, EndpointError, RunError
from byrote.longform.budget import MOST_BYTES_PER_TOKEN, Budget
from byrote.models.responder import Answer, Message, Reply, Request, RequestFailed, RequestRejected, Responder, Usage
from byrote.models.served.retries import Retries, RetryPolicy
from byrote.store.journal import Journal, read_records


class JournalledClient:
    """Answers from the journal as long as it has answers, then from the responder, journalling every step.

    A request that was sent but whose answer is not in the journal (the process was killed in between) is sent again
    under the same idempotency key, and the first attempt stays booked as possibly paid.
    """

    def __init__(
        self,
        responder: Responder,
        journal: "AuditJournal",
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
        """Called after every answer with its place and the number of answers so far."""
        self.answered = 0
        self.sent = 0
        """Attempts sent by this process."""
        self.ceiling: BudgetError | None = None
        self._has_warned = False
        budget.requests = sum(state.attempts for state in journal.states.values())
        for state in journal.states.values():
            for worst_case in state.unresolved.values():
                budget.reserve(worst_case)

    def complete(self, request: Request, *, place: str, wait_seconds: float = 0.0) -> Reply:
        reply = self._journalled(place, request)
        if reply is None:
            if wait_seconds > 0:
                self.sleep(wait_seconds)
            reply = self.retries(lambda: self._attempt(place, request))
        self.answered += 1
        self.on_answer(place, self.answered)
        return reply

    def _journalled(self, place: str, request: Request) -> Reply | None:
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
            self.budget.require_within_ceilings(worst_case)
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
        longest = max(answer.cut_characters or 0 for answer in reply.answers)
        if longest and not self._has_warned:
            self._has_warned = True
            warnings.warn(
                f"the answer at {place} had {longest:,} characters more than the {request.max_tokens:,} tokens asked "
                "for can have; they are left out, here and in later answers. Check --token-parameter.",
                stacklevel=2,
            )
        return reply


def _cut(answer: Answer, request: Request) -> Answer:
    """The answer without what is more than the tokens asked for can have."""
    most = request.max_tokens * MOST_BYTES_PER_TOKEN
    refusal = answer.refusal[:most] if answer.refusal else answer.refusal
    beyond = max(0, len(answer.text) - most)
    # A model on this machine keeps the limit, and its text belongs to its tokens.
    if answer.token_ids is not None or not beyond:
        return answer._replace(refusal=refusal)
    return answer._replace(text=answer.text[:most], refusal=refusal, cut_characters=beyond)


class ReplayClient:
    """Answers from the records of a journal alone. What has no answer there ended the audit: a rejection, or a
    ceiling."""

    def __init__(self, records: list[dict[str, Any]]) -> None:
        self._states: dict[str, RequestState] = {}
        for record in records:
            _update(self._states, record)

    def complete(self, request: Request, *, place: str, wait_seconds: float = 0.0) -> Reply:
        state = self._states.get(place)
        if state is None:
            raise BudgetError(f"The journal has no request at {place}.")
        if state.digest != digest_of(request):
            raise RunError(f"The request at {place} in the journal is not the one that this audit makes.")
        if state.rejection is not None:
            raise RequestRejected(state.rejection)
        if state.reply is None:
            raise BudgetError(f"The journal has no answer at {place}.")
        return state.reply


def digest_of(request: Request) -> str:
    """The same for equal requests only: by it a resumed audit finds that its journal fits."""
    canonical = json.dumps(asdict(request), ensure_ascii=True, sort_keys=True)
    return hashlib.sha256(canonical.encode()).hexdigest()


@dataclass(slots=True)
class RequestState:
    """What a journal holds of one request."""

    digest: str
    worst_case: Usage
    """Of the latest attempt."""
    attempts: int = 0
    unresolved: dict[int, Usage] = field(default_factory=dict)
    """Worst cases of the attempts that may have been billed though no answer of theirs reached the journal."""
    reply: Reply | None = None
    booked: Usage | None = None
    """What the reply was booked at when it came; a resumed audit books the same."""
    rejection: str | None = None
    """The endpoint's error, if it rejected the latest attempt."""


def _update(states: dict[str, RequestState], record: dict[str, Any]) -> None:
    """Bring the state of the request that `record` is about up to date."""
    if record["kind"] == "authorisation":
        return
    place, attempt = record["place"], record["attempt"]
    if record["kind"] == "intent":
        worst_case = Usage(**record["worst_case"])
        state = states.setdefault(place, RequestState(record["digest"], worst_case))
        state.attempts, state.worst_case, state.rejection = attempt, worst_case, None
        state.unresolved[attempt] = worst_case
    elif record["kind"] == "answer":
        state = states[place]
        answers = tuple(Answer(**_with_tuple(answer)) for answer in record["answers"])
        state.reply = Reply(answers, Usage(**record["usage"]) if record["usage"] else None)
        state.booked = Usage(**record["booked"])
        del state.unresolved[attempt]
    else:
        state = states[place]
        state.rejection = record["error"] if record["is_rejected"] else None
        if not record["may_be_billed"]:
            del state.unresolved[attempt]


class AuditJournal(Journal):
    """`states` holds what is known of the request at each place of the audit."""

    def __init__(self, path: Path, run_id: str, descriptor: int) -> None:
        super().__init__(path, run_id, descriptor)
        self.states: dict[str, RequestState] = {}
        self._last_messages: tuple[Message, ...] = ()

    def intend(self, place: str, request: Request, *, worst_case: Usage) -> int:
        """On the disk: the request at `place` is about to be sent. Returns which attempt this is, from 1."""
        attempt = self.states[place].attempts + 1 if place in self.states else 1
        shared = 0
        for last, now in zip(self._last_messages, request.messages, strict=False):
            if last != now:
                break
            shared += 1
        self.append(
            {
                "kind": "intent",
                "place": place,
                "attempt": attempt,
                "digest": digest_of(request),
                "worst_case": worst_case._asdict(),
                "shared_messages": shared,
                "messages": [_present(message._asdict()) for message in request.messages[shared:]],
                "settings": {key: value for key, value in asdict(request).items() if key != "messages"},
            }
        )
        return attempt

    def authorised(self, statement: str, *, best_of_n: int) -> None:
        """On the disk, before anything perturbed is sent: who permits it."""
        self.append({"kind": "authorisation", "statement": statement, "best_of_n": best_of_n})

    def answered(self, place: str, attempt: int, reply: Reply, *, booked: Usage) -> None:
        """On the disk: the answers, what the endpoint counted, and what that is booked at."""
        self.append(
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
        self.append(
            {
                "kind": "failure",
                "place": place,
                "attempt": attempt,
                "error": str(failure),
                "may_be_billed": isinstance(failure, RequestFailed) and failure.may_be_billed,
                "is_rejected": isinstance(failure, RequestRejected),
            }
        )

    def _take(self, record: dict[str, Any], start: int, length: int) -> None:
        _update(self.states, record)
        if record["kind"] == "intent":
            self._last_messages = _full_messages(self._last_messages, record)


def read_journal(path: Path, run_id: str | None = None) -> list[dict[str, Any]]:
    """Every whole record, the chain checked, intents with all their messages. `run_id` None: of any run."""
    records = list(read_records(path, run_id))
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
