"""What an audit has cost, what it may have cost, and whether the next request fits under the ceiling.

Before a request is sent its worst case is known: no prompt has more tokens than bytes (plus a few per message for
the chat template), and no completion has more than `max_tokens`. A request goes out only if everything paid,
everything possibly paid and this worst case together stay within the ceilings.

An endpoint's count is used only if it can be true. A count that cannot is replaced by the worst case, or by
the bytes of the answer where the endpoint ignored the limit. An endpoint that counts more than a worst case shows a
prompt or a train of thought of its own; from then on every worst case has that much more.
"""

import math
from dataclasses import asdict, dataclass
from typing import Any

from byrote.errors import BudgetError, ConfigError
from byrote.models.responder import Message, Reply, Request, Usage

_TEMPLATE_TOKENS_PER_MESSAGE = 16
_TEMPLATE_TOKENS = 32
MOST_BYTES_PER_TOKEN = 128
_MOST_TOKENS = 100_000_000
"""No context is as large; a count above this is no count."""
_MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class Prices:
    """Money per million tokens. `cached_input` is what prompt tokens served from the endpoint's cache cost."""

    input: float | None = None
    output: float | None = None
    cached_input: float | None = None

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if value is not None and not 0 <= value < math.inf:
                raise ConfigError(f"The price {name} is {value}; a price is a finite number, 0 or more.")
        if (self.input is None) != (self.output is None):
            raise ConfigError("Only one of the prices for input and output tokens is given; give both or none.")

    @property
    def are_known(self) -> bool:
        return self.input is not None and self.output is not None

    def cost(self, usage: Usage, *, with_cache: bool) -> float:
        """NaN when the prices are not known."""
        if self.input is None or self.output is None:
            return float("nan")
        cached_price = self.cached_input if with_cache and self.cached_input is not None else self.input
        fresh = usage.prompt_tokens - usage.cached_prompt_tokens
        money = fresh * self.input + usage.cached_prompt_tokens * cached_price + usage.completion_tokens * self.output
        return money / _MILLION


@dataclass(frozen=True, slots=True)
class Ceilings:
    """None: no ceiling. `max_requests` counts every attempt that was sent, answered or not."""

    max_tokens_total: int | None = None
    max_cost: float | None = None
    max_requests: int | None = None

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if value is not None and not 0 <= value < math.inf:
                raise ConfigError(f"The ceiling {name} is {value}; a ceiling is a finite number, 0 or more.")

    def check(self, prices: Prices) -> None:
        if self.max_cost is not None and not prices.are_known:
            raise ConfigError(
                f"A ceiling of {self.max_cost} needs prices; give --price-input and --price-output per million tokens."
            )


class Budget:
    """The running account. `paid` is what answers are booked at; `possibly_paid` are worst cases without an answer."""

    def __init__(self, prices: Prices, ceilings: Ceilings) -> None:
        ceilings.check(prices)
        self.prices = prices
        self.ceilings = ceilings
        self.paid = Usage(0, 0, 0)
        self.possibly_paid = Usage(0, 0, 0)
        self.requests = 0
        """Attempts sent, by this process and those before it."""
        self._known_prompt: tuple[tuple[Message, ...], int] = ((), 0)
        self._hidden = Usage(0, 0)

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
        usage = reply.usage
        if (
            usage is not None
            and _can_be(usage.prompt_tokens, prompt_bytes)
            and _can_be(usage.completion_tokens, answer_bytes)
        ):
            return usage
        was_limited = answer_bytes <= worst_case.completion_tokens * MOST_BYTES_PER_TOKEN
        return Usage(worst_case.prompt_tokens, worst_case.completion_tokens if was_limited else answer_bytes)

    def pay(self, request: Request, booked: Usage, worst_case: Usage, *, was_counted: bool) -> None:
        """Book an answer. `was_counted`: by the endpoint, so that later worst cases can rest on it."""
        self.paid = _sum(self.paid, booked)
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
        total = _sum(self.paid, self.possibly_paid)
        return {
            "requests_sent": self.requests,
            "paid_tokens": self.paid._asdict(),
            "possibly_paid_tokens": self.possibly_paid._asdict(),
            "tokens_beyond_worst_case": self._hidden._asdict(),
            "cost_with_cache": _absent_if_nan(self.prices.cost(self.paid, with_cache=True)),
            "cost_without_cache": _absent_if_nan(self.prices.cost(self.paid, with_cache=False)),
            "highest_possible_cost": _absent_if_nan(self.prices.cost(total, with_cache=True)),
            "prices_per_million_tokens": asdict(self.prices),
            "ceilings": asdict(self.ceilings),
        }


def _can_be(tokens: int, text_bytes: int) -> bool:
    """Whether a text of so many bytes can have been counted as so many tokens."""
    return math.ceil(text_bytes / MOST_BYTES_PER_TOKEN) <= tokens <= _MOST_TOKENS


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def _sum(*usages: Usage) -> Usage:
    return Usage(*(sum(column) for column in zip(*usages, strict=True)))


def _absent_if_nan(value: float) -> float | None:
    return None if value != value else value
