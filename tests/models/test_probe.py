"""The probe: right packed forwards pass, every wrong one that we could think of is refused, in float32 and below."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from byrote.models.base import TreeBatch
from byrote.models.hf import attention as hf_attention
from byrote.models.hf import tree as hf_tree
from byrote.models.hf.attention import AttentionStyle, Layout
from byrote.models.hf.head import ChunkedHead
from byrote.models.hf.model import HuggingFaceModel
from byrote.models.hf.probe import probe_trees, probing_forest, widened
from byrote.models.hf.tree import TreeSessionHF
from byrote.models.history import HistorySession
from tests.models.test_hf_architectures import TREES
from tests.models.tiny import CONFIGS, tiny_model
from tests.table import TableModel

TOKENS = 60
DTYPES = [torch.float32, torch.bfloat16]
Patch = pytest.MonkeyPatch


def is_refused(architecture: str, dtype: torch.dtype, **changes: Any) -> bool:
    return refuses(tiny_model(architecture, **changes).to(dtype))


def refuses(model: Any) -> bool:
    return probe_trees(ChunkedHead(model), tokens=TOKENS).why_not(TOKENS) is not None


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("architecture", TREES)
def test_right_forwards_pass(architecture: str, dtype: torch.dtype) -> None:
    assert not is_refused(architecture, dtype)


def positions_seen(batch: TreeBatch) -> Tensor:
    """The position behind every entry that a lane sees; −1 elsewhere. [slots, lanes, entries]"""
    return torch.where(batch.ancestry, batch.entry_positions[:, None, :], -1)


def without(batch: TreeBatch, generations: int) -> Tensor:
    """Every lane without one ancestor: 1 is its parent."""
    seen = positions_seen(batch)
    return batch.ancestry & (seen != seen.amax(-1, keepdim=True) - generations)


def with_others(batch: TreeBatch) -> Tensor:
    """Every lane sees what any lane of its slot sees, up to its own position."""
    anybody = batch.ancestry.any(1, keepdim=True)
    own = positions_seen(batch).amax(-1, keepdim=True)
    return batch.ancestry | (anybody & (batch.entry_positions[:, None] <= own))


WRONG_MASKS: dict[str, Callable[[TreeBatch], Tensor]] = {
    "everything is seen": lambda batch: torch.ones_like(batch.ancestry),
    "the parent is lost": lambda batch: without(batch, 1),
    "the grandparent is lost": lambda batch: without(batch, 2),
    "the first token is lost": lambda batch: batch.ancestry & (positions_seen(batch) != 0),
    "oneself is lost": lambda batch: without(batch, 0),
    "others are seen": with_others,
    "the future is seen": lambda batch: batch.ancestry | batch.ancestry.any(1, keepdim=True),
}


def use_mask(patch: Patch, mutate: Callable[[TreeBatch], Tensor], *, only: torch.dtype | None = None) -> None:
    """Attention by wrong masks, everywhere or in one precision alone."""
    real = Layout.hidden

    def hidden(layout: Layout, window: int | None, dtype: torch.dtype) -> Tensor:
        right = layout.batch
        if only in (None, dtype):
            layout.batch = replace(right, ancestry=mutate(right))
        result = real(layout, window, dtype)
        layout.batch = right
        return result

    patch.setattr(Layout, "hidden", hidden)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("architecture", ["llama", "gpt2", "mistral", "deepseek_v3", "gemma2"])
@pytest.mark.parametrize("wrong", WRONG_MASKS)
def test_wrong_masks_are_refused(
    wrong: str, architecture: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_mask(monkeypatch, WRONG_MASKS[wrong])
    assert is_refused(architecture, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("wrong", ["the parent is lost", "the first token is lost", "others are seen"])
def test_wrong_masks_that_hardly_show_are_refused(
    wrong: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attention adds so little that the numbers move by a few hundredths of their spread."""

    def faint() -> Any:
        model = tiny_model("llama")
        with torch.no_grad():
            for layer in model.model.layers:
                layer.self_attn.o_proj.weight.mul_(0.003)
        return model.to(dtype)

    assert not refuses(faint())
    use_mask(monkeypatch, WRONG_MASKS[wrong])
    assert refuses(faint())


@pytest.mark.parametrize("architecture", ["llama", "gpt2", "mistral", "deepseek_v3", "gemma2"])
@pytest.mark.parametrize("wrong", ["everything is seen", "the parent is lost", "others are seen", "oneself is lost"])
def test_masks_that_are_wrong_in_the_runs_dtype_alone_are_refused(
    wrong: str, architecture: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Float32 says nothing then: rounding must not hide it either."""
    use_mask(monkeypatch, WRONG_MASKS[wrong], only=torch.bfloat16)
    assert not is_refused(architecture, torch.float32)
    assert is_refused(architecture, torch.bfloat16)


def blind_to_positions(patch: Patch) -> None:
    real = TreeSessionHF.states
    patch.setattr(
        TreeSessionHF,
        "states",
        lambda session, batch: real(session, replace(batch, positions=torch.arange(len(batch.positions)))),
    )


def without_causality(patch: Patch) -> None:
    plain = torch.nn.functional.scaled_dot_product_attention
    patch.setattr(
        hf_attention.functional,
        "scaled_dot_product_attention",
        lambda *tensors, is_causal=False, **more: plain(*tensors, **more),
    )


def without_soft_cap(patch: Patch) -> None:
    patch.setattr(AttentionStyle, "_capped", lambda style, scores: scores)


def with_another_scale(patch: Patch) -> None:
    patch.setattr(AttentionStyle, "__init__", _style_with(lambda scaling, cap, window: (None, cap, window)))


def without_window(patch: Patch) -> None:
    patch.setattr(AttentionStyle, "__init__", _style_with(lambda scaling, cap, window: (scaling, cap, None)))


def with_a_window_one_too_long(patch: Patch) -> None:
    longer = _style_with(lambda scaling, cap, window: (scaling, cap, None if window is None else window + 1))
    patch.setattr(AttentionStyle, "__init__", longer)


def _style_with(change: Callable[[Any, Any, Any], tuple[Any, Any, Any]]) -> Any:
    def initialise(style: AttentionStyle, *values: Any) -> None:
        style.scaling, style.softcap, style.window = change(*values)

    return initialise


def that_never_overwrites(patch: Patch) -> None:
    """An entry given out again keeps what it held."""

    def write(memory: Tensor, values: Tensor, rows: Tensor) -> None:
        flat, values = memory.flatten(0, 1).flatten(1), values.flatten(1)
        is_new = (flat[rows] == 0).all(-1)
        flat.index_copy_(0, rows[is_new], values[is_new])

    patch.setattr(hf_tree, "_write_rows", write)


def with_columns_forgotten(patch: Patch) -> None:
    """The columns of a forward are taken for the first entries."""
    patch.setattr(hf_attention, "_in_use", lambda memory, layout: memory[: layout.slots, : layout.reach])


def with_heads_mixed_up(patch: Patch) -> None:
    real = AttentionStyle.attend
    patch.setattr(AttentionStyle, "attend", lambda style, query, *others: real(style, query.flip(1), *others).flip(1))


WRONG_ATTENTION: list[tuple[Callable[[Patch], None], str]] = [
    (blind_to_positions, "llama"),
    (blind_to_positions, "gpt2"),
    (without_causality, "llama"),
    (without_causality, "gpt_neox"),
    (without_soft_cap, "gemma2"),
    (with_another_scale, "granite"),
    (without_window, "mistral"),
    (without_window, "gemma3"),
    (with_a_window_one_too_long, "mistral"),
    (with_a_window_one_too_long, "olmo3"),
    (that_never_overwrites, "llama"),
    (that_never_overwrites, "deepseek_v3"),
    (with_columns_forgotten, "llama"),
    (with_heads_mixed_up, "llama"),
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("mutate", "architecture"), WRONG_ATTENTION)
def test_wrong_attention_is_refused(
    mutate: Callable[[Patch], None], architecture: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = {"attention_multiplier": 0.2} if architecture == "granite" else {}
    assert not is_refused(architecture, dtype, **changes)
    mutate(monkeypatch)
    assert is_refused(architecture, dtype, **changes)


def test_a_model_that_says_the_same_whatever_it_sees_cannot_be_probed() -> None:
    """Its packed numbers are right however wrong the masks are, so they show nothing."""
    model = tiny_model("llama")
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight.zero_()
    assert refuses(model)


SPANNED = {"max_position_embeddings": 512, "sliding_window": 150, "attention_chunk_size": 150}


@pytest.mark.parametrize("architecture", ["qwen2_moe", "phimoe", "llama4"])
def test_a_span_that_only_a_mask_knows_matters_once_histories_outgrow_it(architecture: str) -> None:
    model = HuggingFaceModel(tiny_model(architecture, **SPANNED), None)
    assert isinstance(model.open_tree(1, 8, longest=100), TreeSessionHF)
    with pytest.warns(UserWarning, match="within 150 tokens by a mask alone"):
        assert isinstance(model.open_tree(1, 8), HistorySession)
    with pytest.warns(UserWarning, match="gives other numbers"):
        assert isinstance(model.open_tree(1, 8, longest=160), HistorySession)
    assert not model.searches_trees, "not in all sessions"


def test_histories_are_compared_at_the_length_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """A window that is not honoured is seen by a run that is longer, and does not matter to a shorter one."""
    without_window(monkeypatch)
    model = HuggingFaceModel(tiny_model("mistral", max_position_embeddings=512, sliding_window=150), None)
    assert isinstance(model.open_tree(1, 8, longest=90), TreeSessionHF)
    with pytest.warns(UserWarning, match="gives other numbers"):
        assert isinstance(model.open_tree(1, 8, longest=170), HistorySession)


@pytest.mark.parametrize("longest", [8, 9, 60])
def test_the_forest_is_what_its_histories_say(longest: int) -> None:
    """The judge is judged: on a table model, whose sessions are exact, packed forwards equal whole histories."""
    model = TableModel.random(0, vocab_size=16)
    forest = probing_forest(longest, 16, torch.device("cpu"))
    session = model.open_tree(forest.slots, forest.entries)
    for step, logits in zip(forest.steps, forest.packed_logits(session), strict=True):
        assert max(map(len, step.histories)) <= longest
        assert sum(step.per_slot) == len(step.histories)
        torch.testing.assert_close(logits, torch.cat([model.next_logits([history]) for history in step.histories]))
    assert max(len(history) for step in forest.steps for history in step.histories) == longest
    right = torch.cat([model.next_logits([history]) for history in forest.steps[-1].histories])
    for batch in forest.wrong:
        assert not (session.forward(batch) == right).all(-1).any(), "every node is wrong"


@pytest.mark.parametrize("architecture", sorted(set(CONFIGS) - {"mamba"}))
def test_widened_weights_give_what_a_float32_copy_gives_and_are_narrow_again(architecture: str) -> None:
    model = tiny_model(architecture).to(torch.bfloat16)
    before = {name: (tensor.data_ptr(), tensor.dtype) for name, tensor in model.state_dict(keep_vars=True).items()}
    copy = tiny_model(architecture).to(torch.bfloat16).float()
    ids = torch.arange(4, 34)[None]
    with torch.inference_mode():
        with widened(model):
            found = model(input_ids=ids, use_cache=False).logits
        torch.testing.assert_close(found, copy(input_ids=ids, use_cache=False).logits, rtol=1e-5, atol=1e-4)
    assert found.dtype == torch.float32
    after = {name: (tensor.data_ptr(), tensor.dtype) for name, tensor in model.state_dict(keep_vars=True).items()}
    assert before == after


def test_weights_are_narrow_again_after_an_error() -> None:
    model = tiny_model("llama").to(torch.bfloat16)
    model.model.layers[1].register_forward_pre_hook(lambda *_: 1 // 0)
    with pytest.raises(ZeroDivisionError), widened(model):
        model(input_ids=torch.tensor([[4, 5]]))
    assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}
