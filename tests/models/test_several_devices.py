"""A model whose layers lie on several devices is searched as a tree, every layer with its layout on its own device."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from byrote.models.hf import tree as hf_tree
from byrote.models.hf.head import ChunkedHead
from byrote.models.hf.model import HuggingFaceModel
from byrote.models.hf.tree import TreeSessionHF
from byrote.models.hf.weights import hash_weights
from byrote.models.packing import TreeNode
from tests.models.forest import batch_of
from tests.models.tiny import load_without_tokenizer, tiny_model

FIRST, SECOND = torch.device("cpu:0"), torch.device("cpu:1")
CHAINS = {0: (4, 5, 6, 7), 1: (8, 9, 10, 11)}
BEAMS = [[TreeNode((4, 5, 6, 7, 12), (0, 1, 2, 3, 4)), TreeNode((4, 5, 6, 7, 13), (0, 1, 2, 3, 5))]] * 2


def moves_its_inputs(module: torch.nn.Module, device: torch.device) -> None:
    """What accelerate's hooks do: a module finds all its inputs on its own device."""

    def moved(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(moved, value))
        return value.to(device) if torch.is_tensor(value) else value

    module.register_forward_pre_hook(
        lambda _, inputs, named: (moved(inputs), {name: moved(value) for name, value in named.items()}),
        with_kwargs=True,
    )


@contextmanager
def spread_model(kind: str) -> Iterator[Any]:
    """Two layers on two devices that do not exist: tensors have places and no values, and mixing places is an error."""
    with FakeTensorMode():
        with FIRST:
            model = tiny_model(kind)
        with SECOND:
            body, other = model.get_decoder(), tiny_model(kind).get_decoder()
        body.layers[1] = other.layers[1]
        body.layers[1].self_attn.config = model.config
        for layer, device in zip(body.layers, (FIRST, SECOND), strict=True):
            moves_its_inputs(layer, device)
        moves_its_inputs(body.norm, FIRST)
        yield model


@pytest.mark.parametrize("kind", ["llama", "mistral"])
def test_every_layer_finds_its_layout_and_its_memory_on_its_own_device(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As on a GPU: pages of the host's own memory have no place among pretended devices.
    monkeypatch.setattr(hf_tree, "zeros_as_touched", lambda shape, like: like.new_zeros(shape))
    with spread_model(kind) as model, torch.inference_mode():
        session = TreeSessionHF(ChunkedHead(model), slots=2, entries=10)
        for beams, chains in (([[], []], CHAINS), (BEAMS, {})):
            logits = session.forward(batch_of(beams, chains, 10).on(FIRST))
            assert logits.device == FIRST
        session.grow(16)
        session.copy_in([1], session.copy_out([0], 4))
        places = {layer: {tensor.device for tensor in stored} for layer, stored in session.copy_out([0], 4).items()}
    assert places == {0: {FIRST}, 1: {SECOND}}


def test_a_map_over_one_device_is_searched_as_a_tree(tmp_path: Path) -> None:
    pytest.importorskip("accelerate", reason="accelerate is not installed")
    tiny_model("llama").save_pretrained(tmp_path)
    plain, spread = (load_without_tokenizer(tmp_path, device=device, dtype="float32") for device in ("cpu", "map"))
    assert spread.searches_trees
    assert spread.tree_bytes_per_entry() == plain.tree_bytes_per_entry()
    assert hash_weights(spread.model) == hash_weights(plain.model)


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_two_gpus_give_the_numbers_of_one() -> None:
    accelerate = pytest.importorskip("accelerate", reason="accelerate is not installed")
    halves = {"model.embed_tokens": 0, "model.rotary_emb": 0, "model.layers.0": 0, "model.layers.1": 1}
    places = {**halves, "model.norm": 1, "lm_head": 1}
    one = HuggingFaceModel(tiny_model("llama").to("cuda:0"), None)
    two = HuggingFaceModel(accelerate.dispatch_model(tiny_model("llama"), places), None)
    assert two.searches_trees
    histories = [(4, 5, 6, 7), (8, 9, 10, 11)]
    torch.testing.assert_close(two.next_logits(histories), one.next_logits(histories), rtol=1e-5, atol=1e-5)
    session = two.open_tree(2, 10)
    with torch.inference_mode():
        session.forward(batch_of([[], []], CHAINS, 10).on(two.device))
        logits = session.forward(batch_of(BEAMS[:1], {}, 10).on(two.device))
    expected = one.next_logits([node.history for node in BEAMS[0]])
    torch.testing.assert_close(logits, expected, rtol=1e-5, atol=1e-5)
