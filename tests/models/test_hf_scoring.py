"""Teacher forcing through a Hugging Face model: the chunked head gives the plain forward's numbers in little memory."""

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from byrote.models.hf.head import ChunkedHead
from byrote.models.hf.model import HuggingFaceModel
from byrote.models.hf import head as hf_head
from byrote.models.scoring import WindowScores, score_tokens
from byrote.policy import Policy
from tests.models.tiny import CONFIGS, VOCABULARY, tiny_model
from tests.oracle import seeded

POLICIES = [Policy(1.0, 40), Policy(1.0, None), Policy(0.7, None, 0.8)]
WINDOWS = torch.randint(4, VOCABULARY, (7, 20), generator=seeded(0)).tolist()
SUFFIX = 6


def plain_scores(model: Any, windows: list[list[int]]) -> WindowScores:
    """One forward, all logits at once."""
    ids = torch.tensor(windows)
    with torch.inference_mode():
        logits = model(input_ids=ids, use_cache=False).logits.float()[:, -SUFFIX - 1 : -1]
    scores = score_tokens(logits.flatten(0, 1), ids[:, -SUFFIX:].flatten(), POLICIES)
    shape = (len(windows), SUFFIX)
    return WindowScores(
        scores.log_probs.reshape(-1, *shape), scores.ranks.reshape(shape), scores.model_log_probs.reshape(shape)
    )


def assert_same_scores(found: WindowScores, expected: WindowScores, *, tolerance: float = 1e-4) -> None:
    torch.testing.assert_close(found.log_probs, expected.log_probs, rtol=0, atol=tolerance)
    torch.testing.assert_close(found.model_log_probs, expected.model_log_probs, rtol=0, atol=tolerance)
    assert torch.equal(found.ranks, expected.ranks)


@pytest.fixture(params=[1, VOCABULARY * 5, 1 << 21], ids=["one row", "five rows", "all rows"])
def chunk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hf_head, "CHUNK_ELEMENTS", {"cpu": request.param, "cuda": request.param})


@pytest.mark.usefixtures("chunk")
@pytest.mark.parametrize("architecture", ["llama", "gpt2", "gemma2"])
def test_scores_equal_those_of_a_plain_forward(architecture: str) -> None:
    model = tiny_model(architecture)
    assert_same_scores(HuggingFaceModel(model, None).score(WINDOWS, SUFFIX, POLICIES), plain_scores(model, WINDOWS))


@pytest.mark.parametrize("architecture", sorted(CONFIGS))
def test_every_architecture_is_scored_like_its_own_forward(architecture: str) -> None:
    model = tiny_model(architecture)
    assert_same_scores(HuggingFaceModel(model, None).score(WINDOWS, SUFFIX, POLICIES), plain_scores(model, WINDOWS))


def head_logits(head: ChunkedHead) -> torch.Tensor:
    return head.logits(head.states(torch.arange(5), input_ids=torch.tensor(WINDOWS)))


def test_a_soft_cap_is_applied_to_the_chunked_head() -> None:
    model = tiny_model("gemma2", final_logit_softcapping=5.0)
    head = ChunkedHead(model)
    assert head.is_split
    logits = head_logits(head)
    assert float(logits.detach().abs().max()) <= 5.0
    free = tiny_model("gemma2", final_logit_softcapping=None)
    uncapped = head_logits(ChunkedHead(free))
    torch.testing.assert_close(logits, torch.tanh(uncapped / 5.0) * 5.0)
    assert float(uncapped.detach().abs().max()) > 5.0, "the cap must matter here"


class Scaled(torch.nn.Module):
    """A model that does something to its logits that we know nothing of."""

    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner, self.config, self.device, self.dtype = inner, inner.config, inner.device, inner.dtype

    def get_decoder(self) -> Any:
        return self.inner.get_decoder()

    def get_output_embeddings(self) -> Any:
        return self.inner.get_output_embeddings()

    def forward(self, **inputs: Any) -> Any:
        outputs = self.inner(**inputs)
        outputs.logits = outputs.logits * 0.5
        return outputs


@pytest.mark.usefixtures("chunk")
def test_a_head_that_cannot_be_split_is_used_as_it_is() -> None:
    scaled = Scaled(tiny_model("llama")).eval()
    model = HuggingFaceModel(scaled, None)
    assert not model._head.is_split
    assert_same_scores(model.score(WINDOWS, SUFFIX, POLICIES), plain_scores(scaled, WINDOWS))


class LargestTensor(TorchDispatchMode):
    """Remembers the most elements any result of a tensor operation had."""

    elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, tuple | list) else (result,):
            if isinstance(tensor, torch.Tensor):
                self.elements = max(self.elements, tensor.numel())
        return result


@pytest.mark.parametrize("policies", [POLICIES[:1], POLICIES], ids=["one policy", "many policies"])
def test_logits_of_all_positions_never_exist_at_once(monkeypatch: pytest.MonkeyPatch, policies: list[Policy]) -> None:
    rows = 5
    vocabulary = 2048
    monkeypatch.setattr(hf_head, "CHUNK_ELEMENTS", {"cpu": rows * vocabulary, "cuda": rows * vocabulary})
    model = HuggingFaceModel(tiny_model("llama", vocab_size=vocabulary), None)
    assert model._head.is_split
    windows = [[*window, *window] for window in WINDOWS]
    with LargestTensor() as largest:
        model.score(windows, 20, policies)
    weights = vocabulary * 32
    assert rows * vocabulary <= largest.elements <= max(weights, rows * vocabulary)
    assert largest.elements < len(windows) * 20 * vocabulary / 4


def test_a_nucleus_over_a_large_vocabulary_agrees_when_the_list_is_too_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("byrote.models.scoring.NUCLEUS_LIST", 3)
    model = tiny_model("qwen3")
    found = HuggingFaceModel(model, None).score(WINDOWS, SUFFIX, POLICIES)
    monkeypatch.setattr("byrote.models.scoring.NUCLEUS_LIST", 1024)
    assert_same_scores(found, plain_scores(model, WINDOWS))


def test_bfloat16_is_scored_from_float32_logits_of_its_own_head() -> None:
    model = tiny_model("llama").to(torch.bfloat16)
    scores = HuggingFaceModel(model, None).score(WINDOWS, SUFFIX, POLICIES)
    assert scores.log_probs.dtype == torch.float64
    expected = plain_scores(model, WINDOWS)
    torch.testing.assert_close(scores.model_log_probs, expected.model_log_probs, rtol=0, atol=0.1)
