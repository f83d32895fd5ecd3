"""The policy against sorting everything in plain Python, ties, truncations and narrow floats included."""

import math

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from byrote.errors import ConfigError
from byrote.policy import BLOCK, Policy, _top_tokens_by_key, keep, top_tokens
from tests.oracle import textbook_policy

# Few distinct values, so that ties are the rule; -0.0 ties with 0.0; −inf is a forbidden token.
tied_logits = st.sampled_from([-math.inf, -2.0, -1.0, -0.0, 0.0, 1.0, 1.5, 3.0])
vectors = st.lists(tied_logits, min_size=1, max_size=12).filter(lambda row: max(row) > -math.inf)
policies = st.builds(
    Policy,
    st.sampled_from([0.3, 1.0, 2.5]),
    st.one_of(st.none(), st.integers(1, 12)),
    st.one_of(st.none(), st.just(1.0), st.floats(0.01, 0.999)),
)


def listed(logits: torch.Tensor, policy: Policy, cap: int | None = None) -> list[tuple[int, float]]:
    """(token, probability) in the order of `keep`, without unused places."""
    kept = keep(logits, policy, cap=cap)
    pairs = zip(kept.token_ids.tolist(), kept.log_probs.tolist(), strict=True)
    return [(token, math.exp(log_p)) for token, log_p in pairs if log_p > -math.inf]


def assume_nucleus_is_clear(row: list[float], policy: Policy) -> None:
    """Leave out cases where a cumulated mass equals top-p up to rounding: either side would be right."""
    if policy.top_p is None or policy.top_p == 1:
        return
    reached = 0.0
    for probability in textbook_policy(row, Policy(policy.temperature, policy.top_k)).values():
        reached += probability
        assume(abs(reached - policy.top_p) > 1e-9)


@given(vectors, policies)
def test_kept_tokens_equal_the_textbook_in_order_and_probability(row: list[float], policy: Policy) -> None:
    assume_nucleus_is_clear(row, policy)
    expected = list(textbook_policy(row, policy).items())
    ours = listed(torch.tensor(row), policy)
    assert [token for token, _ in ours] == [token for token, _ in expected]
    assert [p for _, p in ours] == pytest.approx([p for _, p in expected], rel=1e-12)


@given(vectors, policies)
def test_kept_probabilities_sum_to_one(row: list[float], policy: Policy) -> None:
    kept = keep(torch.tensor(row), policy)
    assert kept.log_probs.dtype == torch.float64
    assert float(kept.log_probs.exp().sum()) == pytest.approx(1, rel=1e-12)
    assert float(kept.unlisted) == 0


@given(vectors, policies, st.integers(1, 6))
def test_a_cap_lists_the_heaviest_and_returns_the_mass_of_the_rest(row: list[float], policy: Policy, cap: int) -> None:
    assume_nucleus_is_clear(row, policy)
    expected = list(textbook_policy(row, policy).items())
    ours = listed(torch.tensor(row), policy, cap)
    assert [token for token, _ in ours] == [token for token, _ in expected[:cap]]
    assert [p for _, p in ours] == pytest.approx([p for _, p in expected[:cap]], rel=1e-12)
    rest = math.fsum(p for _, p in expected[cap:])
    assert float(keep(torch.tensor(row), policy, cap=cap).unlisted) == pytest.approx(rest, abs=1e-12)


@given(st.integers(1, 12).flatmap(lambda n: st.lists(st.lists(tied_logits, min_size=n, max_size=n), min_size=1)))
def test_rows_of_a_batch_do_not_influence_each_other(rows: list[list[float]]) -> None:
    assume(all(max(row) > -math.inf for row in rows))
    for policy in (Policy(1.0, min(3, len(rows[0]))), Policy(0.7, None, 0.83)):
        together = keep(torch.tensor(rows), policy, cap=2)
        for place, row in enumerate(rows):
            alone = keep(torch.tensor(row), policy, cap=2)
            assert together.token_ids[place].tolist() == alone.token_ids.tolist()
            assert together.log_probs[place].tolist() == pytest.approx(alone.log_probs.tolist(), rel=1e-12)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@given(row=vectors, policy=policies)
def test_narrow_floats_give_what_float32_gives_on_the_same_values(
    dtype: torch.dtype, row: list[float], policy: Policy
) -> None:
    narrow = torch.tensor(row).to(dtype)
    assert listed(narrow, policy) == listed(narrow.float(), policy)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_ties_across_a_vocabulary_beyond_16_bits_go_to_the_lower_ids(dtype: torch.dtype) -> None:
    logits = torch.zeros(70_000, dtype=dtype)
    logits[69_999] = 1.0
    logits[5] = -0.0
    values, ids = top_tokens(logits, 7)
    assert ids.tolist() == [69_999, 0, 1, 2, 3, 4, 5]
    assert values.tolist() == [1.0, 0, 0, 0, 0, 0, 0]


@given(st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=9))
def test_integer_keys_order_any_float_as_sorting_does(row: list[float]) -> None:
    """The path GPUs take: subnormals, infinities and both zeros included."""
    _, ids = _top_tokens_by_key(torch.tensor(row, dtype=torch.float32), len(row))
    assert ids.tolist() == sorted(range(len(row)), key=lambda token: (-row[token], token))


def test_negative_logits_keep_their_order_in_every_precision() -> None:
    row = [-1.0, -0.5, -60.0, -math.inf, -2.0, 0.25]
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        assert top_tokens(torch.tensor(row, dtype=dtype), 6)[1].tolist() == [5, 1, 0, 4, 2, 3], dtype


def test_small_differences_survive_large_logits() -> None:
    """float64 from the start: a float32 logsumexp would lose the last digits here."""
    row = [10_000.0, 9_999.9990234375]
    ours = dict(listed(torch.tensor(row), Policy(1.0, 2)))
    assert ours == pytest.approx(textbook_policy(row, Policy(1.0, 2)), rel=1e-13)


def test_greedy_is_top_k_of_one() -> None:
    assert listed(torch.tensor([0.0, 2.0, 2.0]), Policy(1.0, 1)) == [(1, 1.0)]


@pytest.mark.parametrize("temperature", [0.0, -1.0, math.nan, math.inf])
def test_temperatures_that_cannot_work_are_refused(temperature: float) -> None:
    with pytest.raises(ConfigError, match="temperature is"):
        Policy(temperature, 40)


@pytest.mark.parametrize("top_k", [0, -3])
def test_top_k_below_one_is_refused(top_k: int) -> None:
    with pytest.raises(ConfigError, match=f"top-k is {top_k}; it must be at least 1"):
        Policy(1.0, top_k)


@pytest.mark.parametrize("top_p", [0.0, -0.1, 1.1, math.nan])
def test_top_p_outside_its_range_is_refused(top_p: float) -> None:
    with pytest.raises(ConfigError, match="top-p is"):
        Policy(1.0, None, top_p)


def test_top_k_above_the_vocabulary_is_refused_with_both_numbers() -> None:
    Policy(1.0, 64).check_vocabulary(64)
    with pytest.raises(ConfigError, match="top-k is 65, but the model's vocabulary has 64 tokens"):
        Policy(1.0, 65).check_vocabulary(64)


def test_a_policy_describes_itself_in_the_words_of_its_options() -> None:
    assert Policy(1.0, 40).describe() == "temperature 1, top-k 40"
    assert Policy(0.8, None, 0.9).describe() == "temperature 0.8, top-p 0.9"
    assert Policy(0.8, None, 0.9).width(64) == 64


@given(st.integers(0, 2**32 - 1), st.integers(1, 4), st.integers(1, 3), st.integers(2, 40))
def test_looking_into_blocks_finds_the_same_tokens_ties_included(
    seed: int, count: int, rows: int, distinct: int
) -> None:
    """Vocabularies large enough for blocks; few distinct values make ties straddle cuts and blocks."""
    generator = torch.Generator().manual_seed(seed)
    vocabulary = BLOCK * (3 * count + 6)
    logits = torch.randint(0, distinct, (rows, vocabulary), generator=generator).float()
    values, ids = top_tokens(logits, count)
    ordered = logits.sort(dim=-1, descending=True, stable=True)
    assert torch.equal(values, ordered.values[:, :count])
    assert torch.equal(ids, ordered.indices[:, :count])


def test_blocks_are_used_where_they_are_less_work(monkeypatch: pytest.MonkeyPatch) -> None:
    widths = []
    topk = torch.Tensor.topk
    monkeypatch.setattr(torch.Tensor, "topk", lambda self, *a: (widths.append(self.shape[-1]), topk(self, *a))[1])
    top_tokens(torch.randn(2, 32 * 256), 40)
    assert widths == [256, 41 * BLOCK]
    widths.clear()
    top_tokens(torch.randn(2, 1000), 40)
    assert widths == [1000]
