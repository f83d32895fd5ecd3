"""Weights and logits that are not numbers never become probabilities."""

import math
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from byrote.errors import ModelError
from byrote.models.hf.model import HuggingFaceModel
from byrote.models.scoring import score_tokens, score_verbatim
from byrote.models.shared_prefix import SharedPrefixScorer
from byrote.policy import Policy, _top_tokens_by_key, keep
from tests.models.tiny import load_without_tokenizer, tiny_model
from tests.scan.streams import make_window
from tests.table import TableModel
from tests.test_policy import policies, vectors

broken_rows = st.one_of(
    st.tuples(vectors, st.sampled_from([math.nan, -math.nan, math.inf]), st.integers(0, 11)).map(
        lambda drawn: [*drawn[0][: drawn[2]], drawn[1], *drawn[0][drawn[2] :]]
    ),
    st.integers(1, 12).map(lambda count: [-math.inf] * count),
)


@given(broken_rows, policies, st.one_of(st.none(), st.integers(1, 5)))
def test_a_row_that_is_not_numbers_is_kept_as_nan(row: list[float], policy: Policy, cap: int | None) -> None:
    kept = keep(torch.tensor([row, [0.0] * len(row)]), policy, cap=cap)
    assert kept.log_probs[0].isnan().all()
    assert kept.unlisted[0].isnan()
    assert not kept.log_probs[1].isnan().any()
    assert not kept.unlisted[1].isnan()


@given(broken_rows, policies, st.integers(0, 12))
def test_a_row_that_is_not_numbers_is_scored_as_nan(row: list[float], policy: Policy, token: int) -> None:
    tokens = torch.tensor([token % len(row)] * 2)
    scores = score_tokens(torch.tensor([row, [0.0] * len(row)]), tokens, [policy, Policy(0.5, 1)])
    assert scores.log_probs[:, 0].isnan().all()
    assert scores.model_log_probs[0].isnan()
    assert not scores.log_probs[:, 1].isnan().any()
    assert not scores.model_log_probs[1].isnan()


@given(broken_rows, policies)
def test_the_way_of_a_gpu_tells_the_same(row: list[float], policy: Policy) -> None:
    """Its order of tokens knows no NaN; the check does not depend on it."""
    top = _top_tokens_by_key(torch.tensor([row]), policy.width(len(row)))
    assert keep(torch.tensor([row]), policy, top=top).log_probs.isnan().all()  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    ("dtype", "advice"),
    [
        (torch.float32, "The model is broken; get its files again."),
        (torch.bfloat16, "Try --dtype float32."),
        (torch.float16, "Try --dtype bfloat16 or --dtype float32."),
    ],
)
def test_one_weight_that_is_not_a_number_is_refused_by_name(value: float, dtype: torch.dtype, advice: str) -> None:
    model = tiny_model("llama").to(dtype)
    with torch.no_grad():
        model.model.layers[1].mlp.up_proj.weight[3, 2] = value
    with pytest.raises(ModelError, match=r"model\.layers\.1\.mlp\.up_proj\.weight in ") as error:
        HuggingFaceModel(model, None, name="broken")
    assert str(error.value).startswith("broken has weights that are not numbers (NaN or infinity)")
    assert str(error.value).endswith(advice)


def test_a_folder_with_such_a_weight_is_refused_when_it_is_loaded(tmp_path: Path) -> None:
    model = tiny_model("llama")
    with torch.no_grad():
        model.lm_head.weight[0, 0] = math.nan
    model.save_pretrained(tmp_path)
    with pytest.raises(ModelError, match=r"not numbers .*: lm_head\.weight in float32"):
        load_without_tokenizer(tmp_path)


def test_numbers_too_large_for_a_dtype_are_refused_with_a_dtype_to_try(tmp_path: Path) -> None:
    model = tiny_model("llama")
    with torch.no_grad():
        model.model.embed_tokens.weight[0, 0] = 1e6
    model.save_pretrained(tmp_path)
    with pytest.raises(ModelError, match=r"embed_tokens\.weight in float16\. Try --dtype bfloat16"):
        load_without_tokenizer(tmp_path, dtype="float16", device="cpu")
    assert load_without_tokenizer(tmp_path, dtype="bfloat16", device="cpu").dtype == torch.bfloat16


def test_logits_that_overflow_are_refused_when_windows_are_scored() -> None:
    """Every weight is a number, the products are not."""
    model = tiny_model("gpt2")
    with torch.no_grad():
        model.transformer.ln_f.weight.mul_(1e37)
        model.transformer.wte.weight.mul_(1e5)
    window = make_window(7, [4, 5, 6, 7, 8, 9])
    with pytest.raises(
        ModelError, match=r"logits for window book\.txt@7 are not numbers \(NaN or infinity\) in float32"
    ):
        list(score_verbatim(HuggingFaceModel(model, None), [window], [Policy(1.0, 5)], batch_windows=1))


@pytest.mark.parametrize("policy", [Policy(1.0, None), Policy(1.0, 2), Policy(0.7, None, 0.8)])
@pytest.mark.parametrize("history", [(1, 2), (1, 2, 0), (1, 2, 0, 3)])
def test_suffixes_after_other_prefixes_are_refused_too(policy: Policy, history: tuple[int, ...]) -> None:
    row = [0.0, math.nan, 0.0, 0.0]
    generator = torch.Generator().manual_seed(0)
    model = TableModel(torch.randn(64, 4, generator=generator), explicit={history: row})
    scorer = SharedPrefixScorer(model, [(0, 3, 1), (0, 1, 1)], policy)
    with pytest.raises(ModelError, match="suffixes after other prefixes are not numbers"):
        scorer.score([(3, 1), (1, 2)])
    assert not scorer.score([(3, 1)]).isnan().any()
