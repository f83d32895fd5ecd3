"""The folder of a model or an adapter, checked before anything of it is loaded, and without the libraries that load it.

byrote runs no code that comes with a model and reads no pickled weights: unpickling runs whatever the file says, while
safetensors hold numbers and nothing else. A folder that cannot be a model is refused with one sentence.
"""

import os
import reprlib
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from byrote.errors import ModelError
from byrote.files import parse_json, read_bytes, require_regular

CONFIG = "config.json"
INDEX = ".safetensors.index.json"
ADAPTER = "adapter_config.json"
ADAPTER_WEIGHTS = "adapter_model.safetensors"
PICKLED = ("pytorch_model*.bin", "*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")
_MOST_SETTINGS_BYTES = 10_000_000
_MOST_HEADER_BYTES = 100_000_000
LONGEST_QUOTE = 200
_LIMITS = {
    **dict.fromkeys(("num_hidden_layers", "n_layer", "num_layers"), 10_000),
    **dict.fromkeys(("hidden_size", "n_embd", "d_model"), 10**7),
    "vocab_size": 10**8,
}
"""Sizes beyond these are mistakes, and building a model of such a size would not end."""
NO_CODE = "byrote runs no code of a model; use one whose architecture transformers knows by itself."


def local_folder(name: str) -> Path | None:
    """The folder of a model, checked as far as that is possible without loading it; None for a hub id."""
    path = os.path.expanduser(name)
    if name.lower().endswith(".gguf"):
        raise ModelError(
            f"{name} is a GGUF file, whose weights transformers would change by reading them; serve it with llama.cpp "
            "and give --model endpoint:URL, or give the model folder that it was made from."
        )
    if not name.startswith((".", "/", "~")) and not os.path.lexists(path):
        return None
    if not os.path.isdir(path):
        raise ModelError(f"there is no model folder at {name}. Give a folder with config.json or a hub id.")
    folder = Path(path)
    for file in sorted(folder.iterdir()):
        if not file.is_dir():
            try:
                require_regular(file)
            except OSError as error:
                raise ModelError(f"{file} cannot be read: {error.strerror}; give a folder of plain files.") from error
    if (folder / ADAPTER).exists():
        _require_peft(name)
    if (folder / CONFIG).exists():
        _check_config(folder / CONFIG)
    return folder


def _check_config(path: Path) -> None:
    """Sizes are in a sensible range."""
    config = read_settings(path, advice="give a complete model folder")
    inner = config.get("text_config")  # of a model with several kinds of input
    parts = (config, inner if isinstance(inner, Mapping) else {})
    for key, value in [(key, part[key]) for part in parts for key in _LIMITS if key in part]:
        is_whole = isinstance(value, int) and not isinstance(value, bool)
        if value is not None and not (is_whole and 1 <= value <= _LIMITS[key]):
            words = f"it must be a whole number from 1 to {_LIMITS[key]:,}"
            raise ModelError(f"{path} says that {key} is {reprlib.repr(value)}; {words}.")


def read_settings(path: Path, *, advice: str) -> dict[str, Any]:
    try:
        settings = parse_json(read_bytes(path, most=_MOST_SETTINGS_BYTES))
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} cannot be read as JSON ({error}); {advice}.") from error
    if not isinstance(settings, dict):
        raise ModelError(f"{path} is not a JSON object; {advice}.")
    return settings


def weight_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """The shape of every tensor of a safetensors file, by its header."""
    try:
        length = int.from_bytes(read_bytes(path, most=8), "little")
        if length > _MOST_HEADER_BYTES:
            raise ValueError("its header is too long")
        header = parse_json(read_bytes(path, most=8 + length)[8:])
        return {name: tuple(map(int, entry["shape"])) for name, entry in header.items() if name != "__metadata__"}
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise ModelError(f"{path} cannot be read as safetensors ({error}); give a complete model folder.") from error


def refuse_what_would_run_code(name: str, folder: Path) -> None:
    """Check a folder before anything of it is loaded. The files of a hub id are checked by the library alone."""
    for key, value in _text_settings(folder / CONFIG):
        if key.endswith("_implementation") and "/" in value:
            raise ModelError(f"{name} wants {value} to be downloaded and run. {NO_CODE}")
        if key == "transformers_weights":
            _require_plain_weights(folder / CONFIG, value, suffixes=(".safetensors", INDEX))
    for index in sorted(folder.glob(f"*{INDEX}")):
        try:
            content = parse_json(read_bytes(index, most=_MOST_HEADER_BYTES))
            shards = sorted(set(map(str, content["weight_map"].values())))
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise ModelError(
                f"{index} cannot be read as an index of weights ({error}); get the folder again."
            ) from error
        for shard in shards:
            _require_plain_weights(index, shard, suffixes=(".safetensors",))
    pickled = _pickled_alone(folder)
    if pickled is not None:
        raise ModelError(without_safetensors(name, f"pickled weights alone ({pickled})"))


def _pickled_alone(folder: Path) -> str | None:
    """A file with weights that have no safetensors twin."""
    adapter = folder / "adapter_model.bin"
    if adapter.exists() and not adapter.with_suffix(".safetensors").exists():
        return adapter.name
    if any(folder.glob("*.safetensors")):
        return None
    return next((path.name for pattern in PICKLED for path in sorted(folder.glob(pattern))), None)


def _require_plain_weights(path: Path, named: str, *, suffixes: tuple[str, ...]) -> None:
    """A settings file may name safetensors in its own folder, and nothing else."""
    if Path(named).name != named or "\\" in named:
        raise ModelError(
            f"{path} takes weights from {named[:LONGEST_QUOTE]!r}, which is not the name of a file in its folder; "
            "give a folder that holds its own weights."
        )
    if not named.endswith(suffixes):
        raise ModelError(without_safetensors(str(path), f"an entry for pickled weights ({named[:LONGEST_QUOTE]!r})"))


def _text_settings(path: Path) -> Iterator[tuple[str, str]]:
    """Every setting that is text, those of models inside a model included."""
    remaining = [parse_json(path.read_bytes())] if path.exists() else []
    while remaining:
        settings = remaining.pop()
        for key, value in settings.items() if isinstance(settings, dict) else ():
            if isinstance(value, str):
                yield key, value
            else:
                remaining.append(value)


def without_safetensors(name: str, what: str) -> str:
    return (
        f"{name} has {what}, and reading those can run code. Convert them where you trust them: "
        "AutoModelForCausalLM.from_pretrained(…).save_pretrained(…) writes safetensors."
    )


def base_of(name: str, adapter: str | None) -> tuple[str, str | None]:
    """The model to load and the adapter to merge into it. A folder that holds an adapter alone names its own base."""
    folder = Path(os.path.expanduser(name))
    if adapter is not None or not (folder / ADAPTER).is_file() or (folder / CONFIG).exists():
        return name, adapter
    base = read_settings(folder / ADAPTER, advice="give a complete adapter").get("base_model_name_or_path")
    if not isinstance(base, str) or not base:
        raise ModelError(f"{folder / ADAPTER} does not say which model it changes; give --model BASE --adapter {name}.")
    return base, name


def adapter_folder(name: str) -> Path:
    """The folder of an adapter that can be merged here and holds numbers alone."""
    folder = Path(os.path.expanduser(name))
    if not (folder / ADAPTER).is_file():
        raise ModelError(f"there is no {ADAPTER} in {name}; give the folder of a PEFT adapter.")
    _require_peft(name)
    refuse_what_would_run_code(name, folder)
    if not (folder / ADAPTER_WEIGHTS).is_file():
        raise ModelError(f"{name} has no {ADAPTER_WEIGHTS}; give a complete adapter.")
    return folder


def _require_peft(name: str) -> None:
    if find_spec("peft") is None:
        raise ModelError(
            f"{name} holds a PEFT adapter, and peft is not installed. Install it with: pip install 'byrote[peft]'"
        )


def refuse_embedded_adapter(name: str, *, is_embedded: bool) -> None:
    """The library attaches an adapter that lies beside a model's weights, and ignores tensors that do not fit."""
    if is_embedded:
        raise ModelError(
            f"{name} brings an adapter along; put the adapter into a folder of its own and give --model BASE "
            "--adapter FOLDER."
        )
