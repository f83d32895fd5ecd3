"""PEFT adapters: small weights that change a model, merged into it before anything is measured."""

import hashlib
import os
from pathlib import Path
from typing import Any

from rote.errors import ModelError
from rote.files import parse_json, read_bytes
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


def merged(model: Any, folder: Path) -> Any:
    """`model` with the adapter's changes added to its weights, in their own dtype."""
    from peft import PeftModel

    try:
        return PeftModel.from_pretrained(model, str(folder), is_trainable=False).merge_and_unload(safe_merge=True)
    except Exception as error:  # an adapter of another model, a damaged file
        raise explained(str(folder), error) from error


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
