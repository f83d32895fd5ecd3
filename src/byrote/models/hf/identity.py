"""What tells one Hugging Face model from another."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

NOT_DECIDING = {"transformers_version", "dtype", "torch_dtype", "quantization_config", "use_cache", "name_or_path"}
"""Settings that change no number, or are a part of the identity by themselves."""


@dataclass(frozen=True, slots=True)
class ModelIdentity:
    """What a manifest needs to tell one model from another."""

    name: str
    revision: str | None
    weights_hash: str
    tokenizer_hash: str
    parameters: int | None
    """None for a model that does not say."""
    dtype: str
    device: str
    adapter_hash: str | None = field(default=None, kw_only=True)
    """Of the adapter that was merged into the weights; `weights_hash` is of the merged ones."""
    quantization: str | None = field(default=None, kw_only=True)
    """How the weights were quantised, as settings in JSON; None for weights as they were trained."""
    settings: str | None = field(default=None, kw_only=True)
    """What decides beside the weights what is computed (heads, rotary angles, norms, special tokens), in JSON; None for
    a model without such settings."""

    @property
    def told_apart_by(self) -> dict[str, Any]:
        """What makes two models the same model, wherever they lie."""
        known = {name: getattr(self, name) for name in ("weights_hash", "tokenizer_hash", "dtype")}
        further = {"adapter_hash": self.adapter_hash, "quantization": self.quantization}
        if self.settings is not None:
            further["settings"] = json.loads(self.settings)
        return known | {name: value for name, value in further.items() if value is not None}


def identity_of(
    model: Any, tokenizer: Any, *, name: str, revision: str | None, adapter_hash: str | None = None
) -> ModelIdentity:
    return ModelIdentity(
        name=name,
        revision=revision,
        weights_hash=hash_weights(model),
        tokenizer_hash=hash_tokenizer(tokenizer),
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        dtype=str(model.dtype).removeprefix("torch."),
        device=str(model.device),
        adapter_hash=adapter_hash,
        quantization=quantization_of(model),
        settings=settings_of(model),
    )


def quantization_of(model: Any) -> str | None:
    """The settings by which a checkpoint was quantised, in one order."""
    settings = getattr(model.config, "quantization_config", None)
    if settings is None:
        return None
    return json.dumps(settings if isinstance(settings, dict) else settings.to_dict(), sort_keys=True, default=str)


def settings_of(model: Any) -> str | None:
    """The model's own settings, but for those that are told apart by themselves or change no number."""
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


def hash_tokenizer(tokenizer: Any) -> str:
    digest = hashlib.sha256()
    backend = getattr(tokenizer, "backend_tokenizer", None)
    description = backend.to_str() if backend is not None else repr(sorted(tokenizer.get_vocab().items()))
    digest.update(description.encode())
    digest.update(repr(sorted((str(k), str(v)) for k, v in tokenizer.special_tokens_map.items())).encode())
    return digest.hexdigest()
