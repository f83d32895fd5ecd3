"""Scores of given tokens under many policies, judged by sorting everything in plain Python."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from byrote.models import scoring
from byrote.models.scoring import score_tokens
from byrote.policy import Policy
from tests.oracle import seeded, textbook_policy

POLICIES = [
    Policy(1.0, None),
    Policy(1.0, 1),
    Policy(1.0, 5),
    Policy(1.0, 40),
    Policy(0.5, 5),
    Policy(2.0, 40),
    Policy(1.0, None, 0.5),
    Policy(1.0, None, 0.999999),
    Policy(1.0, None, 1.0),
    Policy(0.7, None, 0.9),
    Policy(1.0, 10, 0.8),
    Policy(1.5, 10, 0.3),
    Policy(1.0, 10, 1.0),
]


def assert_textbook(logits: torch.Tensor, tokens: torch.Tensor, policies: list[Policy]) -> None:
    scores = score_tokens(logits, tokens, policies)
    assert scores.log_probs.dtype == torch.float64
    for row, token in enumerate(tokens.tolist()):
        values = logits[row].tolist()
        order = sorted(range(len(values)), key=lambda place: (-values[place], place))
        assert scores.ranks[row] == order.index(token)
        for place, policy in enumerate(policies):
            expected = textbook_policy(values, policy).get(token, 0.0)
            found = float(scores.log_probs[place, row])
            if expected == 0:
                assert found == -math.inf, (policy, row)
            else:
                assert found == pytest.approx(math.log(expected), abs=1e-12), (policy, row)


def test_random_logits_under_every_kind_of_policy() -> None:
    logits = torch.randn(24, 60, generator=seeded(0)) * 3
    assert_textbook(logits, torch.randint(60, (24,), generator=seeded(1)), POLICIES)


def test_likely_tokens_under_every_kind_of_policy() -> None:
    logits = torch.randn(24, 60, generator=seeded(2)) * 3
    assert_textbook(logits, logits.argmax(-1), POLICIES)


@given(
    st.lists(st.lists(st.integers(-3, 3), min_size=6, max_size=6), min_size=1, max_size=4),
    st.data(),
)
def test_ties_are_broken_by_lower_id(rows: list[list[int]], data: st.DataObject) -> None:
    """Integer logits tie all the time. No nucleus: a sum of ties may reach it in one arithmetic and not in another."""
    tokens = data.draw(st.lists(st.integers(0, 5), min_size=len(rows), max_size=len(rows)))
    policies = [Policy(temperature, top_k) for temperature in (1.0, 0.5) for top_k in (1, 2, 3, 6, None)]
    assert_textbook(torch.tensor(rows, dtype=torch.float32), torch.tensor(tokens), policies)


def test_a_nucleus_that_needs_the_whole_vocabulary(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scoring, "NUCLEUS_LIST", 4)
    logits = torch.randn(8, 50, generator=seeded(3)) * 0.1
    tokens = torch.randint(50, (8,), generator=seeded(4))
    assert_textbook(logits, tokens, [Policy(1.0, None, 0.95), Policy(3.0, None, 0.7), Policy(1.0, 5)])


def test_the_last_token_belongs_to_a_nucleus_of_everything() -> None:
    logits = torch.tensor([[3.0, 2.0, 1.0, 0.0]])
    scores = score_tokens(logits, torch.tensor([3]), [Policy(1.0, None, math.nextafter(1.0, 0.0))])
    assert float(scores.log_probs[0, 0]) == pytest.approx(float(logits.double().log_softmax(-1)[0, 3]), abs=1e-12)


def fifty_policies() -> list[Policy]:
    temperatures = (0.5, 0.8, 1.0, 1.3, 2.0)
    truncations = [(None, None), (1, None), (5, None), (40, None), (100, None)]
    truncations += [(None, 0.3), (None, 0.9), (None, 0.99), (20, 0.5), (20, 0.95)]
    return [Policy(temperature, k, p) for temperature in temperatures for k, p in truncations]


def test_fifty_policies_in_one_pass_give_what_fifty_passes_give() -> None:
    policies = fifty_policies()
    assert len(policies) == 50
    logits = torch.randn(16, 120, generator=seeded(5)) * 2
    tokens = logits.topk(30).indices[torch.arange(16), torch.randint(30, (16,), generator=seeded(6))]
    together = score_tokens(logits, tokens, policies)
    for place, policy in enumerate(policies):
        alone = score_tokens(logits, tokens, [policy])
        torch.testing.assert_close(together.log_probs[place], alone.log_probs[0], rtol=0, atol=1e-14)
        assert torch.equal(together.ranks, alone.ranks)
        assert torch.equal(together.model_log_probs, alone.model_log_probs)


def test_the_models_own_log_probability_knows_no_policy() -> None:
    logits = torch.randn(5, 30, generator=seeded(7))
    tokens = torch.arange(5)
    expected = logits.double().log_softmax(-1)[torch.arange(5), tokens]
    for policies in ([Policy(0.3, 2)], [Policy(2.0, None, 0.5)]):
        scores = score_tokens(logits, tokens, policies)
        torch.testing.assert_close(scores.model_log_probs, expected, rtol=0, atol=1e-12)


def test_probabilities_over_the_vocabulary_add_up_to_one() -> None:
    logits = torch.randn(1, 40, generator=seeded(8)) * 2
    scores = score_tokens(logits.expand(40, 40), torch.arange(40), POLICIES)
    torch.testing.assert_close(scores.log_probs.exp().sum(-1), torch.ones(len(POLICIES)).double(), rtol=0, atol=1e-12)


def test_a_top_k_as_large_as_the_vocabulary_changes_nothing() -> None:
    logits = torch.randn(6, 12, generator=seeded(9))
    scores = score_tokens(logits, torch.arange(6), [Policy(1.0, 12), Policy(1.0, None)])
    torch.testing.assert_close(scores.log_probs[0], scores.log_probs[1], rtol=0, atol=1e-12)


def textbook_standard_score(logits: list[float], token: int) -> float:
    weights = [math.exp(value - max(logits)) for value in logits]
    probs = [weight / math.fsum(weights) for weight in weights]
    possible = [prob for prob in probs if prob > 0]
    mean = math.fsum(prob * math.log(prob) for prob in possible)
    variance = math.fsum(prob * (math.log(prob) - mean) ** 2 for prob in possible)
    return (math.log(probs[token]) - mean) / math.sqrt(variance)


def test_standard_scores_equal_the_textbook_over_the_whole_vocabulary() -> None:
    logits = torch.randn(20, 70, generator=seeded(5)) * 4
    logits[3, 10:60] = -math.inf
    tokens = torch.arange(20) % 7
    scores = score_tokens(logits, tokens, [Policy(1.0, 3)], with_standard=True)
    assert scores.standard_scores is not None
    expected = [textbook_standard_score(logits[row].tolist(), int(tokens[row])) for row in range(20)]
    assert scores.standard_scores.tolist() == pytest.approx(expected, rel=1e-9)
    assert score_tokens(logits, tokens, [Policy(1.0, 3)]).standard_scores is None


def test_a_model_that_is_certain_scores_its_own_token_0_and_others_minus_infinity() -> None:
    logits = torch.full((2, 5), -math.inf)
    logits[:, 2] = 1.0
    scores = score_tokens(logits, torch.tensor([2, 4]), [Policy(1.0, None)], with_standard=True)
    assert scores.standard_scores is not None
    assert scores.standard_scores.tolist() == [0.0, -math.inf]
