"""Hostile model folders: nothing of them runs, nobody is asked, and one sentence says what they wanted."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from byrote.errors import ModelError
from byrote.models.hf.files import weight_shapes
from byrote.models.hf.model import load
from byrote.models.hf.weights import explained
from tests.models.tiny import tiny_model, tiny_tokenizer

CODE = """
from pathlib import Path
Path({marker!r}).touch()
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
class Config(LlamaConfig):
    model_type = "of-its-own"
class Model(LlamaForCausalLM):
    config_class = Config
class Tokenizer(PreTrainedTokenizerFast):
    pass
"""


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model")
    tiny_model("llama", vocab_size=258, bos_token_id=0, eos_token_id=1).save_pretrained(path)
    tiny_tokenizer().save_pretrained(path)
    return path


@pytest.fixture
def folder(saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of a good model; whoever asks a question fails."""
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("a question was asked"))
    return shutil.copytree(saved, tmp_path / "model")


def change(path: Path, **fields: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def with_code(folder: Path) -> Path:
    """The folder holds code that leaves a mark when it runs."""
    marker = folder.parent / "ran"
    (folder / "own.py").write_text(CODE.format(marker=str(marker)))
    return marker


def assert_refused(folder: Path, *parts: str) -> None:
    with pytest.raises(ModelError) as error:
        load(str(folder))
    assert "\n" not in str(error.value)
    for part in (str(folder), *parts):
        assert part in str(error.value)


def test_a_model_that_needs_code_of_its_own_is_refused(folder: Path) -> None:
    marker = with_code(folder)
    names = {"AutoConfig": "own.Config", "AutoModelForCausalLM": "own.Model"}
    change(folder / "config.json", model_type="of-its-own", auto_map=names)
    assert_refused(folder, "code of its own", "byrote runs no code of a model")
    assert not marker.exists()


def test_a_tokenizer_that_needs_code_of_its_own_is_refused(folder: Path) -> None:
    marker = with_code(folder)
    wanted = {"tokenizer_class": "Tokenizer", "auto_map": {"AutoTokenizer": [None, "own.Tokenizer"]}}
    change(folder / "tokenizer_config.json", **wanted)
    assert_refused(folder, "code of its own", "byrote runs no code of a model")
    assert not marker.exists()


def test_code_that_is_not_needed_is_not_run(folder: Path) -> None:
    """The library knows the architecture; the folder merely offers another way."""
    marker = with_code(folder)
    change(folder / "config.json", auto_map={"AutoModelForCausalLM": "own.Model"})
    assert type(load(str(folder)).model).__module__.startswith("transformers.models.llama")
    assert not marker.exists()


@pytest.mark.parametrize("inside", [False, True])
def test_settings_that_want_a_kernel_from_elsewhere_are_refused(folder: Path, inside: bool) -> None:
    wanted = {"attn_implementation": "somebody/fast-attention"}
    change(folder / "config.json", **({"text_config": wanted} if inside else wanted))
    assert_refused(folder, "wants somebody/fast-attention to be downloaded and run", "byrote runs no code of a model")


class Malicious:
    """What a pickle can do when it is read."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.marker,))


@pytest.mark.parametrize(
    "name", ["pytorch_model.bin", "pytorch_model-00001-of-00001.bin", "model.pt", "adapter_model.bin"]
)
def test_pickled_weights_are_refused_unread(folder: Path, name: str) -> None:
    if name != "adapter_model.bin":  # an adapter has a file of its own
        (folder / "model.safetensors").unlink()
    marker = folder.parent / "ran"
    torch.save(Malicious(marker), folder / name)
    assert_refused(folder, f"pickled weights alone ({name})", "save_pretrained(…) writes safetensors")
    assert not marker.exists()


def test_pickles_beside_good_weights_are_left_alone(folder: Path) -> None:
    marker = folder.parent / "ran"
    torch.save(Malicious(marker), folder / "pytorch_model.bin")
    torch.save(Malicious(marker), folder / "training_args.bin")
    assert load(str(folder)).vocab_size == 258
    assert not marker.exists()


def with_index(folder: Path, named: str, *, index: str = "model.safetensors.index.json") -> None:
    """The weights of the folder in a shard, and an index that names another file for one of them."""
    (folder / "model.safetensors").rename(folder / "model-00001-of-00001.safetensors")
    names = list(weight_shapes(folder / "model-00001-of-00001.safetensors"))
    shards = dict.fromkeys(names, "model-00001-of-00001.safetensors")
    (folder / index).write_text(json.dumps({"metadata": {}, "weight_map": shards | {names[0]: named}}))


@pytest.mark.parametrize("index", ["model.safetensors.index.json", "other.safetensors.index.json"])
def test_an_index_that_names_pickled_weights_is_refused_unread(folder: Path, index: str) -> None:
    with_index(folder, "pytorch_model.bin", index=index)
    change(folder / "config.json", transformers_weights=index)
    marker = folder.parent / "ran"
    torch.save(Malicious(marker), folder / "pytorch_model.bin")
    assert_refused(folder, f"{index} has an entry for pickled weights ('pytorch_model.bin')", "writes safetensors")
    assert not marker.exists()


@pytest.mark.parametrize("named", ["../other/model.safetensors", "/tmp/model.safetensors", "in/model.safetensors"])
def test_an_index_that_points_out_of_its_folder_is_refused_unread(folder: Path, saved: Path, named: str) -> None:
    shutil.copytree(saved, folder.parent / "other")
    with_index(folder, named)
    assert_refused(folder, f"takes weights from '{named}', which is not the name of a file in its folder")


@pytest.mark.parametrize("named", ["adapter_model.bin", "../other/model.safetensors"])
def test_settings_that_name_other_weights_are_refused_unread(folder: Path, named: str) -> None:
    change(folder / "config.json", transformers_weights=named)
    assert_refused(folder, "config.json", f"'{named}'")


@pytest.mark.parametrize("content", ["{}", "[]", "{", '{"weight_map": 3}'])
def test_an_index_that_is_none_is_refused(folder: Path, content: str) -> None:
    (folder / "model.safetensors.index.json").write_text(content)
    assert_refused(folder, "model.safetensors.index.json cannot be read as an index of weights")


def test_weights_in_shards_are_loaded(folder: Path) -> None:
    with_index(folder, "model-00001-of-00001.safetensors")
    assert load(str(folder)).vocab_size == 258


def test_no_refusal_says_how_to_switch_the_protection_off() -> None:
    theirs = (
        "Weights only load failed. This file can still be loaded: (1) Re-running `torch.load` with `weights_only` set "
        "to `False` will likely succeed, but it can result in arbitrary code execution."
    )
    ours = str(explained("somebody/model", RuntimeError(theirs)))
    assert "pickled weights" in ours
    assert "weights_only" not in ours


def test_what_the_library_says_of_a_hub_model_with_pickled_weights_becomes_our_sentence() -> None:
    theirs = OSError(
        "somebody/model does not appear to have a file named model.safetensors or model.safetensors.index.json and "
        "thus cannot be loaded with `safetensors`. Please do not set `use_safetensors=True`."
    )
    assert "somebody/model has pickled weights alone, and reading those can run code." in str(
        explained("somebody/model", theirs)
    )


def test_a_conversion_by_others_is_not_asked_for(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    monkeypatch.delenv("DISABLE_SAFETENSORS_CONVERSION", raising=False)
    load(str(folder))
    assert os.environ["DISABLE_SAFETENSORS_CONVERSION"] == "1"
