"""Asking with a memory: a request that the journal has answered is never sent again."""

import time
import warnings
from collections.abc import Callable

from rote.errors import BudgetError, EndpointError, RunError
from rote.longform.budget import MOST_BYTES_PER_TOKEN, Budget
from rote.longform.journal import Journal, digest_of
from rote.models.responder import Answer, Reply, Request, RequestFailed, Responder, Retries, RetryPolicy


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
