"""Every architecture, tiny and random: the engine against the reference search, which only knows plain forwards."""

from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch

from byrote.models.hf.model import HuggingFaceModel
from byrote.models.hf.tree import TreeSessionHF
from byrote.models.history import HistorySession
from byrote.policy import Policy
from byrote.search import engine
from byrote.search.base import Limits, SearchOptions, SearchOutcome, SearchTask
from byrote.search.engine import Engine
from byrote.search.tree import Shapes
from tests.models.forest import batch_of
from tests.models.tiny import CONFIGS, VOCABULARY, tiny_model
from tests.search.reference import search
from tests.search.test_engine_equals_reference import PLAIN

OPTIONS = replace(PLAIN, policy=Policy(1.0, 5), beam_width=4, edit_budget=3, pin_verbatim=True)
HIDDEN_SPAN = {"qwen2_moe", "phimoe", "llama4"}
RECOMPUTED = HIDDEN_SPAN | {"gpt_neo", "gpt_oss", "gptj", "bloom", "mamba"}
"""Attention that does not go through the interface, has sinks or is local by its mask alone; or no attention at all."""
TREES = sorted(set(CONFIGS) - RECOMPUTED)


def wrap(model: Any) -> HuggingFaceModel:
    return HuggingFaceModel(model, None)


@cache
def tiny(architecture: str) -> HuggingFaceModel:
    return wrap(tiny_model(architecture))


def likely_suffix(model: HuggingFaceModel, prefix: list[int], length: int) -> list[int]:
    """A greedy continuation with one token exchanged: near enough that some beams live to the end."""
    path: list[int] = []
    for _ in range(length):
        logits = model.next_logits([[*prefix, *path]])[0]
        logits[list(model.eos_ids)] = -torch.inf
        path.append(int(logits.argmax()))
    path[length // 2] = (path[length // 2] + 1) % VOCABULARY
    return path


def tasks_for(model: HuggingFaceModel, shapes: list[tuple[int, int]], *, seed: int = 1) -> list[SearchTask]:
    """Windows of the given (prefix, suffix) lengths; every third suffix is random and dies early."""
    generator = torch.Generator().manual_seed(seed)
    tasks = []
    for key, (prefix_tokens, suffix_tokens) in enumerate(shapes):
        prefix = torch.randint(4, VOCABULARY, (prefix_tokens,), generator=generator).tolist()
        suffix = torch.randint(4, VOCABULARY, (suffix_tokens,), generator=generator).tolist()
        if key % 3 != 2:
            with torch.inference_mode():
                suffix = likely_suffix(model, prefix, suffix_tokens)
        tasks.append(SearchTask(key, tuple(prefix), tuple(suffix)))
    return tasks


def assert_engine_equals_reference(
    model: HuggingFaceModel, tasks: list[SearchTask], *, slots: int = 2, options: SearchOptions = OPTIONS
) -> None:
    limits = Limits(max(len(task.prefix_ids) for task in tasks), max(len(task.suffix_ids) for task in tasks))
    outcomes = {outcome.key: outcome for outcome in Engine(model, options, slots=slots, limits=limits).run(tasks)}
    assert sorted(outcomes) == [task.key for task in tasks]
    expected = {task.key: search(model, task, options) for task in tasks}
    assert any(outcome.continuations for outcome in expected.values()), "no window reaches its end: nothing is compared"
    for key, outcome in outcomes.items():
        assert_close(outcome, expected[key])


def assert_close(ours: SearchOutcome, reference: SearchOutcome) -> None:
    close = {"rel": 1e-5, "abs": 1e-10}
    assert (ours.stop_reason, ours.stop_step) == (reference.stop_reason, reference.stop_step)
    assert ours.token_evals == reference.token_evals
    assert ours.bounds.lower == pytest.approx(reference.bounds.lower, **close)
    assert ours.bounds.upper == pytest.approx(reference.bounds.upper, **close)
    theirs = {continuation.token_ids: continuation.log_p for continuation in reference.continuations}
    assert {continuation.token_ids for continuation in ours.continuations} == theirs.keys()
    for continuation in ours.continuations:
        assert continuation.log_p == pytest.approx(theirs[continuation.token_ids], rel=1e-5, abs=1e-5)


SHAPES = [(9, 6), (4, 6), (9, 3), (1, 5), (7, 1), (9, 6), (2, 6)]


@pytest.mark.parametrize("architecture", TREES)
def test_tree_search_equals_the_plain_forward(architecture: str) -> None:
    model = tiny(architecture)
    assert model.searches_trees
    assert isinstance(model.open_tree(1, 8), TreeSessionHF)
    assert_engine_equals_reference(model, tasks_for(model, SHAPES))


@pytest.mark.parametrize("architecture", ["llama", "gemma2", "gemma3", "gpt2", "mistral"])
def test_shapes_rounded_as_on_a_gpu_change_no_number(architecture: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Attention then runs over more slots, lanes and entries than are live."""
    monkeypatch.setattr(engine, "Shapes", lambda most, on_gpu: Shapes(most, on_gpu=True))
    model = tiny(architecture)
    assert_engine_equals_reference(model, tasks_for(model, SHAPES), slots=5)


@pytest.mark.parametrize("architecture", sorted(RECOMPUTED))
def test_models_that_cannot_take_the_mask_say_so_and_are_recomputed(architecture: str) -> None:
    model = tiny(architecture)
    with pytest.warns(UserWarning, match="recomputed"):
        assert not model.searches_trees
    assert isinstance(model.open_tree(1, 8), HistorySession)
    assert_engine_equals_reference(model, tasks_for(model, SHAPES))


LOCAL = ["mistral", "qwen2_sliding", "olmo3", "gemma2", "gemma3", "phi3"]


@pytest.mark.parametrize("architecture", LOCAL)
def test_windows_longer_than_a_sliding_window(architecture: str) -> None:
    model = wrap(tiny_model(architecture, sliding_window=12))
    assert model.searches_trees
    assert_engine_equals_reference(model, tasks_for(model, [(20, 6), (9, 6), (13, 5)]))


@pytest.mark.parametrize("architecture", LOCAL)
def test_a_sliding_window_changes_the_numbers_so_that_these_tests_can_fail(architecture: str) -> None:
    history = [list(range(4, 24))]
    narrow, wide = (wrap(tiny_model(architecture, sliding_window=window)) for window in (5, 40))
    assert not torch.allclose(narrow.next_logits(history), wide.next_logits(history), atol=1e-2)


@pytest.mark.parametrize("architecture", sorted(HIDDEN_SPAN))
def test_a_span_that_only_the_mask_knows_is_not_lost(architecture: str) -> None:
    model = wrap(tiny_model(architecture))
    history = [list(range(4, 34))]
    endless = wrap(tiny_model(architecture, sliding_window=63, attention_chunk_size=63))
    assert not torch.allclose(model.next_logits(history), endless.next_logits(history), atol=1e-2)
    with pytest.warns(UserWarning, match="gives other numbers with tree attention"):
        assert_engine_equals_reference(model, tasks_for(model, [(20, 6), (9, 6), (13, 5)]))


def test_a_span_that_no_layer_uses_does_not_slow_the_search() -> None:
    model = wrap(tiny_model("qwen2_moe", use_sliding_window=False))
    assert model.searches_trees
    assert_engine_equals_reference(model, tasks_for(model, SHAPES[:3]))


def test_soft_caps_change_the_numbers_so_that_these_tests_can_fail() -> None:
    history = [list(range(4, 12))]
    capped, free = (wrap(tiny_model("gemma2", attn_logit_softcapping=cap)) for cap in (2.0, None))
    assert not torch.allclose(capped.next_logits(history), free.next_logits(history), atol=1e-2)
    assert_engine_equals_reference(free, tasks_for(free, SHAPES[:2]))


def test_slots_change_nothing() -> None:
    model = tiny("llama")
    tasks = tasks_for(model, SHAPES)
    for slots in (1, 3, 16):
        assert_engine_equals_reference(model, tasks, slots=slots)


def test_the_attention_of_the_model_is_its_own_again_after_a_session() -> None:
    model = tiny_model("llama")
    before = model.config._attn_implementation
    plain = model(input_ids=torch.tensor([[4, 5, 6]])).logits
    assert wrap(model).searches_trees
    assert model.config._attn_implementation == before
    assert torch.equal(model(input_ids=torch.tensor([[4, 5, 6]])).logits, plain)


@pytest.mark.parametrize("architecture", ["llama", "gemma2", "gpt2", "gpt_neox", "deepseek_v3", "gemma3_multimodal"])
def test_bytes_per_entry_are_what_a_session_stores(architecture: str) -> None:
    model = tiny(architecture)
    session = model.open_tree(2, 16)
    assert isinstance(session, TreeSessionHF)
    session.forward(batch_of([[], []], {0: (4, 5, 6)}, 16))
    stored = sum(tensor.nbytes for pair in session._memory.values() for tensor in pair)
    # One entry a slot is for tokens that only fill up a recorded forward.
    assert stored == 2 * (16 + 1) * model.tree_bytes_per_entry()


def test_soft_caps_are_never_left_out() -> None:
    """Versions of the library that choose fused attention for Gemma 2 ignore the caps; newer ones refuse."""
    model = tiny_model("gemma2")
    expected = wrap(model).next_logits([(4, 5, 6, 7)])
    model.config._attn_implementation = "sdpa"
    wrapped = wrap(model)
    assert torch.equal(wrapped.next_logits([(4, 5, 6, 7)]), expected)
    assert wrapped.searches_trees
    assert wrap(tiny_model("llama")).model.config._attn_implementation == "sdpa", "others keep the fast one"


@pytest.mark.parametrize("architecture", ["llama", "gemma2"])
def test_bfloat16_searches_stay_near_the_plain_forward(architecture: str) -> None:
    """Rounding differs with the shape of a forward; log-probabilities of the same path stay within a few hundredths."""
    model = wrap(tiny_model(architecture).to(torch.bfloat16))
    assert model.searches_trees
    tasks = tasks_for(model, [(9, 4), (5, 4)])
    for outcome in Engine(model, OPTIONS, slots=2, limits=Limits(9, 4)).run(tasks):
        theirs = {c.token_ids: c.log_p for c in search(model, tasks[outcome.key], OPTIONS).continuations}
        shared = [c for c in outcome.continuations if c.token_ids in theirs]
        assert len(shared) >= 0.8 * len(theirs) > 0
        for continuation in shared:
            assert continuation.log_p == pytest.approx(theirs[continuation.token_ids], abs=0.3)
