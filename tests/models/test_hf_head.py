"""The head: float32 logits of the weights as they are, whatever the dtype, by every way that leads to logits."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from byrote.models.hf.head import ChunkedHead, Projection, returns_float32
from byrote.models.hf.model import HuggingFaceModel
from byrote.models.hf import head as hf_head
from byrote.policy import Policy
from tests.models.forest import batch_of
from tests.models.tiny import tiny_model

HALF = [torch.bfloat16, torch.float16]
WINDOW = [4, 9, 33, 17, 50, 21, 8, 44, 12]


def exact_logits(model: Any, windows: list[list[int]]) -> Tensor:
    """The body's states as they are times the head's weights as they are, in float64. [windows, length, vocab]"""
    with torch.inference_mode():
        hidden = model.get_decoder()(input_ids=torch.tensor(windows), use_cache=False).last_hidden_state
    layer = model.get_output_embeddings()
    logits = hidden.double() @ layer.weight.double().T
    return logits if layer.bias is None else logits + layer.bias.double()


def next_logits(model: HuggingFaceModel) -> Tensor:
    return model.next_logits([WINDOW])


@torch.inference_mode()
def tree_logits(model: HuggingFaceModel) -> Tensor:
    return model.open_tree(1, 16).forward(batch_of([[]], {0: tuple(WINDOW)}, 16))


@torch.inference_mode()
def chunked_logits(model: HuggingFaceModel) -> Tensor:
    return torch.cat(list(model.open_tree(1, 16).forward_in_chunks(batch_of([[]], {0: tuple(WINDOW)}, 16))))


@pytest.mark.parametrize("logits_of", [next_logits, tree_logits, chunked_logits])
@pytest.mark.parametrize("architecture", ["llama", "qwen3", "phi", "bloom"])
@pytest.mark.filterwarnings("ignore:.*recomputed:UserWarning")
def test_half_precision_logits_leave_the_head_in_float32(
    architecture: str, logits_of: Callable[[HuggingFaceModel], Tensor]
) -> None:
    """States may move by a rounding with the shape of a forward; logits are far finer than bfloat16 all the same."""
    model = tiny_model(architecture).to(torch.bfloat16)
    logits = logits_of(HuggingFaceModel(model, None))
    assert logits.dtype == torch.float32
    exact = exact_logits(model, [WINDOW])[0, -1]
    is_on_a_grid = (logits == logits.bfloat16().float()).float().mean()
    assert is_on_a_grid < 0.1, "about one float32 in 65,536 is a bfloat16"
    if logits_of is next_logits:
        torch.testing.assert_close(logits[0].double(), exact, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", HALF)
def test_half_precision_is_scored_from_unrounded_logits(dtype: torch.dtype) -> None:
    model = tiny_model("llama").to(dtype)
    windows = [WINDOW, WINDOW[::-1]]
    scores = HuggingFaceModel(model, None).score(windows, 5, [Policy(1.0, None)])
    exact = exact_logits(model, windows)[:, -6:-1].log_softmax(-1)
    expected = exact.gather(-1, torch.tensor(windows)[:, -5:, None])[..., 0]
    torch.testing.assert_close(scores.log_probs[0], expected, rtol=0, atol=1e-5)
    torch.testing.assert_close(scores.model_log_probs, expected, rtol=0, atol=1e-5)


def test_logits_that_coincide_in_bfloat16_are_told_apart() -> None:
    layer = torch.nn.Linear(2, 3, bias=False, dtype=torch.bfloat16)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[20.0, 0.0], [20.0, 0.03], [20.0, 0.01]]))
    with torch.inference_mode():
        logits = Projection(layer)(torch.ones(1, 2, dtype=torch.bfloat16))
    assert logits.argsort(descending=True).tolist() == [[1, 2, 0]]
    assert len(set(logits.bfloat16().flatten().tolist())) == 1


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("bias", [False, True])
def test_a_product_that_returns_float32_is_used_where_there_is_one(
    dtype: torch.dtype, bias: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A CPU has none, so one is lent to it."""
    layer = torch.nn.Linear(6, 5, bias=bias, dtype=dtype)
    states = torch.randn(3, 6).to(dtype)
    without = Projection(layer)(states)
    plain, calls = torch.mm, []

    def into_float32(left: Tensor, right: Tensor, out_dtype: torch.dtype) -> Tensor:
        assert left.dtype == right.dtype == dtype
        calls.append(left.shape)
        return plain(left.to(out_dtype), right.to(out_dtype))

    monkeypatch.setattr(torch, "mm", into_float32)
    with torch.inference_mode():
        found = Projection(layer)(states)
    assert (3, 6) in calls
    torch.testing.assert_close(found, without.detach(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, *HALF])
def test_a_cpu_has_no_product_into_float32(dtype: torch.dtype) -> None:
    assert not returns_float32(torch.ones(4, 4, dtype=dtype))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("dtype", HALF)
def test_a_gpu_multiplies_into_float32(dtype: torch.dtype) -> None:
    layer = torch.nn.Linear(512, 300, dtype=dtype, device="cuda")
    states = torch.randn(40, 512, dtype=dtype, device="cuda")
    assert returns_float32(layer.weight.detach())
    with torch.inference_mode():
        found = Projection(layer)(states)
    exact = states.double() @ layer.weight.double().T + layer.bias.double()
    torch.testing.assert_close(found.double(), exact, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("architecture", "changes", "divisor"),
    [
        ("cohere", {"logit_scale": 0.25}, 4.0),
        ("granite", {"logits_scaling": 4.0}, 4.0),
        ("gemma2", {"final_logit_softcapping": 3.0}, None),
    ],
)
def test_scales_and_caps_of_the_head_are_honoured(
    architecture: str, changes: dict[str, float], divisor: float | None, dtype: torch.dtype
) -> None:
    model = tiny_model(architecture, **changes).to(dtype)
    assert ChunkedHead(model).is_split
    logits = HuggingFaceModel(model, None).next_logits([WINDOW])[0].double()
    exact = exact_logits(model, [WINDOW])[0, -1]
    expected = exact / divisor if divisor is not None else 3.0 * torch.tanh(exact / 3.0)
    assert not torch.allclose(exact, expected, atol=0.1), "it must matter here"
    torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_cap_that_ordinary_logits_hardly_touch_is_noticed(dtype: torch.dtype) -> None:
    """Were the setting not known, the model's own head would be used rather than none of its caps."""
    model = tiny_model("gemma2", final_logit_softcapping=300.0).to(dtype)
    assert ChunkedHead(model).is_split
    model.config.final_logit_softcapping = 60.0  # the model reads it at every forward

    class Hidden:
        """Settings that do not show the cap."""

        def __init__(self, config: Any) -> None:
            self._config = config

        def __getattr__(self, name: str) -> Any:
            if name == "final_logit_softcapping":
                raise AttributeError(name)
            return getattr(self._config, name)

        def get_text_config(self) -> "Hidden":
            return self

    class Model:
        def __init__(self) -> None:
            self.config, self.device, self.dtype = Hidden(model.config), model.device, model.dtype
            self.get_decoder, self.get_output_embeddings = model.get_decoder, model.get_output_embeddings

        def __call__(self, **inputs: Any) -> Any:
            return model(**inputs)

    assert not ChunkedHead(Model()).is_split


def test_an_offloaded_head_is_left_to_its_model() -> None:
    model = tiny_model("llama")
    model.lm_head.to("meta")
    assert hf_head._parts_that_reproduce(model) is None
