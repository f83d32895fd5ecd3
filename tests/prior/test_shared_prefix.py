"""Shared-prefix scoring against the obvious way: every suffix after every prefix, history by history."""

import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from byrote.errors import ConfigError, WindowError
from byrote.models.base import CausalModel
from byrote.models.hf.model import HuggingFaceModel
from byrote.models.shared_prefix import PLAIN, SharedPrefixScorer
from byrote.policy import Policy
from tests.models.tiny import tiny_model
from tests.oracle import textbook_policy
from tests.table import TableModel

VOCABULARY = 6
TOKENS = st.integers(0, VOCABULARY - 1)
POLICIES = st.builds(
    Policy,
    temperature=st.sampled_from([0.7, 1.0]),
    top_k=st.sampled_from([None, 1, 3]),
    top_p=st.sampled_from([None, 0.6]),
)


def history_by_history(
    model: CausalModel, prefixes: Sequence[Sequence[int]], suffixes: Sequence[Sequence[int]], policy: Policy
) -> list[list[float]]:
    """log P(suffix | prefix): one whole history after the other, probabilities by sorting in plain Python."""

    def log_p(prefix: Sequence[int], suffix: Sequence[int]) -> float:
        total = 0.0
        for place, token in enumerate(suffix):
            chances = textbook_policy(model.next_logits([[*prefix, *suffix[:place]]])[0].tolist(), policy)
            total += math.log(chances[token]) if token in chances else -math.inf
        return total

    return [[log_p(prefix, suffix) for suffix in suffixes] for prefix in prefixes]


def assert_same(found: torch.Tensor, expected: list[list[float]], *, tolerance: float) -> None:
    wanted = torch.tensor(expected, dtype=torch.float64)
    assert found.shape == wanted.shape
    assert bool((torch.isinf(found) == torch.isinf(wanted)).all())
    assert torch.allclose(found.clamp(min=-1e9), wanted.clamp(min=-1e9), atol=tolerance, rtol=0)


@settings(max_examples=60)
@given(
    seed=st.integers(0, 1000),
    prefixes=st.lists(st.lists(TOKENS, min_size=1, max_size=5), min_size=1, max_size=4),
    suffixes=st.lists(st.lists(TOKENS, min_size=1, max_size=4), min_size=1, max_size=8),
    policy=POLICIES,
    lanes=st.sampled_from([1, 2, 5, 64]),
)
def test_trie_scores_equal_whole_histories_on_table_models(
    seed: int, prefixes: list[list[int]], suffixes: list[list[int]], policy: Policy, lanes: int
) -> None:
    model = TableModel.random(seed, vocab_size=VOCABULARY)
    scorer = SharedPrefixScorer(model, suffixes, policy, lanes=lanes)
    assert_same(scorer.score(prefixes), history_by_history(model, prefixes, suffixes, policy), tolerance=1e-5)


@pytest.mark.parametrize("architecture", ["llama", "gpt2", "mistral", "gemma2"])
def test_trie_scores_equal_teacher_forcing_on_hugging_face_models(architecture: str) -> None:
    model = HuggingFaceModel(tiny_model(architecture), tokenizer=None)
    generator = torch.Generator().manual_seed(1)

    def draw(length: int) -> list[int]:
        return torch.randint(4, 64, (length,), generator=generator).tolist()

    prefixes = [draw(7), draw(12), draw(9)]
    shared = draw(3)
    suffixes = [[*shared, *draw(3)] for _ in range(4)] + [draw(6) for _ in range(2)] + [shared * 2]
    found = SharedPrefixScorer(model, suffixes, lanes=8).score(prefixes)
    for row, prefix in enumerate(prefixes):
        forced = model.score([[*prefix, *suffix] for suffix in suffixes], 6, [PLAIN]).log_probs[0].sum(-1)
        assert torch.allclose(found[row], forced, atol=2e-3, rtol=0)


@given(
    suffixes=st.lists(st.lists(TOKENS, min_size=1, max_size=6), min_size=1, max_size=20),
    prefixes=st.lists(st.lists(TOKENS, min_size=1, max_size=3), min_size=1, max_size=3),
    lanes=st.integers(1, 30),
)
@settings(max_examples=60)
def test_cost_is_what_the_model_was_asked_for_and_never_above_the_ideal(
    suffixes: list[list[int]], prefixes: list[list[int]], lanes: int
) -> None:
    model = CountingModel(VOCABULARY)
    scorer = SharedPrefixScorer(model, suffixes, lanes=lanes)
    scorer.score(prefixes)
    assert model.queries == scorer.token_evals(prefixes)
    ideal = sum(len(prefix) + sum(map(len, suffixes)) for prefix in prefixes)
    assert model.queries <= ideal
    assert model.widest <= max(lanes, max(map(len, suffixes)) - 1)


class CountingModel(TableModel):
    """A table model that counts the query positions its sessions were given."""

    def __init__(self, vocab_size: int) -> None:
        super().__init__(torch.randn(64, vocab_size, generator=torch.Generator().manual_seed(0)))
        self.queries = 0
        self.widest = 0

    def open_tree(self, slots: int, entries: int, *, longest: int | None = None) -> Any:
        session = super().open_tree(slots, entries)
        forward = session.forward

        def counted(batch: Any) -> torch.Tensor:
            self.queries += len(batch.token_ids)
            self.widest = max(self.widest, *batch.beam_counts, 0)
            return forward(batch)

        session.forward = counted  # type: ignore[method-assign]
        return session


def test_shared_beginnings_are_evaluated_once() -> None:
    model = TableModel.random(0, vocab_size=VOCABULARY)
    suffixes = [[1, 2, 3, 4, last] for last in range(VOCABULARY)]
    assert SharedPrefixScorer(model, suffixes).evals_per_prefix == 4


def test_a_suffix_longer_than_the_context_is_refused_with_the_numbers() -> None:
    model = HuggingFaceModel(tiny_model("llama"), tokenizer=None)
    with pytest.raises(WindowError, match=r"prefix \+ suffix are 70 tokens, but the model takes at most 64"):
        SharedPrefixScorer(model, [[5] * 60]).score([[4] * 10])


@pytest.mark.parametrize("suffixes", [[], [[1], []]])
def test_suffixes_without_tokens_are_refused(suffixes: list[list[int]]) -> None:
    with pytest.raises(ConfigError, match="suffix without tokens"):
        SharedPrefixScorer(TableModel.random(0, vocab_size=VOCABULARY), suffixes)


def test_prefixes_without_tokens_are_refused() -> None:
    with pytest.raises(ConfigError, match="prefix without tokens"):
        SharedPrefixScorer(TableModel.random(0, vocab_size=VOCABULARY), [[1]]).score([[]])
