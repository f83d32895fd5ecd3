"""What an audit has cost, what it may have cost, and whether the next request fits under the ceiling.

Before a request is sent its worst case is known: no prompt has more tokens than bytes (plus a few per message for
the chat template), and no completion has more than `max_tokens`. A request goes out only if everything paid,
everything possibly paid and this worst case together stay within the ceilings.
"""

from dataclasses import asdict, dataclass
from typing import Any

from rote.errors import BudgetError, ConfigError
from rote.models.responder import Message, Reply, Request, Usage

_TEMPLATE_TOKENS_PER_MESSAGE = 16
_TEMPLATE_TOKENS = 32
_MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class Prices:
    """Money per million tokens. `cached_input` is what prompt tokens served from the endpoint's cache cost."""

    input: float | None = None
    output: float | None = None
    cached_input: float | None = None

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if value is not None and value < 0:
                raise ConfigError(f"The price {name} is {value}; a price is 0 or more.")
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
    """None: no ceiling."""

    max_tokens_total: int | None = None
    max_cost: float | None = None

    def check(self, prices: Prices) -> None:
        if self.max_cost is not None and not prices.are_known:
            raise ConfigError(
                f"A ceiling of {self.max_cost} needs prices; give --price-input and --price-output per million tokens."
            )


class Budget:
    """The running account. `paid` is what answers reported; `possibly_paid` are worst cases without an answer."""

    def __init__(self, prices: Prices, ceilings: Ceilings) -> None:
        ceilings.check(prices)
        self.prices = prices
        self.ceilings = ceilings
        self.paid = Usage(0, 0, 0)
        self.possibly_paid = Usage(0, 0, 0)
        self._known_prompt: tuple[tuple[Message, ...], int] = ((), 0)
        self._hidden_tokens = 0

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
            prompt_tokens += len(message.content.encode("utf-8", "surrogatepass")) + _TEMPLATE_TOKENS_PER_MESSAGE
        prompt_tokens += _TEMPLATE_TOKENS + self._hidden_tokens
        return Usage(prompt_tokens, request.completions * request.max_tokens)

    def require_room(self, worst_case: Usage) -> None:
        """Raise a BudgetError if the worst case could pass a ceiling."""
        total = _sum(self.paid, self.possibly_paid, worst_case)
        tokens = total.prompt_tokens + total.completion_tokens
        if self.ceilings.max_tokens_total is not None and tokens > self.ceilings.max_tokens_total:
            raise BudgetError(
                f"The next request could bring the audit to {tokens:,} tokens; the ceiling is "
                f"{self.ceilings.max_tokens_total:,}. Raise --max-tokens-total and run the same command to go on."
            )
        cost = self.prices.cost(total, with_cache=True)
        if self.ceilings.max_cost is not None and cost > self.ceilings.max_cost:
            raise BudgetError(
                f"The next request could bring the audit to a cost of {cost:.4f}; the ceiling is "
                f"{self.ceilings.max_cost}. Raise --max-cost and run the same command to go on."
            )

    def pay(self, request: Request, reply: Reply, worst_case: Usage) -> Usage:
        """Book an answer; what an endpoint does not count is booked at its worst case. Returns what was booked."""
        usage = reply.usage or worst_case
        self.paid = _sum(self.paid, usage)
        if reply.usage is not None:
            self._known_prompt = (request.messages, reply.usage.prompt_tokens)
            # Some endpoints put a prompt of their own before ours; it shows in the first count.
            self._hidden_tokens = max(self._hidden_tokens, reply.usage.prompt_tokens - worst_case.prompt_tokens)
        return usage

    def reserve(self, worst_case: Usage) -> None:
        """Book an attempt that may have been billed though no answer came."""
        self.possibly_paid = _sum(self.possibly_paid, worst_case)

    def record(self) -> dict[str, Any]:
        total = _sum(self.paid, self.possibly_paid)
        return {
            "paid_tokens": self.paid._asdict(),
            "possibly_paid_tokens": self.possibly_paid._asdict(),
            "cost_with_cache": _absent_if_nan(self.prices.cost(self.paid, with_cache=True)),
            "cost_without_cache": _absent_if_nan(self.prices.cost(self.paid, with_cache=False)),
            "highest_possible_cost": _absent_if_nan(self.prices.cost(total, with_cache=True)),
            "prices_per_million_tokens": asdict(self.prices),
            "ceilings": asdict(self.ceilings),
        }


def _sum(*usages: Usage) -> Usage:
    return Usage(*(sum(column) for column in zip(*usages, strict=True)))


def _absent_if_nan(value: float) -> float | None:
    return None if value != value else value
