"""PEFT adapters: small weights that change a model, merged into it before anything is measured."""

import hashlib
import os
import warnings
from pathlib import Path
from typing import Any

import torch

from rote.errors import ModelError
from rote.files import parse_json, read_bytes
from rote.models.hf_identity import plain_parts
from rote.models.hf_trust import explained, refuse_what_would_run_code
from rote.models.model_folder import ADAPTER, CONFIG, require_peft

WEIGHTS = "adapter_model.safetensors"
_LARGEST_SETTINGS = 10_000_000


def base_of(name: str, adapter: str | None) -> tuple[str, str | None]:
    """The model to load and the adapter to merge into it. A folder that holds an adapter alone names its own base."""
    folder = Path(os.path.expanduser(name))
    if adapter is not None or not (folder / ADAPTER).is_file() or (folder / CONFIG).exists():
        return name, adapter
    base = _settings(folder).get("base_model_name_or_path")
    if not isinstance(base, str) or not base:
        raise ModelError(f"{folder / ADAPTER} does not say which model it changes; give --model BASE --adapter {name}.")
    return base, name


def adapter_folder(name: str) -> Path:
    """The folder of an adapter that can be merged here and reads as numbers alone."""
    folder = Path(os.path.expanduser(name))
    if not (folder / ADAPTER).is_file():
        raise ModelError(f"there is no {ADAPTER} in {name}; give the folder of a PEFT adapter.")
    require_peft(name)
    refuse_what_would_run_code(name, folder)
    if not (folder / WEIGHTS).is_file():
        raise ModelError(f"{name} has no {WEIGHTS}; give a complete adapter.")
    return folder


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
        _refuse_unplaced(folder, report.unexpected_keys, "names {} that the model does not have")
        _refuse_unplaced(folder, report.missing_keys, "lacks {} that its settings call for")
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


def _refuse_unplaced(folder: Path, names: list[str], words: str) -> None:
    if names:
        what = f"{len(names)} tensors ({sorted(names)[0]} …)"
        raise ModelError(f"the adapter {folder} {words.format(what)}; give the model that the adapter was trained on.")


def _norms(model: Any) -> dict[str, list[float]]:
    """The norm of every weight tensor, in float64: equal before and after a merge that changes no weight."""
    return {name: list(map(_norm, plain_parts(tensor))) for name, tensor in model.state_dict().items()}


def _norm(part: torch.Tensor) -> float:
    is_packed = part.dtype.itemsize == 1 or not part.is_floating_point()
    return float(torch.linalg.vector_norm(part.float() if is_packed else part, dtype=torch.float64))


def hash_adapter(folder: Path) -> str:
    """SHA-256 over the adapter's settings and weights as they lie on disk."""
    digest = hashlib.sha256()
    for name in (ADAPTER, WEIGHTS):
        content = read_bytes(folder / name)
        digest.update(f"{name} {len(content)} ".encode())
        digest.update(content)
    return digest.hexdigest()


def _settings(folder: Path) -> dict[str, Any]:
    try:
        settings = parse_json(read_bytes(folder / ADAPTER, most=_LARGEST_SETTINGS))
    except (OSError, ValueError) as error:
        raise ModelError(f"{folder / ADAPTER} cannot be read as JSON ({error}); give a complete adapter.") from error
    return settings if isinstance(settings, dict) else {}
