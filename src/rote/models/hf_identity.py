"""What tells one Hugging Face model from another."""

import hashlib
from dataclasses import dataclass
from typing import Any

import torch


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


def identity_of(model: Any, tokenizer: Any, *, name: str, revision: str | None) -> ModelIdentity:
    return ModelIdentity(
        name=name,
        revision=revision,
        weights_hash=hash_weights(model),
        tokenizer_hash=hash_tokenizer(tokenizer),
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        dtype=str(model.dtype).removeprefix("torch."),
        device=str(model.device),
    )


def hash_weights(model: Any) -> str:
    """SHA-256 over names, shapes and bytes of all weights as loaded: equal weights, equal hash, however stored."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def hash_tokenizer(tokenizer: Any) -> str:
    digest = hashlib.sha256()
    backend = getattr(tokenizer, "backend_tokenizer", None)
    description = backend.to_str() if backend is not None else repr(sorted(tokenizer.get_vocab().items()))
    digest.update(description.encode())
    digest.update(repr(sorted((str(k), str(v)) for k, v in tokenizer.special_tokens_map.items())).encode())
    return digest.hexdigest()
