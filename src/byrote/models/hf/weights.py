"""Loading the weights of a model, and what identifies a model: the hash of its weights, and the settings that decide
its numbers."""

import hashlib
import json
import math
import os
import re
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import nullcontext
from importlib.util import find_spec
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from byrote.errors import ModelError
from byrote.files import read_bytes
from byrote.models.hf import files
from byrote.models.hf.graphs import COPYING

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
_MOST_NAMED = 2
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
    base, adapter = files.base_of(name, adapter)
    folder = files.local_folder(base)
    if folder is not None:
        files.refuse_embedded_adapter(base, is_embedded=(folder / files.ADAPTER).exists())
        files.refuse_what_would_run_code(base, folder)
    added = None if adapter is None else files.adapter_folder(adapter)
    source = str(folder or base)
    model = _read(name, source, revision=revision, dtype=dtype, device=device)
    if added is None:
        return Weights(model, source, None)
    has_tokenizer = (added / "tokenizer_config.json").exists()
    return Weights(merged(model, added), str(added) if has_tokenizer else source, hash_adapter(added))


def _read(name: str, source: str, *, revision: str | None, dtype: str, device: str) -> Any:
    from transformers import AutoModelForCausalLM

    chosen = _device(device)
    differences = _differences(source, revision)
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
            dtype=dtype_of(dtype, chosen),
            output_loading_info=True,
            **placement,
        )
        if not placement and not getattr(model, "is_quantized", False):
            model = model.to(chosen)
    except Exception as error:  # whatever libraries raise for a damaged folder, or for want of another library
        if differences and "mismatched" in str(error):
            config = Path(source, files.CONFIG)
            raise ModelError(f"{config} does not fit the weights: {differences}. {_OWN_CONFIG}") from error
        raise explained(name, error) from error
    files.refuse_embedded_adapter(name, is_embedded=getattr(model, "_hf_peft_config_loaded", False))
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


def dtype_of(dtype: str, device: torch.device) -> torch.dtype:
    if dtype == "auto":
        return torch.float32 if device.type == "cpu" else torch.bfloat16
    if dtype not in DTYPES:
        raise ModelError(f"dtype {dtype!r} is not known. Use auto, {', '.join(DTYPES)}.")
    return DTYPES[dtype]


def read_tokenizer(name: str, source: str, *, revision: str | None = None) -> Any:
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(source, revision=revision, trust_remote_code=False)
    except Exception as error:  # whatever libraries raise for a damaged folder
        raise explained(name, error) from error


def read_config(name: str, source: str) -> Any:
    from transformers import AutoConfig

    try:
        return AutoConfig.from_pretrained(source, trust_remote_code=False)
    except Exception as error:  # whatever libraries raise for a damaged folder
        raise explained(name, error) from error


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
        return ModelError(f"{name} comes with code of its own that would have to be run. {files.NO_CODE}")
    if "`safetensors`" in message or "torch.load" in message or "weights_only" in message:
        return ModelError(files.without_safetensors(name, "pickled weights alone"))
    if "ignore_mismatched_sizes" in message:
        return ModelError(f"{name} has weights of other shapes than its config.json describes; use files of one model.")
    first_line = message.splitlines()[0] if message else type(error).__name__
    here = "" if Path(name).exists() else "is no folder here, and "
    return ModelError(
        f"{name} {here}could not be loaded as a causal language model: {first_line[: files.LONGEST_QUOTE]}"
    )


def _differences(source: str, revision: str | None) -> str:
    """The first parameters that a folder's configuration describes and that its files lack, or hold in another shape;
    nothing for a hub id, and where loading the model fails with a better explanation.

    Raises a ModelError for more weights than the folder can hold: the library would allocate them and fill them with
    random numbers first.
    """
    from transformers import AutoConfig, AutoModelForCausalLM

    tensors = sorted(Path(source).glob("*.safetensors"))
    if not tensors:
        return ""
    held = {name: shape for file in tensors for name, shape in files.weight_shapes(file).items()}
    try:
        config = AutoConfig.from_pretrained(source, revision=revision, trust_remote_code=False)
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config, trust_remote_code=False)
    except Exception:  # the same happens when the library loads the model, and is explained there
        return ""
    shapes = {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}  # tied ones once
    other = [
        f"{name} is {list(shape)} in the configuration and {list(held[name])} in the files"
        for name, shape in shapes.items()
        if held.get(name, shape) != shape
    ]
    absent = [f"{name} is in no file" for name in shapes if name not in held]
    differences = ", ".join((other + absent)[:_MOST_NAMED])
    needed, capacity = (sum(map(math.prod, each.values())) for each in (shapes, held))
    if getattr(config, "quantization_config", None) is not None:
        capacity = 8 * sum(file.stat().st_size for file in tensors)  # packed, at least a bit for each
    if needed > capacity:
        raise ModelError(
            f"{Path(source, files.CONFIG)} describes a model of {needed:,} weights, but the folder holds at most "
            f"{capacity:,}: {differences}. {_OWN_CONFIG}"
        )
    return differences


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
    for name in (files.ADAPTER, files.ADAPTER_WEIGHTS):
        content = read_bytes(folder / name)
        digest.update(f"{name} {len(content)} ".encode())
        digest.update(content)
    return digest.hexdigest()


NOT_DECIDING = {"transformers_version", "dtype", "torch_dtype", "quantization_config", "use_cache", "name_or_path"}
"""Settings that change no number, or are a part of the identity by themselves."""


def quantization_of(config: Any) -> str | None:
    """The settings by which a checkpoint was quantised, in one order."""
    settings = getattr(config, "quantization_config", None)
    if settings is None:
        return None
    return json.dumps(settings if isinstance(settings, dict) else settings.to_dict(), sort_keys=True, default=str)


def settings_of(settings: Mapping[Any, Any]) -> dict[str, Any]:
    """A model's own settings, those inside others included, but for those that change no number or are in the identity
    already."""
    return {
        str(name): settings_of(value) if isinstance(value, dict) else value
        for name, value in settings.items()
        if name not in NOT_DECIDING and not str(name).startswith("_")
    }


SAMPLED_BLOCKS = 64
BLOCK_ELEMENTS = 256
"""Of each tensor, in a fingerprint."""


def hash_weights(model: Any) -> str:
    """SHA-256 over names, shapes and bytes of all weights as loaded: equal weights, equal hash, however stored, and
    however many devices hold them."""
    return _hash(named_weights(model), lambda part: part)


def fingerprint_weights(model: Any) -> str:
    """The same over a few blocks of each tensor: what tells two models apart before all of their weights are hashed."""
    return _hash(named_weights(model), _sampled_blocks)


def named_weights(model: Any) -> list[tuple[str, Tensor]]:
    """The weights as they are now, whatever is done to the model's parameters later; of a folder, those in its files,
    which are read when they are used."""
    if isinstance(model, Path):
        from safetensors.torch import load_file

        shards = sorted(model.glob("*.safetensors"))
        return sorted((pair for shard in shards for pair in load_file(shard).items()), key=itemgetter(0))
    return [(name, tensor.detach()) for name, tensor in sorted(model.state_dict(keep_vars=True).items())]


def _sampled_blocks(part: Tensor) -> Tensor:
    flat = part.reshape(-1)
    if flat.numel() <= SAMPLED_BLOCKS * BLOCK_ELEMENTS:
        return flat
    starts = torch.linspace(0, flat.numel() - BLOCK_ELEMENTS, SAMPLED_BLOCKS, dtype=torch.float64).long()
    places = starts[:, None] + torch.arange(BLOCK_ELEMENTS)
    return flat[places.flatten().to(flat.device)]


def _hash(weights: Iterable[tuple[str, Tensor]], chosen: Callable[[Tensor], Tensor]) -> str:
    digest = hashlib.sha256()
    for name, tensor in weights:
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        for part in plain_parts(tensor):
            with COPYING:
                here = chosen(part).cpu().contiguous()
            digest.update(here.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def hash_in_background(model: Any) -> Future[str]:
    """`hash_weights`, computed in a thread while the model is used."""
    weights = named_weights(model)
    on_gpu = any(tensor.is_cuda for _, tensor in weights)
    digest: Future[str] = Future()

    def compute() -> None:
        try:
            # Copies on a stream of their own do not wait for the forwards.
            stream = torch.cuda.Stream() if on_gpu else None  # type: ignore[no-untyped-call]
            with nullcontext() if stream is None else torch.cuda.stream(stream):
                digest.set_result(_hash(weights, lambda part: part))
        except BaseException as error:
            digest.set_exception(error)

    threading.Thread(target=compute, name="hash weights", daemon=True).start()
    return digest


def plain_parts(tensor: Tensor) -> Iterator[Tensor]:
    """A tensor's numbers. Quantised ones are tensors of their own kind that hold others: packed weights, scales."""
    if not hasattr(tensor, "__tensor_flatten__"):
        yield tensor
        return
    for name in tensor.__tensor_flatten__()[0]:
        yield from plain_parts(getattr(tensor, name))
