"""Adapters are merged, told apart and refused in one sentence; so are weights that were quantised."""

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

from rote.errors import ConfigError, ModelError
from rote.models import adapters, hf_weights, model_folder
from rote.models.hf import load
from rote.models.hf_identity import hash_weights, quantization_of
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
    assert (plain.identity.adapter_hash, merged.identity.adapter_hash) == (None, adapters.hash_adapter(folder))


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


def test_without_peft_a_sentence_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "adapter_config.json").write_text("{}")
    monkeypatch.setattr(model_folder, "find_spec", lambda name: None)
    with pytest.raises(ModelError, match=r"pip install 'rote\[peft\]'"):
        adapters.adapter_folder(str(tmp_path))


def test_an_adapter_that_names_no_base_says_how_to_give_it(tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(ModelError, match="--model BASE --adapter"):
        adapters.base_of(str(tmp_path), None)


def test_without_accelerate_a_map_says_what_to_install(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hf_weights, "find_spec", lambda name: None)
    with pytest.raises(ModelError, match=r"pip install 'rote\[multi-gpu\]'"):
        load(str(base), device="map")


@pytest.mark.skipif(find_spec("bitsandbytes") is not None, reason="bitsandbytes is installed")
def test_quantised_weights_name_the_library_they_need(base: Path, tmp_path: Path) -> None:
    settings = json.loads((base / "config.json").read_text())
    settings["quantization_config"] = {"quant_method": "bitsandbytes", "load_in_4bit": True}
    for path in base.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "config.json").write_text(json.dumps(settings))
    with pytest.raises(ModelError, match=r"quantised by bitsandbytes.*pip install bitsandbytes"):
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
    assert quantization_of(model) is None
    model.config.quantization_config = {"quant_method": "gptq", "bits": 4}
    assert quantization_of(model) == '{"bits": 4, "quant_method": "gptq"}'


@pytest.mark.parametrize("is_named", [True, False])
def test_an_adapter_is_not_merged_into_shards_of_weights(
    base: Path, adapter: tuple[Path, torch.Tensor], is_named: bool
) -> None:
    """Given as --adapter, or as the folder of an adapter that names its base."""
    folder = str(adapter[0])
    name, given = (str(base), folder) if is_named else (folder, None)
    with pytest.raises(ConfigError, match=f"the adapter {folder} cannot be merged into a model over several ranks"):
        load(name, adapter=given, dtype="float32", device="cpu", tensor_parallel=2)
