"""Weights of a Hugging Face model on their devices: from a folder or hub id, with or without adapter."""

import math
import os
import re
import warnings
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import torch

from rote.errors import ModelError
from rote.models.adapters import adapter_folder, base_of, hash_adapter, merged, refuse_embedded_adapter
from rote.models.hf_trust import explained, refuse_what_would_run_code
from rote.models.model_folder import ADAPTER, CONFIG, local_folder, weight_shapes

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
LIBRARIES = {"gptq": "gptqmodel", "awq": "gptqmodel", "quanto": "optimum-quanto"}
"""What to install for weights that were quantised by a method, where the library is not called like the method."""
_MOST_NAMED = 2
_OWN_CONFIG = "Give a complete folder, with the config.json that belongs to its weights."


@dataclass(frozen=True, slots=True)
class Wanted:
    """A model as a user names it; everything needed to load it."""

    name: str
    revision: str | None
    dtype: str
    device: str
    adapter: str | None


class Weights(NamedTuple):
    """A loaded model and where the rest of it is."""

    model: Any
    source: str
    """The folder or hub id that the weights came from."""
    tokenizer_source: str
    adapter_hash: str | None


def load_weights(wanted: Wanted) -> Weights:
    """The model with every weight it needs, its adapter merged."""
    from transformers.utils import logging

    logging.disable_progress_bar()
    logging.set_verbosity_error()  # what matters is refused below, in one sentence
    name, adapter = base_of(wanted.name, wanted.adapter)
    folder = local_folder(name)
    if folder is not None:
        refuse_embedded_adapter(name, is_embedded=(folder / ADAPTER).exists())
        refuse_what_would_run_code(name, folder)
    added = None if adapter is None else adapter_folder(adapter)
    source = str(folder or name)
    model = _read(wanted, source)
    if added is None:
        return Weights(model, source, source, None)
    has_tokenizer = (added / "tokenizer_config.json").exists()
    return Weights(merged(model, added), source, str(added) if has_tokenizer else source, hash_adapter(added))


def library_options(wanted: Wanted) -> dict[str, Any]:
    return {"revision": wanted.revision, "trust_remote_code": False}


def _read(wanted: Wanted, source: str) -> Any:
    from transformers import AutoModelForCausalLM

    place = device_of(wanted.device)
    described = _described(wanted, source)
    if described is not None:
        described.require_room()
    # Or a hub would be asked to convert what is pickled, and the result taken from whoever did so.
    os.environ.setdefault("DISABLE_SAFETENSORS_CONVERSION", "1")
    placement = _placement(wanted.device)
    try:
        model, report = AutoModelForCausalLM.from_pretrained(
            source,
            **library_options(wanted),
            use_safetensors=True,
            dtype=_dtype(wanted.dtype, place),
            output_loading_info=True,
            **placement,
        )
        if not placement and not getattr(model, "is_quantized", False):
            model = model.to(place)
    except ImportError as error:
        raise _missing_library(wanted, source, error) from error
    except Exception as error:  # whatever libraries make of a damaged folder
        if described is not None and "mismatched" in str(error) and (differences := described.differences()):
            raise ModelError(f"{described.config} does not fit the weights: {differences}. {_OWN_CONFIG}") from error
        raise explained(wanted.name, error) from error
    refuse_embedded_adapter(wanted.name, is_embedded=getattr(model, "_hf_peft_config_loaded", False))
    if report["missing_keys"]:
        # The library fills what is missing with random numbers and goes on.
        missing = sorted(report["missing_keys"])
        raise ModelError(
            f"{wanted.name} lacks {len(missing)} of its weights ({missing[0]} …). Use a complete causal language model."
        )
    if report["unexpected_keys"]:
        unused = sorted(report["unexpected_keys"])
        warnings.warn(
            f"{wanted.name} holds {len(unused)} tensors that its config.json has no place for ({unused[0]} …); the "
            "model is measured without them.",
            stacklevel=2,
        )
    return model


@dataclass(frozen=True, slots=True)
class _Described:
    """The model that a folder's configuration describes, beside the weights that the folder holds."""

    config: Path
    shapes: dict[str, tuple[int, ...]]
    """Of the parameters, tied ones once."""
    held: dict[str, tuple[int, ...]]
    """Of the tensors in the folder's files, by their headers."""
    room: int
    """The most parameters that the files can hold."""

    def require_room(self) -> None:
        """Raise a ModelError before memory is taken for weights that the folder does not hold.

        The library would allocate them and fill them with random numbers first.
        """
        wanted = sum(map(math.prod, self.shapes.values()))
        if wanted > self.room:
            raise ModelError(
                f"{self.config} describes a model of {wanted:,} weights, but the folder holds at most {self.room:,}: "
                f"{self.differences()}. {_OWN_CONFIG}"
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


def _described(wanted: Wanted, source: str) -> _Described | None:
    """None for a hub id, and where the library has more to say about the folder."""
    from transformers import AutoConfig, AutoModelForCausalLM

    files = sorted(Path(source).glob("*.safetensors"))
    if not files:
        return None
    held = {name: shape for file in files for name, shape in weight_shapes(file).items()}
    try:
        config = AutoConfig.from_pretrained(source, **library_options(wanted))
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config, trust_remote_code=False)
    except Exception:  # the same happens when the library loads the model, and is explained there
        return None
    shapes = {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}
    room = sum(map(math.prod, held.values()))
    if getattr(config, "quantization_config", None) is not None:
        room = 8 * sum(file.stat().st_size for file in files)  # packed, at least a bit for each
    return _Described(Path(source) / CONFIG, shapes, held, room)


def _missing_library(wanted: Wanted, source: str, error: ImportError) -> ModelError:
    """Quantised weights that need a library of their own, said with its name."""
    from transformers import AutoConfig

    try:
        config = AutoConfig.from_pretrained(source, **library_options(wanted))
    except Exception as unread:  # whatever libraries make of a damaged folder
        return explained(wanted.name, unread)
    settings = getattr(config, "quantization_config", None)
    method = settings.get("quant_method") if isinstance(settings, dict) else None
    if method is None:
        return explained(wanted.name, error)
    library = LIBRARIES.get(str(method), str(method))
    return ModelError(
        f"{wanted.name} is quantised by {method}, and this machine cannot read that yet; "
        f"install what it needs with: pip install {library} accelerate"
    )


def device_of(device: str) -> torch.device:
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


def _placement(device: str) -> dict[str, Any]:
    """`--device map` lets the library spread a large model over what there is; otherwise one device."""
    if device != "map":
        return {}
    if find_spec("accelerate") is None:
        raise ModelError("--device map needs accelerate. Install it with: pip install 'rote[multi-gpu]'")
    return {"device_map": "auto"}


def _dtype(dtype: str, device: torch.device) -> torch.dtype:
    if dtype == "auto":
        return torch.float32 if device.type == "cpu" else torch.bfloat16
    if dtype not in DTYPES:
        raise ModelError(f"dtype {dtype!r} is not known. Use auto, {', '.join(DTYPES)}.")
    return DTYPES[dtype]
