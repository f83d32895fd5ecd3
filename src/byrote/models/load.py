"""Whatever a user gives as a model, as a `LanguageModel`: a name, a Hugging Face object or an object of their own."""

from pathlib import Path
from typing import Any

import torch

from byrote.errors import ModelError
from byrote.models.base import LanguageModel
from byrote.models.hf.model import HuggingFaceModel, load
from byrote.models.own import OwnModel


def open_model(
    name: str,
    *,
    revision: str | None = None,
    dtype: str = "auto",
    device: str = "auto",
    adapter: str | None = None,
) -> LanguageModel:
    """The model of a folder or a hub id."""
    if name.startswith("endpoint:"):
        raise ModelError(
            f"{name} is a server, which lists its most likely tokens only; nothing but `byrote scan --model {name}` "
            "measures it, so give a model folder or hub id here."
        )
    if name.startswith(("http://", "https://")):
        raise ModelError(f"{name} is an address; if a server answers there, give --model endpoint:{name}.")
    return load(name, revision=revision, dtype=dtype, device=device, adapter=adapter)


def as_language_model(given: Any, tokenizer: Any = None) -> LanguageModel:
    """`given` itself where it can be measured already; otherwise opened by its name or wrapped."""
    if isinstance(given, HuggingFaceModel | OwnModel):
        return given
    if isinstance(given, str | Path):
        return open_model(str(given))
    if isinstance(given, torch.nn.Module) and hasattr(given, "get_output_embeddings"):
        if tokenizer is None:
            raise ModelError(
                f"a {type(given).__name__} in memory comes without its tokenizer; "
                "give both: byrote.load_model(model, tokenizer=tokenizer)."
            )
        return HuggingFaceModel(given, tokenizer, name=str(getattr(given, "name_or_path", "") or "in memory"))
    if hasattr(given, "next_logits") or hasattr(given, "next_log_probs"):
        return OwnModel(given)
    kind = "None" if given is None else f"a value of type {type(given).__name__}"
    raise ModelError(
        f"{kind} is no model; give a folder or hub id, a Hugging Face model with its tokenizer, or an object "
        "with vocab_size and next_logits."
    )
