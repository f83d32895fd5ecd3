"""Loading the weights of a model, and the checks of its folder before anything of it is loaded.

byrote runs no code that comes with a model and reads no pickled weights: unpickling runs whatever the file says, while
safetensors hold numbers and nothing else. A folder that cannot be a model is refused with one sentence.
"""

import hashlib
import math
import os
import re
import reprlib
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import torch

from byrote.errors import ModelError
from byrote.files import parse_json, read_bytes, require_regular
from byrote.models.hf.identity import plain_parts

CONFIG = "config.json"
INDEX = ".safetensors.index.json"
ADAPTER = "adapter_config.json"
ADAPTER_WEIGHTS = "adapter_model.safetensors"
PICKLED = ("pytorch_model*.bin", "*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")
DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
LIBRARIES = {"gptq": "gptqmodel", "awq": "gptqmodel", "quanto": "optimum-quanto"}
"""What to install for weights that were quantised by a method, where library and method have different names."""
_MOST_SETTINGS_BYTES = 10_000_000
_MOST_HEADER_BYTES = 100_000_000
_LONGEST_QUOTE = 200
_MOST_NAMED = 2
_LIMITS = {
    **dict.fromkeys(("num_hidden_layers", "n_layer", "num_layers"), 10_000),
    **dict.fromkeys(("hidden_size", "n_embd", "d_model"), 10**7),
    "vocab_size": 10**8,
}
"""Sizes beyond these are mistakes, and building a model of such a size would not end."""
_NO_CODE = "byrote runs no code of a model; use one whose architecture transformers knows by itself."
_OWN_CONFIG = "Give a complete folder, with the config.json that belongs to its weights."


class Weights(NamedTuple):
    """A loaded model, where its tokenizer is, and the hash of the adapter that was merged into it."""

    model: Any
    tokenizer_source: str
    adapter_hash: str | None


def load_weights(name: str, *, revision: str | None, dtype: str, device: str, adapter: str | None) -> Weights:
    """The model of a folder or hub id with every weight it needs, its adapter merged."""
    from transformers.utils import logging

    logging.disable_progress_bar()
    logging.set_verbosity_error()  # what matters is refused below, in one sentence
    base, adapter = base_of(name, adapter)
    folder = local_folder(base)
    if folder is not None:
        refuse_embedded_adapter(base, is_embedded=(folder / ADAPTER).exists())
        refuse_what_would_run_code(base, folder)
    added = None if adapter is None else adapter_folder(adapter)
    source = str(folder or base)
    model = _read(name, source, revision=revision, dtype=dtype, device=device)
    if added is None:
        return Weights(model, source, None)
    has_tokenizer = (added / "tokenizer_config.json").exists()
    return Weights(merged(model, added), str(added) if has_tokenizer else source, hash_adapter(added))


def _read(name: str, source: str, *, revision: str | None, dtype: str, device: str) -> Any:
    from transformers import AutoModelForCausalLM

    chosen = _device(device)
    described = _described(source, revision)
    if described is not None:
        described.require_capacity()
    # Otherwise the hub would be asked to convert pickled weights, and anybody's conversion would be taken.
    os.environ.setdefault("DISABLE_SAFETENSORS_CONVERSION", "1")
    if device == "map" and find_spec("accelerate") is None:
        raise ModelError("--device map needs accelerate. Install it with: pip install 'byrote[multi-gpu]'")
    placement = {"device_map": "auto"} if device == "map" else {}
    try:
        model, report = AutoModelForCausalLM.from_pretrained(
            source,
            revision=revision,
            trust_remote_code=False,
            use_safetensors=True,
            dtype=_dtype(dtype, chosen),
            output_loading_info=True,
            **placement,
        )
        if not placement and not getattr(model, "is_quantized", False):
            model = model.to(chosen)
    except ImportError as error:
        raise _missing_library(name, source, revision, error) from error
    except Exception as error:  # whatever libraries raise for a damaged folder
        if described is not None and "mismatched" in str(error) and (differences := described.differences()):
            raise ModelError(f"{described.config} does not fit the weights: {differences}. {_OWN_CONFIG}") from error
        raise explained(name, error) from error
    refuse_embedded_adapter(name, is_embedded=getattr(model, "_hf_peft_config_loaded", False))
    if report["missing_keys"]:
        # The library fills what is missing with random numbers and goes on.
        missing = sorted(report["missing_keys"])
        raise ModelError(
            f"{name} lacks {len(missing)} of its weights ({missing[0]} …). Use a complete causal language model."
        )
    if report["unexpected_keys"]:
        unused = sorted(report["unexpected_keys"])
        warnings.warn(
            f"{name} holds {len(unused)} tensors that its config.json has no place for ({unused[0]} …); the "
            "model is measured without them.",
            stacklevel=2,
        )
    return model


def _device(device: str) -> torch.device:
    if device in ("auto", "map"):
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if not re.fullmatch(r"cpu|mps|cuda(:[0-9]{1,3})?", device):
        raise ModelError(f"{device!r} is not a device. Use auto, cpu, cuda, cuda:0 … or map.")
    chosen = torch.device(device)
    if chosen.type == "cuda" and (chosen.index or 0) >= torch.cuda.device_count():
        found = torch.cuda.device_count()
        raise ModelError(f"device {device} was asked for, but this machine has {found} usable GPUs. Use --device cpu.")
    if chosen.type == "mps" and not torch.backends.mps.is_available():
        raise ModelError("device mps was asked for, but this machine has none. Use --device cpu.")
    return chosen


def _dtype(dtype: str, device: torch.device) -> torch.dtype:
    if dtype == "auto":
        return torch.float32 if device.type == "cpu" else torch.bfloat16
    if dtype not in DTYPES:
        raise ModelError(f"dtype {dtype!r} is not known. Use auto, {', '.join(DTYPES)}.")
    return DTYPES[dtype]


def check_tokenizer(name: str, tokenizer: Any, vocab_size: int) -> None:
    """Every token that text can turn into must have a row in the model's embedding."""
    special = set(tokenizer.all_special_ids)
    largest = max((token for token in tokenizer.get_vocab().values() if token not in special), default=-1)
    if largest >= vocab_size:
        raise ModelError(
            f"the tokenizer of {name} has token {largest}, but the model knows only {vocab_size} tokens; "
            "use the tokenizer that belongs to the model."
        )


# Failures of the library, in one sentence


def explained(name: str, error: Exception) -> ModelError:
    """A failure of the library while it loaded a model."""
    message = str(error).strip()
    if "trust_remote_code" in message:
        return ModelError(f"{name} comes with code of its own that would have to be run. {_NO_CODE}")
    if "`safetensors`" in message or "torch.load" in message or "weights_only" in message:
        return ModelError(_without_safetensors(name, "pickled weights alone"))
    if "ignore_mismatched_sizes" in message:
        return ModelError(f"{name} has weights of other shapes than its config.json describes; use files of one model.")
    first_line = message.splitlines()[0] if message else type(error).__name__
    here = "" if Path(name).exists() else "is no folder here, and "
    return ModelError(f"{name} {here}could not be loaded as a causal language model: {first_line}")


def _without_safetensors(name: str, what: str) -> str:
    return (
        f"{name} has {what}, and reading those can run code. Convert them where you trust them: "
        "AutoModelForCausalLM.from_pretrained(…).save_pretrained(…) writes safetensors."
    )


def _missing_library(name: str, source: str, revision: str | None, error: ImportError) -> ModelError:
    """Quantised weights may need a library of their own."""
    from transformers import AutoConfig

    try:
        config = AutoConfig.from_pretrained(source, revision=revision, trust_remote_code=False)
    except Exception as unread:  # whatever libraries raise for a damaged folder
        return explained(name, unread)
    settings = getattr(config, "quantization_config", None)
    method = settings.get("quant_method") if isinstance(settings, dict) else None
    if method is None:
        return explained(name, error)
    library = LIBRARIES.get(str(method), str(method))
    return ModelError(
        f"{name} is quantised by {method}, and this machine cannot read that yet; "
        f"install what it needs with: pip install {library} accelerate"
    )


# Folders


def local_folder(name: str) -> Path | None:
    """The folder of a model, checked as far as that is possible without loading it; None for a hub id."""
    path = os.path.expanduser(name)
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
    """Sizes are in a sensible range, and the folder holds at least as many weights as they call for."""
    config = _read_json(path, "JSON", advice="give a complete model folder")
    if not isinstance(config, dict):
        raise ModelError(f"{path} is not a JSON object; give a complete model folder.")
    inner = config.get("text_config")  # of a model with several kinds of input
    parts = (config, inner if isinstance(inner, Mapping) else {})
    found = [(key, part[key]) for part in parts for key in _LIMITS if key in part]
    for key, value in found:
        is_whole = isinstance(value, int) and not isinstance(value, bool)
        if value is not None and not (is_whole and 1 <= value <= _LIMITS[key]):
            words = f"it must be a whole number from 1 to {_LIMITS[key]:,}"
            raise ModelError(f"{path} says that {key} is {reprlib.repr(value)}; {words}.")
    sizes = dict(found)
    least = (sizes.get("hidden_size") or 1) * max(sizes.get("vocab_size") or 1, sizes.get("num_hidden_layers") or 1)
    files = sorted(path.parent.glob("*.safetensors"))
    held = sum(count_weights(file) for file in files)
    if files and held < least:
        raise ModelError(
            f"{path} describes a model of at least {least:,} weights, but the folder holds {held:,}; "
            "give the config.json that belongs to the weights."
        )


def _read_json(path: Path, what: str, *, advice: str, most: int = _MOST_SETTINGS_BYTES) -> Any:
    try:
        return parse_json(read_bytes(path, most=most))
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} cannot be read as {what} ({error}); {advice}.") from error


def count_weights(path: Path) -> int:
    """Numbers in a safetensors file, by its header."""
    return sum(map(math.prod, weight_shapes(path).values()))


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


@dataclass(frozen=True, slots=True)
class _Described:
    """The model that a folder's configuration describes, beside the weights that the folder holds."""

    config: Path
    shapes: dict[str, tuple[int, ...]]
    """Of the parameters, tied ones once."""
    held: dict[str, tuple[int, ...]]
    """Of the tensors in the folder's files, by their headers."""
    capacity: int
    """The most parameters that the files can hold."""

    def require_capacity(self) -> None:
        """Raise a ModelError for weights that the folder does not hold, before memory is allocated for them.

        The library would allocate them and fill them with random numbers first.
        """
        needed = sum(map(math.prod, self.shapes.values()))
        if needed > self.capacity:
            raise ModelError(
                f"{self.config} describes a model of {needed:,} weights, but the folder holds at most "
                f"{self.capacity:,}: {self.differences()}. {_OWN_CONFIG}"
            )

    def differences(self) -> str:
        """The first parameters that are in no file, or there in another shape."""
        other = [
            f"{name} is {list(shape)} in the configuration and {list(self.held[name])} in the files"
            for name, shape in self.shapes.items()
            if self.held.get(name, shape) != shape
        ]
        absent = [f"{name} is in no file" for name in self.shapes if name not in self.held]
        return ", ".join((other + absent)[:_MOST_NAMED])


def _described(source: str, revision: str | None) -> _Described | None:
    """None for a hub id, and where loading the model fails with a better explanation."""
    from transformers import AutoConfig, AutoModelForCausalLM

    files = sorted(Path(source).glob("*.safetensors"))
    if not files:
        return None
    held = {name: shape for file in files for name, shape in weight_shapes(file).items()}
    try:
        config = AutoConfig.from_pretrained(source, revision=revision, trust_remote_code=False)
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config, trust_remote_code=False)
    except Exception:  # the same happens when the library loads the model, and is explained there
        return None
    shapes = {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}
    capacity = sum(map(math.prod, held.values()))
    if getattr(config, "quantization_config", None) is not None:
        capacity = 8 * sum(file.stat().st_size for file in files)  # packed, at least a bit for each
    return _Described(Path(source) / CONFIG, shapes, held, capacity)


# Trust


def refuse_what_would_run_code(name: str, folder: Path) -> None:
    """Check a folder before anything of it is loaded. The files of a hub id are checked by the library alone."""
    for key, value in _text_settings(folder / CONFIG):
        if key.endswith("_implementation") and "/" in value:
            raise ModelError(f"{name} wants {value} to be downloaded and run. {_NO_CODE}")
        if key == "transformers_weights":
            _require_plain_weights(folder / CONFIG, value, suffixes=(".safetensors", INDEX))
    for index in sorted(folder.glob(f"*{INDEX}")):
        what, advice = "an index of weights", "get the folder again"
        content = _read_json(index, what, advice=advice, most=_MOST_HEADER_BYTES)
        try:
            shards = sorted(set(map(str, content["weight_map"].values())))
        except (TypeError, KeyError, AttributeError) as error:
            raise ModelError(f"{index} cannot be read as {what} ({error}); {advice}.") from error
        for shard in shards:
            _require_plain_weights(index, shard, suffixes=(".safetensors",))
    pickled = _pickled_alone(folder)
    if pickled is not None:
        raise ModelError(_without_safetensors(name, f"pickled weights alone ({pickled})"))


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
            f"{path} takes weights from {named[:_LONGEST_QUOTE]!r}, which is not the name of a file in its folder; "
            "give a folder that holds its own weights."
        )
    if not named.endswith(suffixes):
        raise ModelError(_without_safetensors(str(path), f"an entry for pickled weights ({named[:_LONGEST_QUOTE]!r})"))


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


# Adapters


def base_of(name: str, adapter: str | None) -> tuple[str, str | None]:
    """The model to load and the adapter to merge into it. A folder that holds an adapter alone names its own base."""
    folder = Path(os.path.expanduser(name))
    if adapter is not None or not (folder / ADAPTER).is_file() or (folder / CONFIG).exists():
        return name, adapter
    settings = _read_json(folder / ADAPTER, "JSON", advice="give a complete adapter")
    base = settings.get("base_model_name_or_path") if isinstance(settings, dict) else None
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


def merged(model: Any, folder: Path) -> Any:
    """`model` with the adapter's changes added to its weights, in their own dtype.

    A ModelError when a tensor of the adapter has no place in the model, when one is missing, or when nothing changes:
    the result would be the base model under the adapter's name.
    """
    from peft import PeftModel

    before = _norms(model)
    conversion = getattr(model, "_checkpoint_conversion_mapping", None)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Found missing adapter keys")  # refused below
            adapted = PeftModel.from_pretrained(model, str(folder), is_trainable=False)
            # Loaded again for the report, which from_pretrained does not give.
            report = adapted.load_adapter(str(folder), adapted.active_adapter, key_mapping=conversion)
        for names, words in (
            (report.unexpected_keys, "names {} that the model does not have"),
            (report.missing_keys, "lacks {} that its settings call for"),
        ):
            if names:
                what = words.format(f"{len(names)} tensors ({sorted(names)[0]} …)")
                raise ModelError(f"the adapter {folder} {what}; give the model that the adapter was trained on.")
        changed = adapted.merge_and_unload(safe_merge=True)
    except ModelError:
        raise
    except Exception as error:  # an adapter of another model, a damaged file
        raise explained(str(folder), error) from error
    if _norms(changed) == before:
        dtype = str(changed.dtype).removeprefix("torch.")
        raise ModelError(
            f"the adapter {folder} changes none of the model's weights in {dtype}; give an adapter that was trained, "
            "or leave --adapter out."
        )
    return changed


def _norms(model: Any) -> dict[str, list[float]]:
    """The norm of every weight tensor, in float64: equal before and after a merge that changes no weight."""

    def norm(part: torch.Tensor) -> float:
        is_packed = part.dtype.itemsize == 1 or not part.is_floating_point()
        return float(torch.linalg.vector_norm(part.float() if is_packed else part, dtype=torch.float64))

    return {name: list(map(norm, plain_parts(tensor))) for name, tensor in model.state_dict().items()}


def hash_adapter(folder: Path) -> str:
    """SHA-256 over the adapter's settings and weights as they lie on disk."""
    digest = hashlib.sha256()
    for name in (ADAPTER, ADAPTER_WEIGHTS):
        content = read_bytes(folder / name)
        digest.update(f"{name} {len(content)} ".encode())
        digest.update(content)
    return digest.hexdigest()
