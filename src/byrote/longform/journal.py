"""The journal of an audit: every request before it is sent, every outcome before the next request.

    {"kind": "intent", "place": "trial-0/section-0/phase-2/7", "attempt": 1, "digest": …, "messages": […], …}
    {"kind": "answer", "place": "trial-0/section-0/phase-2/7", "attempt": 1, "answers": […], "usage": {…}, "booked": …}
    {"kind": "failure", "place": "trial-0/section-0/phase-2/7", "attempt": 1, "error": …, …}

With perturbed instructions a line {"kind": "authorisation", "statement": …} comes before all that are sent.
A conversation repeats itself from request to request, so an intent holds only the messages that differ from the
intent before it; `shared_messages` is the number of leading ones that are the same. A last line that a kill cut off is
dropped when the journal is opened: a cut intent was never sent, a cut answer is an answer that was never journalled.

What an audit has cost, what it may have cost, and whether the next request fits under the ceiling.

Before a request is sent its worst case is known: no prompt has more tokens than bytes (plus a few per message for
the chat template), and no completion has more than `max_tokens`. A request goes out only if everything paid,
everything possibly paid and this worst case together stay within the ceilings.

An endpoint's count is used only if it can be true. A count that cannot is replaced by the worst case, or by
the bytes of the answer where the endpoint ignored the limit. An endpoint that counts more than a worst case shows a
prompt or a train of thought of its own; from then on every worst case has that much more.
"""

import hashlib
import json
import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Any

from byrote.errors import BudgetError, ConfigError, EndpointError, RunError
from byrote.models.responder import Answer, Message, Reply, Request, RequestFailed, RequestRejected, Responder, Usage
from byrote.models.served.retries import Retries, RetryPolicy
from byrote.store.journal import Journal

_TEMPLATE_TOKENS_PER_MESSAGE = 16
_TEMPLATE_TOKENS = 32
MOST_BYTES_PER_TOKEN = 128
_MOST_TOKENS = 100_000_000
"""No context is as large; a count above this is no count."""


@dataclass(frozen=True, slots=True)
class Prices:
    """Money per million tokens. `cached_input` is what prompt tokens served from the endpoint's cache cost."""

    input: float | None = None
    output: float | None = None
    cached_input: float | None = None

    def cost(self, usage: Usage, *, with_cache: bool) -> float:
        """NaN when the prices are not known."""
        if self.input is None or self.output is None:
            return float("nan")
        cached_price = self.cached_input if with_cache and self.cached_input is not None else self.input
        fresh = usage.prompt_tokens - usage.cached_prompt_tokens
        money = fresh * self.input + usage.cached_prompt_tokens * cached_price + usage.completion_tokens * self.output
        return money / 1_000_000


@dataclass(frozen=True, slots=True)
class Ceilings:
    """None: no ceiling. `max_requests` counts every attempt that was sent, answered or not."""

    max_tokens_total: int | None = None
    max_cost: float | None = None
    max_requests: int | None = None


class Budget:
    """The running account. `paid` is what answers are booked at; `possibly_paid` are worst cases without an answer."""

    def __init__(self, prices: Prices, ceilings: Ceilings) -> None:
        if (prices.input is None) != (prices.output is None):
            raise ConfigError("Only one of the prices for input and output tokens is given; give both or none.")
        if ceilings.max_cost is not None and prices.input is None:
            raise ConfigError(
                f"A ceiling of {ceilings.max_cost} needs prices; give --price-input and --price-output per million "
                "tokens."
            )
        self.prices = prices
        self.ceilings = ceilings
        self.paid = Usage(0, 0, 0)
        self.possibly_paid = Usage(0, 0, 0)
        self.requests = 0
        """Attempts sent, by this process and those before it."""
        self._known_prompt: tuple[tuple[Message, ...], int] = ((), 0)
        self._hidden = Usage(0, 0)
        self._last_prompt = self._repeated = 0
        """Prompt tokens of the last answer booked, and those that answers may share with the one before each."""

    def worst_case(self, request: Request) -> Usage:
        """No fewer tokens than the request can take.

        The part of the conversation that the request before had too is known exactly; the rest is bounded by bytes.
        """
        known_messages, known_tokens = self._known_prompt
        if request.messages[: len(known_messages)] == known_messages:
            new_messages, prompt_tokens = request.messages[len(known_messages) :], known_tokens
        else:
            new_messages, prompt_tokens = request.messages, 0
        for message in new_messages:
            prompt_tokens += _bytes(message.content) + _TEMPLATE_TOKENS_PER_MESSAGE
        prompt_tokens += _TEMPLATE_TOKENS + self._hidden.prompt_tokens
        return Usage(prompt_tokens, request.completions * request.max_tokens + self._hidden.completion_tokens)

    def require_within_ceilings(self, worst_case: Usage) -> None:
        """Raise a BudgetError unless the worst case surely stays within every ceiling."""
        total = _sum(self.paid, self.possibly_paid, worst_case)
        tokens = total.prompt_tokens + total.completion_tokens
        cost = self.prices.cost(total, with_cache=True)
        limits = (
            ("max_requests", self.requests + 1, f"{self.requests + 1:,} requests"),
            ("max_tokens_total", tokens, f"{tokens:,} tokens"),
            ("max_cost", cost, f"a cost of {cost:.4f}"),
        )
        for name, value, words in limits:
            ceiling = getattr(self.ceilings, name)
            # "Not at most" rather than "more than": a number that cannot be compared passes no ceiling.
            if ceiling is not None and not value <= ceiling:
                raise BudgetError(
                    f"The next request could bring the audit to {words}; the ceiling is {ceiling:,}. "
                    f"Raise --{name.replace('_', '-')} and run the same command to go on."
                )

    def booking(self, request: Request, reply: Reply, worst_case: Usage) -> Usage:
        """What to book for an answer: the endpoint's count if it can be true, else a bound that is never less."""
        answer_bytes = sum(_bytes(answer.text) + _bytes(answer.refusal or "") for answer in reply.answers)
        prompt_bytes = sum(_bytes(message.content) for message in request.messages)
        if reply.usage is not None:
            counted = ((prompt_bytes, reply.usage.prompt_tokens), (answer_bytes, reply.usage.completion_tokens))
            if all(math.ceil(size / MOST_BYTES_PER_TOKEN) <= tokens <= _MOST_TOKENS for size, tokens in counted):
                return reply.usage
        was_limited = answer_bytes <= worst_case.completion_tokens * MOST_BYTES_PER_TOKEN
        return Usage(worst_case.prompt_tokens, worst_case.completion_tokens if was_limited else answer_bytes)

    def pay(self, request: Request, booked: Usage, worst_case: Usage, *, was_counted: bool) -> None:
        """Book an answer. `was_counted`: by the endpoint, so that later worst cases can rest on it."""
        self.paid = _sum(self.paid, booked)
        self._repeated += min(self._last_prompt, booked.prompt_tokens)
        self._last_prompt = booked.prompt_tokens
        if was_counted:
            self._known_prompt = (request.messages, booked.prompt_tokens)
            self._hidden = Usage(
                self._hidden.prompt_tokens + max(0, booked.prompt_tokens - worst_case.prompt_tokens),
                self._hidden.completion_tokens + max(0, booked.completion_tokens - worst_case.completion_tokens),
            )

    def reserve(self, worst_case: Usage) -> None:
        """Book an attempt that may have been billed though no answer came."""
        self.possibly_paid = _sum(self.possibly_paid, worst_case)

    def record(self) -> dict[str, Any]:
        def cost(usage: Usage, *, with_cache: bool = True) -> float | None:
            money = self.prices.cost(usage, with_cache=with_cache)
            return None if math.isnan(money) else money

        # Where the endpoint reports no cached tokens though it has a price for them: the cost if of every prompt as
        # many tokens came from the cache as the prompt before it had, or all if it is shorter. No ceiling rests on it.
        is_cache_unreported = self.prices.cached_input is not None and not self.paid.cached_prompt_tokens
        assumed = self.paid._replace(cached_prompt_tokens=self._repeated)
        return {
            "requests_sent": self.requests,
            "paid_tokens": self.paid._asdict(),
            "possibly_paid_tokens": self.possibly_paid._asdict(),
            "tokens_beyond_worst_case": self._hidden._asdict(),
            "cost_with_cache": cost(self.paid),
            "cost_without_cache": cost(self.paid, with_cache=False),
            "cost_with_assumed_cache": cost(assumed) if is_cache_unreported else None,
            "highest_possible_cost": cost(_sum(self.paid, self.possibly_paid)),
            "prices_per_million_tokens": asdict(self.prices),
            "ceilings": asdict(self.ceilings),
        }


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def _sum(*usages: Usage) -> Usage:
    return Usage(*(sum(column) for column in zip(*usages, strict=True)))


@dataclass
class JournalledClient:
    """Answers from the journal as long as it has answers, then from the responder, journalling every step.

    A request that was sent but whose answer is not in the journal (the process was killed in between) is sent again
    under the same idempotency key, and the first attempt stays booked as possibly paid.
    """

    responder: Responder
    journal: "AuditJournal"
    budget: Budget
    run_id: str
    retry: RetryPolicy
    sleep: Callable[[float], None]
    on_answer: Callable[[str, int], None]
    """Called after every answer with its place and the number of answers so far."""
    answered: int = 0
    sent: int = 0
    """Attempts sent by this process."""
    ceiling: BudgetError | None = None

    def __post_init__(self) -> None:
        self._retries = Retries(self.retry, option="--endpoint", sleep=self.sleep)
        self._has_warned = False
        for state in self.journal.states.values():
            self.budget.requests += state.attempts
            for worst_case in state.unresolved.values():
                self.budget.reserve(worst_case)

    def complete(self, request: Request, *, place: str, wait_seconds: float = 0.0) -> Reply:
        reply = self._journalled(place, request)
        if reply is None:
            if wait_seconds > 0:
                self.sleep(wait_seconds)
            reply = self._retries(lambda: self._attempt(place, request))
        self.answered += 1
        self.on_answer(place, self.answered)
        return reply

    def _journalled(self, place: str, request: Request) -> Reply | None:
        state = _state_at(place, request, self.journal.states)
        if state is None:
            return None
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
            may_be_billed = isinstance(failure, RequestFailed) and failure.may_be_billed
            self.journal.append(
                {
                    "kind": "failure",
                    "place": place,
                    "attempt": attempt,
                    "error": str(failure),
                    "may_be_billed": may_be_billed,
                    "is_rejected": isinstance(failure, RequestRejected),
                }
            )
            if may_be_billed:
                self.budget.reserve(worst_case)
            raise
        booked = self.budget.booking(request, reply, worst_case)
        # The rest is booked, but an endpoint that ignores its limits must not keep an audit busy for hours.
        reply = reply._replace(answers=tuple(_cut(one, request) for one in reply.answers[: request.completions]))
        self.journal.append(
            {
                "kind": "answer",
                "place": place,
                "attempt": attempt,
                "answers": [_present(answer._asdict()) for answer in reply.answers],
                "usage": reply.usage._asdict() if reply.usage else None,
                "booked": booked._asdict(),
            }
        )
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
        state = _state_at(place, request, self._states)
        if state is not None and state.rejection is not None:
            raise RequestRejected(state.rejection)
        if state is None or state.reply is None:
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


def _state_at(place: str, request: Request, states: Mapping[str, RequestState]) -> RequestState | None:
    """What a journal holds of the request at `place`; a RunError if that is another request."""
    state = states.get(place)
    if state is not None and state.digest != digest_of(request):
        raise RunError(
            f"The request at {place} in the journal is not the one that this audit makes; the folder belongs to "
            "another audit, so choose another --out."
        )
    return state


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
        pairs = zip(self._last_messages, request.messages, strict=False)
        shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
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

    def _take(self, record: dict[str, Any], start: int, length: int) -> None:
        _update(self.states, record)
        if record["kind"] == "intent":
            new = (Message(**_with_tuple(message)) for message in record["messages"])
            self._last_messages = (*self._last_messages[: record["shared_messages"]], *new)


def _present(fields: dict[str, Any]) -> dict[str, Any]:
    """Token ids, refusals and cuts only where there are any."""
    rare = ("token_ids", "refusal", "cut_characters")
    return {name: value for name, value in fields.items() if name not in rare or value is not None}


def _with_tuple(fields: dict[str, Any]) -> dict[str, Any]:
    ids = fields.get("token_ids")
    return fields if ids is None else fields | {"token_ids": tuple(ids)}
