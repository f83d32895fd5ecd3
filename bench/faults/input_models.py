"""Model folders with damaged, missing, foreign and impossible parts."""

import json
import os
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from byrote.lab.texts import write_passages
from byrote.lab.train import train_tokenizer
from byrote.models.hf.model import load

FIELDS = [
    "num_hidden_layers", "hidden_size", "vocab_size", "num_attention_heads", "num_key_value_heads", "intermediate_size",
    "max_position_embeddings", "model_type", "architectures", "rms_norm_eps", "rope_parameters", "rope_theta", "dtype",
    "hidden_act", "tie_word_embeddings", "head_dim", "bos_token_id", "eos_token_id", "auto_map", "quantization_config",
    "text_config", "attention_bias", "attention_dropout", "initializer_range", "transformers_version", "is_decoder",
]  # fmt: skip
VALUES: list[Any] = [
    None, 0, -1, 1, 3, 10**6, 10**12, 2**63, 1.5, "", "two", "\x1b[31m", [], [1, 2], {}, {"a": {}}, True, "llama",
    "gpt2", "../../etc", {"rope_type": "nothing"}, {"rope_type": "yarn", "factor": 0}, {"AutoModel": "x--M"},
]  # fmt: skip
WORDS = ["plain words of a text", "A second one."]


@cache
def whole_model(root: Path) -> Path:
    """An untrained model of one layer with its tokenizer."""
    folder = root / "whole"
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        LlamaForCausalLM(LlamaConfig(vocab_size=300, **sizes)).save_pretrained(folder)
    train_tokenizer(write_passages(0, 5, least_words=40), vocabulary_size=300).save_pretrained(folder)
    return folder


def warm_up(root: Path) -> None:
    """Libraries are imported on first use, which is not the input's fault."""
    import byrote.scan.report  # noqa: F401

    load(str(whole_model(root)), device="cpu")


def load_folder(case: Any) -> None:
    """What loads must give finite numbers for ids inside the model's vocabulary."""
    rng = case.rng
    folder = case.folder / rng.choice(["model", "mod\x1b[31mel", "mod el[bold]", "mödel"])
    shutil.copytree(whole_model(case.folder.parent), folder)
    damage = rng.choice(DAMAGES)
    damage(case, folder)
    loaded = case.refuses(lambda: load(str(folder), device="cpu", dtype="float32"))
    if loaded is not None:
        encoded = case.refuses(lambda: loaded.encode_batch(WORDS))
        ids = [token for encoding in encoded or () for token in encoding.ids]
        case.expect(all(0 <= token < loaded.vocab_size for token in ids), "a token outside of the model")


def _set_fields(case: Any, folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    for _ in range(case.rng.randrange(1, 3)):
        name, value = case.rng.choice(FIELDS), case.rng.choice(VALUES)
        config[name] = value
        case.what += f" {name}={value!r}"
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")


def _damage_bytes(case: Any, folder: Path) -> None:
    path = case.rng.choice(sorted(folder.iterdir()))
    content = bytearray(path.read_bytes())
    if case.rng.random() < 0.4:
        content = content[: case.rng.randrange(len(content))]
    else:
        for _ in range(case.rng.randrange(1, 8)):
            # The head of a file is where its structure is.
            content[case.rng.randrange(min(len(content), 400))] = case.rng.randrange(256)
    path.write_bytes(content)
    case.what += f" damaged {path.name}"


def _replace_file(case: Any, folder: Path) -> None:
    path = case.rng.choice(sorted(folder.iterdir()))
    path.unlink()
    kind = case.rng.randrange(6)
    if kind == 0:
        os.mkfifo(path)
    elif kind == 1:
        path.symlink_to(path.name)
    elif kind == 2:
        path.symlink_to("/dev/zero")
    elif kind == 3:
        path.mkdir()
    elif kind == 4:
        path.write_bytes(case.rng.choice([b"", b"{}", b"[]", b"null", b"[" * 100_000, b'{"a": ' * 5_000, b"\xff" * 50]))
    case.what += f" replaced {path.name} by {kind}"


def _swap_tokenizer(case: Any, folder: Path) -> None:
    size = case.rng.choice([280, 310, 400, 600])
    train_tokenizer(write_passages(1, 20, least_words=80), vocabulary_size=size).save_pretrained(folder)
    case.what += f" tokenizer of {size}"


def _add_file(case: Any, folder: Path) -> None:
    name = case.rng.choice(
        ["adapter_config.json", "modeling_x.py", "pytorch_model.bin", "chat_template.jinja", "x.gguf"]
    )
    (folder / name).write_bytes(case.rng.choice([b"", b"{}", b"{% for x in range(9**9) %}{% endfor %}", b"\x80\x02."]))
    if case.rng.random() < 0.5:
        (folder / "model.safetensors").unlink(missing_ok=True)
    case.what += f" added {name}"


DAMAGES: list[Callable[[Any, Path], None]] = [
    *[_set_fields] * 3, *[_damage_bytes] * 2, _replace_file, _swap_tokenizer, _add_file,
]  # fmt: skip
