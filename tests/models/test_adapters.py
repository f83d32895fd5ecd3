"""Adapters are merged, told apart and refused in one sentence; so are weights that were quantised."""

import json
import shutil
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from byrote.errors import ModelError
from byrote.models.hf import files, weights
from byrote.models.hf.model import load
from byrote.models.hf.weights import hash_weights, quantization_of
from tests.models.tiny import tiny_model, tiny_tokenizer

needs_peft = pytest.mark.skipif(find_spec("peft") is None, reason="peft is not installed")
HISTORY = [(4, 5, 6, 7)]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("base")
    tiny_model("llama", vocab_size=len(tiny_tokenizer())).save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def adapter(base: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, torch.Tensor]:
    """A folder with an adapter, as peft saves it, and what the adapted model says."""
    peft = pytest.importorskip("peft", reason="peft is not installed")
    settings = peft.LoraConfig(r=2, lora_alpha=8, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
    torch.manual_seed(1)
    adapted = peft.get_peft_model(load(str(base), dtype="float32", device="cpu").model, settings).eval()
    folder = tmp_path_factory.mktemp("adapter")
    adapted.save_pretrained(folder)
    with torch.inference_mode():
        logits = adapted(input_ids=torch.tensor(HISTORY)).logits[:, -1]
    return folder, logits


@needs_peft
def test_a_merged_model_says_what_the_adapted_one_says(base: Path, adapter: tuple[Path, torch.Tensor]) -> None:
    folder, adapted = adapter
    merged = load(str(base), adapter=str(folder), dtype="float32", device="cpu")
    plain = load(str(base), dtype="float32", device="cpu")
    torch.testing.assert_close(merged.next_logits(HISTORY), adapted, rtol=1e-5, atol=1e-5)
    assert (plain.next_logits(HISTORY) - adapted).abs().max() > 0.01
    assert merged.searches_trees
    assert merged.identity.weights_hash != plain.identity.weights_hash
    assert (plain.identity.adapter_hash, merged.identity.adapter_hash) == (None, weights.hash_adapter(folder))


@needs_peft
def test_a_folder_with_an_adapter_alone_is_merged_into_the_base_it_names(
    base: Path, adapter: tuple[Path, torch.Tensor]
) -> None:
    folder, adapted = adapter
    assert json.loads((folder / "adapter_config.json").read_text())["base_model_name_or_path"] == str(base)
    merged = load(str(folder), dtype="float32", device="cpu")
    torch.testing.assert_close(merged.next_logits(HISTORY), adapted, rtol=1e-5, atol=1e-5)


@needs_peft
@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({}, "there is no adapter_config.json"),
        ({"adapter_config.json": "{}"}, "has no adapter_model.safetensors"),
        ({"adapter_config.json": "{}", "adapter_model.bin": ""}, "pickled weights alone"),
        ({"adapter_config.json": "{}", "adapter_model.safetensors": "?"}, "could not be loaded"),
    ],
)
def test_what_is_no_adapter_is_refused(base: Path, tmp_path: Path, files: dict[str, str], words: str) -> None:
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    with pytest.raises(ModelError, match=words):
        load(str(base), adapter=str(tmp_path), dtype="float32", device="cpu")


def rewritten(adapter: Path, folder: Path, change: Callable[[str, torch.Tensor], tuple[str, torch.Tensor]]) -> Path:
    """A copy of the adapter in `folder`, with every tensor's name and values changed."""
    shutil.copytree(adapter, folder)
    tensors = load_file(folder / "adapter_model.safetensors")
    save_file(dict(change(*item) for item in tensors.items()), folder / "adapter_model.safetensors")
    return folder


UNFIT: dict[str, tuple[Callable[[str, torch.Tensor], tuple[str, torch.Tensor]], str]] = {
    "tensors of a layer that is not there": (
        lambda name, tensor: (name.replace("layers.1", "layers.7"), tensor),
        r"names 4 tensors \(base_model\.model\.model\.layers\.7\..*\) that the model does not have",
    ),
    "tensors of another model": (
        lambda name, tensor: (name.replace("self_attn", "attention"), tensor),
        "names 8 tensors .* that the model does not have; give the model that the adapter was trained on",
    ),
    "matrices of zeros": (
        lambda name, tensor: (name, tensor * ("lora_B" not in name)),
        "changes none of the model's weights in float32",
    ),
}


@needs_peft
@pytest.mark.parametrize("kind", UNFIT)
def test_an_adapter_that_would_leave_the_base_model_is_refused(
    base: Path, adapter: tuple[Path, torch.Tensor], tmp_path: Path, kind: str
) -> None:
    change, words = UNFIT[kind]
    folder = rewritten(adapter[0], tmp_path / "adapter", change)
    for name, given in ((str(base), str(folder)), (str(folder), None)):
        with pytest.raises(ModelError, match=words) as refused:
            load(name, adapter=given, dtype="float32", device="cpu")
        assert "\n" not in str(refused.value)


@needs_peft
def test_an_adapter_without_all_of_its_tensors_is_refused(
    base: Path, adapter: tuple[Path, torch.Tensor], tmp_path: Path
) -> None:
    folder = shutil.copytree(adapter[0], tmp_path / "adapter")
    tensors = load_file(folder / "adapter_model.safetensors")
    kept = {name: tensor for name, tensor in tensors.items() if "layers.1" not in name}
    save_file(kept, folder / "adapter_model.safetensors")
    with pytest.raises(ModelError, match=r"lacks 4 tensors \(.*layers\.1\..*\) that its settings call for"):
        load(str(base), adapter=str(folder), dtype="float32", device="cpu")


@needs_peft
def test_a_change_of_a_single_weight_by_one_step_is_a_change(base: Path) -> None:
    model = load(str(base), dtype="float32", device="cpu").model
    before = weights._norms(model)
    weight = model.get_input_embeddings().weight
    with torch.no_grad():
        weight[0, 0] = torch.nextafter(weight[0, 0], torch.tensor(torch.inf))
    assert weights._norms(model) != before


@needs_peft
def test_an_adapter_beside_the_weights_of_a_model_is_refused(
    base: Path, adapter: tuple[Path, torch.Tensor], tmp_path: Path
) -> None:
    """The library would attach it without a word about tensors that do not fit."""
    folder = shutil.copytree(base, tmp_path / "both")
    shutil.copytree(adapter[0], folder, dirs_exist_ok=True)
    with pytest.raises(ModelError, match="brings an adapter along; put the adapter into a folder of its own"):
        load(str(folder), dtype="float32", device="cpu")


def test_without_peft_a_sentence_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "adapter_config.json").write_text("{}")
    monkeypatch.setattr(files, "find_spec", lambda name: None)
    with pytest.raises(ModelError, match=r"pip install 'byrote\[peft\]'"):
        files.adapter_folder(str(tmp_path))


def test_an_adapter_that_names_no_base_says_how_to_give_it(tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(ModelError, match="--model BASE --adapter"):
        files.base_of(str(tmp_path), None)


def test_without_accelerate_a_map_says_what_to_install(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "find_spec", lambda name: None)
    with pytest.raises(ModelError, match=r"pip install 'byrote\[multi-gpu\]'"):
        load(str(base), device="map")


@pytest.mark.skipif(find_spec("bitsandbytes") is not None, reason="bitsandbytes is installed")
def test_quantised_weights_name_the_library_they_need(base: Path, tmp_path: Path) -> None:
    settings = json.loads((base / "config.json").read_text())
    settings["quantization_config"] = {"quant_method": "bitsandbytes", "load_in_4bit": True}
    for path in base.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "config.json").write_text(json.dumps(settings))
    with pytest.raises(ModelError, match=r"bitsandbytes.* requires .*pip install"):
        load(str(tmp_path), dtype="float32", device="cpu")


class Packed(torch.Tensor):
    """A weight as integers and a scale, the way quantised tensors are made."""

    parts: tuple[torch.Tensor, torch.Tensor]

    @staticmethod
    def __new__(cls, whole: torch.Tensor, scale: torch.Tensor) -> "Packed":
        made: Packed = torch.Tensor._make_wrapper_subclass(cls, whole.shape, dtype=torch.float32)  # type: ignore[attr-defined]
        made.whole, made.scale = whole, scale  # type: ignore[attr-defined]
        return made

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["whole", "scale"], None

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, arguments: Any = (), named: Any = None) -> Any:
        if function is torch.ops.aten.detach.default:
            return arguments[0]
        raise NotImplementedError(str(function))


class Holder(torch.nn.Module):
    def __init__(self, weight: torch.Tensor) -> None:
        super().__init__()
        self.register_buffer("weight", weight)


def test_the_hash_of_packed_weights_rests_on_their_integers_and_scales() -> None:
    whole, scale = torch.arange(4, dtype=torch.int8), torch.ones(1)
    hashes = [
        hash_weights(Holder(Packed(*parts))) for parts in ((whole, scale), (whole, 2 * scale), (whole + 1, scale))
    ]
    assert len({*hashes, hash_weights(Holder(Packed(whole.clone(), scale.clone())))}) == 3


def test_how_weights_were_quantised_is_part_of_what_a_model_is() -> None:
    model = tiny_model("llama")
    assert quantization_of(model.config) is None
    model.config.quantization_config = {"quant_method": "gptq", "bits": 4}
    assert quantization_of(model.config) == '{"bits": 4, "quant_method": "gptq"}'
