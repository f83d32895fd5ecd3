"""What is looked at in a model folder before a library opens it: files that would hang it, and sizes that cannot be."""

import math
import os
import reprlib
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rote.errors import ModelError
from rote.files import parse_json, read_bytes, require_regular

CONFIG = "config.json"
ADAPTER = "adapter_config.json"
_LARGEST_CONFIG = 10_000_000
_LARGEST_HEADER = 100_000_000
_LIMITS = {
    **dict.fromkeys(("num_hidden_layers", "n_layer", "num_layers"), 10_000),
    **dict.fromkeys(("hidden_size", "n_embd", "d_model"), 10**7),
    "vocab_size": 10**8,
}
"""Sizes beyond these are mistakes, and building a model of such a size would not end."""


def local_folder(name: str) -> Path | None:
    """The folder that a model's name means, looked at; None when it is a hub id."""
    path = os.path.expanduser(name)
    if not name.startswith((".", "/", "~")) and not os.path.lexists(path):
        return None
    if not os.path.isdir(path):
        raise ModelError(f"there is no model folder at {name}. Give a folder with config.json or a hub id.")
    check_model_folder(name, Path(path))
    return Path(path)


def check_model_folder(name: str, folder: Path) -> None:
    """Raise a ModelError when the folder cannot be opened as a model; say nothing where the library knows more."""
    for path in sorted(folder.iterdir()):
        if not path.is_dir():
            try:
                require_regular(path)
            except OSError as error:
                raise ModelError(f"{path} cannot be read: {error.strerror}; give a folder of plain files.") from error
    if (folder / ADAPTER).exists():
        require_peft(name)
    if (folder / CONFIG).exists():
        _check_sizes(folder / CONFIG)


def require_peft(name: str) -> None:
    """Raise a ModelError when the adapter in the folder `name` cannot be merged here."""
    if find_spec("peft") is None:
        raise ModelError(
            f"{name} holds a PEFT adapter, and peft is not installed. Install it with: pip install 'rote[peft]'"
        )


def check_tokenizer(name: str, tokenizer: Any, vocab_size: int) -> None:
    """Every token that text can turn into must have a row in the model's embedding."""
    special = set(tokenizer.all_special_ids)
    largest = max((token for token in tokenizer.get_vocab().values() if token not in special), default=-1)
    if largest >= vocab_size:
        raise ModelError(
            f"the tokenizer of {name} has token {largest}, but the model knows only {vocab_size} tokens; "
            "use the tokenizer that belongs to the model."
        )


def _check_sizes(path: Path) -> None:
    try:
        config = parse_json(read_bytes(path, most=_LARGEST_CONFIG))
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} cannot be read as JSON ({error}); give a complete model folder.") from error
    if not isinstance(config, dict):
        raise ModelError(f"{path} is not a JSON object; give a complete model folder.")
    for key, value in _sizes(config):
        is_whole = isinstance(value, int) and not isinstance(value, bool)
        if value is not None and not (is_whole and 1 <= value <= _LIMITS[key]):
            words = f"it must be a whole number from 1 to {_LIMITS[key]:,}"
            raise ModelError(f"{path} says that {key} is {reprlib.repr(value)}; {words}.")
    _check_weights(path, config)


def _check_weights(path: Path, config: Mapping[str, Any]) -> None:
    """A model has at least an embedding; one that the folder cannot hold would be filled with random numbers first."""
    sizes = dict(_sizes(config))
    width = sizes.get("hidden_size") or 1
    least = width * max(sizes.get("vocab_size") or 1, sizes.get("num_hidden_layers") or 1)
    files = sorted(path.parent.glob("*.safetensors"))
    held = sum(count_weights(file) for file in files)
    if files and held < least:
        raise ModelError(
            f"{path} describes a model of at least {least:,} weights, but the folder holds {held:,}; "
            "give the config.json that belongs to the weights."
        )


def count_weights(path: Path) -> int:
    """Numbers in a safetensors file, by its header."""
    return sum(map(math.prod, weight_shapes(path).values()))


def weight_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """The shape of every tensor of a safetensors file, by its header."""
    try:
        length = int.from_bytes(read_bytes(path, most=8), "little")
        if length > _LARGEST_HEADER:
            raise ValueError("its header is too long")
        header = parse_json(read_bytes(path, most=8 + length)[8:])
        return {name: tuple(map(int, entry["shape"])) for name, entry in header.items() if name != "__metadata__"}
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise ModelError(f"{path} cannot be read as safetensors ({error}); give a complete model folder.") from error


def _sizes(config: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Known sizes of the model and of the text model inside a model of several kinds of input."""
    inner = config.get("text_config")
    for part in (config, inner if isinstance(inner, Mapping) else {}):
        yield from ((key, part[key]) for key in _LIMITS if key in part)
