"""What a model may not ask for: rote runs no code that comes with a model and reads no pickled weights.

Unpickling runs whatever the file says. Safetensors hold numbers and nothing else.
"""

from pathlib import Path
from typing import Any

from rote.errors import ModelError
from rote.files import parse_json

PICKLED = ("pytorch_model*.bin", "*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")


def refuse_what_would_run_code(name: str, folder: Path) -> None:
    """Look at a folder before anything of it is loaded. What a hub id holds is known to the library alone."""
    kernel = _foreign_kernel(folder / "config.json")
    if kernel is not None:
        raise ModelError(f"{name} wants {kernel} to be downloaded and run. {_NO_CODE}")
    pickled = _pickled_alone(folder)
    if pickled is not None:
        raise ModelError(_without_safetensors(name, f"pickled weights alone ({pickled})"))


def explained(name: str, error: Exception) -> ModelError:
    """A failure of the library while it loaded a model, in one sentence."""
    message = str(error).strip()
    if "trust_remote_code" in message:
        return ModelError(f"{name} comes with code of its own that would have to be run. {_NO_CODE}")
    if "`safetensors`" in message:
        return ModelError(_without_safetensors(name, "pickled weights alone"))
    first_line = message.splitlines()[0] if message else type(error).__name__
    here = "" if Path(name).exists() else "is no folder here, and "
    return ModelError(f"{name} {here}could not be loaded as a causal language model: {first_line}")


_NO_CODE = "rote runs no code of a model; use one whose architecture transformers knows by itself."


def _without_safetensors(name: str, what: str) -> str:
    return (
        f"{name} has {what}, and reading those can run code. Convert them where you trust them: "
        "AutoModelForCausalLM.from_pretrained(…).save_pretrained(…) writes safetensors."
    )


def _pickled_alone(folder: Path) -> str | None:
    """A file with weights that have no safe twin."""
    adapter = folder / "adapter_model.bin"
    if adapter.exists() and not adapter.with_suffix(".safetensors").exists():
        return adapter.name
    if any(folder.glob("*.safetensors")):
        return None
    return next((path.name for pattern in PICKLED for path in sorted(folder.glob(pattern))), None)


def _foreign_kernel(path: Path) -> str | None:
    """A repository that the settings want attention or experts to be taken from."""
    return _first_kernel(parse_json(path.read_bytes())) if path.exists() else None


def _first_kernel(settings: Any) -> str | None:
    if not isinstance(settings, dict):
        return None
    for key, value in settings.items():
        if str(key).endswith("_implementation") and isinstance(value, str) and "/" in value:
            return value
        found = _first_kernel(value)
        if found is not None:
            return found
    return None
