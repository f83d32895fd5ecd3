"""Model folders that no library should be asked to open: refused in one sentence, at once."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from byrote.errors import ModelError
from byrote.models.hf.files import local_folder
from byrote.models.hf.model import load
from tests.models.tiny import CONFIGS, load_without_tokenizer, tiny_model, tiny_tokenizer


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    tiny_model("llama", vocab_size=258).save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "model"))


def set_field(name: str, value: object) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        (folder / "config.json").write_text(json.dumps(config | {name: value}), encoding="utf-8")

    return change


def replaced(name: str, make: Callable[[Path], object]) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        make(folder / name)

    return change


DAMAGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "layers without end": (
        set_field("num_hidden_layers", 10**9),
        "num_hidden_layers is 1000000000; it must be a whole",
    ),
    "layers as a word": (set_field("num_hidden_layers", "two"), "num_hidden_layers is 'two'"),
    "no vocabulary": (set_field("vocab_size", 0), "vocab_size is 0"),
    "a width the weights do not have": (set_field("hidden_size", 10**6), "weights, but the folder holds at most"),
    "an unknown kind": (set_field("model_type", "nothing"), "could not be loaded as a causal language model"),
    "heads that do not divide": (set_field("num_attention_heads", 0), "could not be loaded as a causal language model"),
    "a config that is a list": (replaced("config.json", lambda path: path.write_text("[]")), "is not a JSON object"),
    "a config cut short": (replaced("config.json", lambda path: path.write_text('{"a": ')), "cannot be read as JSON"),
    "a config too deep": (replaced("config.json", lambda path: path.write_text("[" * 10**5)), "nested too deeply"),
    "a config that is a pipe": (replaced("config.json", os.mkfifo), "it is a pipe, not a file"),
    "weights that are a pipe": (replaced("model.safetensors", os.mkfifo), "it is a pipe, not a file"),
    "a loop of links": (replaced("x", lambda path: path.symlink_to("x")), "Too many levels of symbolic links"),
    "a device": (replaced("x", lambda path: path.symlink_to("/dev/zero")), "it is a device, not a file"),
    "weights of no bytes": (replaced("model.safetensors", Path.touch), "cannot be read as safetensors"),
    "weights of other bytes": (
        replaced("model.safetensors", lambda path: path.write_bytes(b"\xff" * 99)),
        "its header is too long",
    ),
    "no tokenizer": (lambda folder: (folder / "tokenizer.json").write_text("{}"), "could not be loaded"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_folder_that_cannot_be_a_model_is_refused(folder: Path, name: str) -> None:
    damage, words = DAMAGES[name]
    damage(folder)
    with pytest.raises(ModelError) as refused:
        load(str(folder), device="cpu")
    assert words in str(refused.value)


DESCRIBED = {
    "a config of defaults alone": (
        {"model_type": "llama"},
        "describes a model of 6,738,415,616 weights, but the folder holds at most 32,032: model.embed_tokens.weight is "
        "[32000, 4096] in the configuration and [258, 32] in the files",
    ),
    "defaults and packed weights": (
        {"model_type": "llama", "quantization_config": {"quant_method": "gptq", "bits": 4}},
        "describes a model of 6,738,415,616 weights, but the folder holds at most",
    ),
}


@pytest.mark.parametrize("name", DESCRIBED)
def test_weights_that_the_folder_does_not_hold_are_never_allocated(
    folder: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "transformers.AutoModelForCausalLM.from_pretrained", lambda *_, **__: pytest.fail("the model was built")
    )
    config, words = DESCRIBED[name]
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    with pytest.raises(ModelError) as refused:
        load(str(folder), device="cpu")
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("size", "value", "first"), [("intermediate_size", 24, "gate_proj"), ("vocab_size", 99, "embed")]
)
def test_a_config_of_a_smaller_model_is_refused_by_the_weights_that_differ(
    folder: Path, size: str, value: int, first: str
) -> None:
    set_field(size, value)(folder)
    with pytest.raises(ModelError, match=rf"config\.json does not fit the weights: \S*{first}\S* is \[{value}, 32\]"):
        load(str(folder), device="cpu")


def test_weights_that_the_config_has_no_place_for_are_told_of(folder: Path) -> None:
    set_field("num_hidden_layers", 1)(folder)
    with pytest.warns(
        UserWarning, match=r"holds 9 tensors that its config\.json has no place for \(model\.layers\.1\."
    ):
        load(str(folder), device="cpu")


@pytest.mark.parametrize("architecture", CONFIGS)
def test_every_architecture_is_described_by_its_own_config(tmp_path: Path, architecture: str) -> None:
    """Weights are saved under other names and in other shapes than they are held; none is refused for it."""
    tiny_model(architecture).save_pretrained(tmp_path)
    load_without_tokenizer(tmp_path, device="cpu")


def test_a_tokenizer_larger_than_the_model_is_refused(tmp_path: Path) -> None:
    tiny_model("llama", vocab_size=64).save_pretrained(tmp_path)
    tiny_tokenizer().save_pretrained(tmp_path)
    with pytest.raises(ModelError, match=r"has token \d+, but the model knows only 64 tokens; use the tokenizer"):
        load(str(tmp_path), device="cpu")


@pytest.mark.parametrize("device", ["toaster", "meta", "cuda:-1", "cuda:x", "cpu:7", "xla", "CPU", ""])
def test_a_device_that_is_none_is_refused(whole: Path, device: str) -> None:
    with pytest.raises(ModelError, match="is not a device"):
        load(str(whole), device=device)


@pytest.mark.parametrize("name", ["/nowhere/model", "./nowhere", "~nobody/model", "/" + "x" * 5000])
def test_a_path_that_leads_nowhere_is_refused(name: str) -> None:
    with pytest.raises(ModelError, match="no model folder at"):
        local_folder(name)


def test_a_hub_id_is_no_folder() -> None:
    assert local_folder("owner/name") is None
    assert local_folder("x" * 5000) is None
