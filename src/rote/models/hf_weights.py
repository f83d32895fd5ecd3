"""Weights of a Hugging Face model on their devices: from a folder or hub id, with or without adapter or ranks."""

import os
import re
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from rote.errors import ModelError
from rote.models.adapters import adapter_folder, base_of, hash_adapter, merged, refuse_embedded_adapter
from rote.models.hf_trust import explained, refuse_what_would_run_code
from rote.models.model_folder import ADAPTER, local_folder

if TYPE_CHECKING:
    from rote.models.ranks import Ranks

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
LIBRARIES = {"gptq": "gptqmodel", "awq": "gptqmodel", "quanto": "optimum-quanto"}
"""What to install for weights that were quantised by a method, where the library is not called like the method."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A model as a user names it; everything a process needs to load it."""

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


def load_weights(wanted: Wanted, ranks: "Ranks | None" = None) -> Weights:
    """The model with every weight it needs, its adapter merged; this rank's shard of it where there are several."""
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
    model = _read(wanted, source, ranks)
    if added is None:
        return Weights(model, source, source, None)
    has_tokenizer = (added / "tokenizer_config.json").exists()
    return Weights(merged(model, added), source, str(added) if has_tokenizer else source, hash_adapter(added))


def library_options(wanted: Wanted) -> dict[str, Any]:
    return {"revision": wanted.revision, "trust_remote_code": False}


def config_of(wanted: Wanted, source: str | None = None) -> Any:
    """The settings of a model, without its weights."""
    from transformers import AutoConfig

    folder = local_folder(wanted.name) if source is None else None
    try:
        return AutoConfig.from_pretrained(source or str(folder or wanted.name), **library_options(wanted))
    except Exception as error:  # whatever libraries make of a damaged folder
        raise explained(wanted.name, error) from error


def _read(wanted: Wanted, source: str, ranks: "Ranks | None") -> Any:
    from transformers import AutoModelForCausalLM

    place = ranks.device if ranks is not None else device_of(wanted.device)
    # Or a hub would be asked to convert what is pickled, and the result taken from whoever did so.
    os.environ.setdefault("DISABLE_SAFETENSORS_CONVERSION", "1")
    placement = _placement(wanted.device, ranks)
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
        raise explained(wanted.name, error) from error
    refuse_embedded_adapter(wanted.name, is_embedded=getattr(model, "_hf_peft_config_loaded", False))
    if report["missing_keys"]:
        # The library fills what is missing with random numbers and goes on.
        missing = sorted(report["missing_keys"])
        raise ModelError(
            f"{wanted.name} lacks {len(missing)} of its weights ({missing[0]} …). Use a complete causal language model."
        )
    return model


def _missing_library(wanted: Wanted, source: str, error: ImportError) -> ModelError:
    """Quantised weights that need a library of their own, said with its name."""
    settings = getattr(config_of(wanted, source), "quantization_config", None)
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


def _placement(device: str, ranks: "Ranks | None") -> dict[str, Any]:
    """Shards over ranks; `--device map` lets the library spread a large model over what there is; or one device."""
    if ranks is not None:
        from transformers.distributed import DistributedConfig

        return {"distributed_config": DistributedConfig(tp_size=ranks.size)}
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
