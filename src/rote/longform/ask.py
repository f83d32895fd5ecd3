"""Asking with a memory: a request that the journal has answered is never sent again."""

import time
from collections.abc import Callable

from rote.errors import BudgetError, EndpointError, RunError
from rote.longform.budget import Budget
from rote.longform.journal import Journal, digest_of
from rote.models.responder import Reply, Request, RequestFailed, Responder, RetryPolicy


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
        self.retry = retry or RetryPolicy()
        self.sleep = sleep
        self.on_answer = on_answer
        """Told the place and the number of answers so far, after every answer."""
        self.answered = 0
        self.sent = 0
        """Attempts sent by this process."""
        self.ceiling: BudgetError | None = None
        self._was_reached = False
        budget.requests = journal.attempts
        for state in journal.states.values():
            for worst_case in state.unresolved.values():
                budget.reserve(worst_case)

    def __call__(self, request: Request, *, place: str, wait_seconds: float = 0.0) -> Reply:
        reply = self._from_journal(place, request)
        if reply is None:
            if wait_seconds > 0:
                self.sleep(wait_seconds)
            reply = self._from_responder(place, request)
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

    def _from_responder(self, place: str, request: Request) -> Reply:
        for failures in range(1, self.retry.attempts + 1):
            try:
                return self._attempt(place, request)
            except RequestFailed as failure:
                if failures == self.retry.attempts or not (failure.was_reached or self._was_reached):
                    advice = "check --endpoint" if not failure.was_reached else "run the same command again later"
                    raise EndpointError(f"{failure} Nothing answered is lost; {advice}.") from failure
                wait_seconds = self.retry.wait_seconds(failures, failure.retry_after_seconds)
                if wait_seconds > self.retry.longest_wait_seconds:
                    raise EndpointError(
                        f"{failure} It asks to wait {wait_seconds:.0f} seconds; run the same command again after that."
                    ) from failure
                self.sleep(wait_seconds)
        raise AssertionError("the last attempt returns or raises")

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
            if isinstance(failure, RequestFailed):
                self._was_reached |= failure.was_reached
                if failure.may_be_billed:
                    self.budget.reserve(worst_case)
            raise
        self._was_reached = True
        booked = self.budget.booking(request, reply, worst_case)
        self.journal.answered(place, attempt, reply, booked=booked)
        self.budget.pay(request, booked, worst_case, was_counted=booked == reply.usage)
        return reply
