"""What identifies a Hugging Face model: the hash of its weights, and the settings that decide its numbers."""

import hashlib
import json
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

NOT_DECIDING = {"transformers_version", "dtype", "torch_dtype", "quantization_config", "use_cache", "name_or_path"}
"""Settings that change no number, or are a part of the identity by themselves."""


def quantization_of(model: Any) -> str | None:
    """The settings by which a checkpoint was quantised, in one order."""
    settings = getattr(model.config, "quantization_config", None)
    if settings is None:
        return None
    return json.dumps(settings if isinstance(settings, dict) else settings.to_dict(), sort_keys=True, default=str)


def settings_of(model: Any) -> str | None:
    """The model's own settings, but for those that change no number or are in the identity already."""
    config = getattr(model, "config", None)
    if config is None or not hasattr(config, "to_diff_dict"):
        return None
    return json.dumps(_deciding(config.to_diff_dict()), sort_keys=True, default=str)


def _deciding(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    kept = {str(name): _deciding(entry) for name, entry in value.items() if name not in NOT_DECIDING}
    return {name: entry for name, entry in kept.items() if not name.startswith("_")}


def hash_weights(model: Any) -> str:
    """SHA-256 over names, shapes and bytes of all weights as loaded: equal weights, equal hash, however stored, and
    however many devices hold them."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict(keep_vars=True).items()):
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        for part in plain_parts(tensor.detach()):
            digest.update(part.cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def plain_parts(tensor: Tensor) -> Iterator[Tensor]:
    """A tensor's numbers. Quantised ones are tensors of their own kind that hold others: packed weights, scales."""
    if not hasattr(tensor, "__tensor_flatten__"):
        yield tensor
        return
    for name in tensor.__tensor_flatten__()[0]:
        yield from plain_parts(getattr(tensor, name))
