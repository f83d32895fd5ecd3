"""Ceilings of tokens and money: never passed, whatever the endpoint answers; prices with and without cache."""

import math
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from byrote.errors import BudgetError, ConfigError
from byrote.longform.journal import AuditJournal, Budget, Ceilings, JournalledClient, Prices
from byrote.longform.run import run_audit
from byrote.models.responder import Message, Reply, Request, Usage
from byrote.models.served.retries import RetryPolicy
from tests.longform.audits import CountingClock, InProcess, audit, invented_book, make_run
from tests.loopback.brains import KnowsByHeart
from tests.loopback.server import Fault, LoopbackServer

BOOK = invented_book()
PRICES = Prices(input=3.0, output=15.0, cached_input=0.3)


@given(
    tokens=st.integers(0, 20_000),
    money=st.floats(0, 0.1),
    max_tokens=st.integers(1, 120),
    completions=st.integers(1, 3),
    seed=st.integers(0, 1000),
)
@settings(max_examples=60, deadline=None)
def test_no_ceiling_is_ever_passed(
    tmp_path_factory: pytest.TempPathFactory, tokens: int, money: float, max_tokens: int, completions: int, seed: int
) -> None:
    """An endpoint that answers anything from nothing to the limit, and charges for a byte as much as a token."""
    rng = random.Random(seed)

    class Expensive(InProcess):
        def complete(self, request: Request, *, idempotency_key: str) -> Reply:
            reply = super().complete(request, idempotency_key=idempotency_key)
            prompt = sum(len(message.content.encode()) for message in request.messages)
            completion = request.completions * rng.randint(0, request.max_tokens)
            self.billed[idempotency_key] = Usage(prompt, completion, rng.randint(0, prompt))
            return Reply(reply.answers, self.billed[idempotency_key])

    server = Expensive(KnowsByHeart(BOOK))
    ceilings = Ceilings(max_tokens_total=tokens, max_cost=money)
    options = {"first_max_tokens": max_tokens, "completions": completions, "target_words": 5, "max_turns": 12}
    run = make_run(BOOK, tmp_path_factory.mktemp("x") / "run", options=options, prices=PRICES, ceilings=ceilings)
    try:
        run_audit(run, server, sleep=CountingClock().sleep)
    except BudgetError:
        assert not server.billed
    assert server.billed_tokens <= tokens
    assert sum(PRICES.cost(usage, with_cache=True) for usage in server.billed.values()) <= money * (1 + 1e-12)


def test_a_ceiling_ends_the_audit_with_what_was_found(tmp_path: Path) -> None:
    with LoopbackServer(KnowsByHeart(BOOK)) as server:
        run = make_run(BOOK, tmp_path / "run", ceilings=Ceilings(max_tokens_total=2000))
        result = audit(server, run)
        assert 0 < server.log.billed_tokens <= 2000
    assert result.is_cut_short
    assert 0 < (result.trials[0].nv_recall or 0) < 380 / 400


def test_a_first_request_over_the_ceiling_is_refused_before_it_is_sent(tmp_path: Path) -> None:
    run = make_run(BOOK, tmp_path / "run", ceilings=Ceilings(max_tokens_total=100))
    with (
        LoopbackServer(KnowsByHeart(BOOK)) as server,
        pytest.raises(BudgetError, match=r"could bring the audit to \d+ tokens; the ceiling is 100"),
    ):
        audit(server, run)
    assert server.log.bodies == []


def test_costs_with_and_without_cache(tmp_path: Path) -> None:
    with LoopbackServer(KnowsByHeart(BOOK), cached_share=0.5) as server:
        result = audit(server, make_run(BOOK, tmp_path / "run", prices=PRICES))
    usages = server.log.billed.values()
    prompt, completion = (sum(usage[name] for usage in usages) for name in ("prompt_tokens", "completion_tokens"))
    cached = sum(usage["prompt_tokens_details"]["cached_tokens"] for usage in usages)  # type: ignore[index]
    assert cached > 0
    without = (3.0 * prompt + 15.0 * completion) / 1e6
    assert result.costs["cost_without_cache"] == pytest.approx(without, rel=1e-12)
    assert result.costs["cost_with_cache"] == pytest.approx(without - 2.7 * cached / 1e6, rel=1e-12)
    assert result.costs["paid_tokens"] == {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "cached_prompt_tokens": cached,
    }


def test_an_endpoint_that_counts_nothing_is_booked_at_the_worst_case(tmp_path: Path) -> None:
    with LoopbackServer(KnowsByHeart(BOOK), {0: Fault.NO_USAGE}) as server:
        result = audit(server, make_run(invented_book(seed=1), tmp_path / "run"))
    assert result.costs["paid_tokens"]["completion_tokens"] == 50
    assert result.costs["paid_tokens"]["prompt_tokens"] > server.log.billed_tokens - 50


def test_a_hidden_prompt_is_reckoned_with_from_the_second_request_on() -> None:
    budget = Budget(Prices(), Ceilings())
    first = Request((Message("user", "hello"),), max_tokens=10)
    expected = budget.worst_case(first)
    budget.pay(first, Usage(1000 + expected.prompt_tokens, 1), expected, was_counted=True)
    unrelated = Request((Message("user", "other"),), max_tokens=10)
    assert budget.worst_case(unrelated).prompt_tokens == 1000 + expected.prompt_tokens


def test_the_worst_case_uses_the_count_of_the_shared_conversation() -> None:
    budget = Budget(Prices(), Ceilings())
    first = Request((Message("user", "x" * 10_000),), max_tokens=10)
    budget.pay(first, Usage(2_500, 1), budget.worst_case(first), was_counted=True)
    longer = Request((*first.messages, Message("assistant", "hi"), Message("user", "Continue.")), max_tokens=10)
    assert 2_500 + len("hiContinue.") <= budget.worst_case(longer).prompt_tokens <= 2_600


@pytest.mark.parametrize(
    ("prices", "ceilings", "message"),
    [
        ({}, {"max_cost": 5.0}, "A ceiling of 5.0 needs prices; give --price-input and --price-output"),
        ({"input": 1.0}, {}, "Only one of the prices"),
    ],
)
def test_prices_that_cannot_work_are_refused(
    prices: Mapping[str, Any], ceilings: Mapping[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        Budget(Prices(**prices), Ceilings(**ceilings))


def test_a_cache_that_is_not_reported_is_estimated_by_what_prompts_repeat() -> None:
    """Of every prompt as many tokens as the one before it had; as the production audits estimate it for one system."""
    budget, request = Budget(PRICES, Ceilings()), Request((Message("user", "a"),), max_tokens=1)
    for prompt in (100, 150, 120):
        budget.pay(request, Usage(prompt, 10), Usage(prompt, 10), was_counted=True)
    repeated = 100 + 120
    expected = ((370 - repeated) * 3.0 + repeated * 0.3 + 30 * 15.0) / 1e6
    assert budget.record()["cost_with_assumed_cache"] == pytest.approx(expected)
    budget.pay(request, Usage(200, 10, 150), Usage(200, 10), was_counted=True)
    assert budget.record()["cost_with_assumed_cache"] is None, "the endpoint reports its cache"
    assert Budget(Prices(3.0, 15.0), Ceilings()).record()["cost_with_assumed_cache"] is None


def test_a_cost_without_prices_is_undefined_not_zero() -> None:
    assert math.isnan(Prices().cost(Usage(10, 10), with_cache=True))
    assert Budget(Prices(), Ceilings()).record()["cost_with_cache"] is None


def test_unanswered_attempts_of_an_earlier_process_are_booked(tmp_path: Path) -> None:
    journal = AuditJournal.open(tmp_path / "journal.jsonl", "r")
    request = Request((Message("user", "hello"),), max_tokens=10)
    journal.intend("a", request, worst_case=Usage(70, 10))
    journal.close()
    journal = AuditJournal.open(tmp_path / "journal.jsonl", "r")
    budget = Budget(Prices(), Ceilings())
    responder = InProcess(KnowsByHeart(BOOK))
    JournalledClient(
        responder, journal, budget, run_id="r", retry=RetryPolicy(), sleep=CountingClock().sleep, on_answer=print
    )
    journal.close()
    assert budget.possibly_paid == Usage(70, 10)
