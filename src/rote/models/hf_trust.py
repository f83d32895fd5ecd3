"""What a model may not ask for: rote runs no code that comes with a model and reads no pickled weights.

Unpickling runs whatever the file says. Safetensors hold numbers and nothing else.
"""

from collections.abc import Iterator
from pathlib import Path

from rote.errors import ModelError
from rote.files import parse_json, read_bytes

PICKLED = ("pytorch_model*.bin", "*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")
INDEX = ".safetensors.index.json"
_LARGEST_INDEX = 100_000_000
_LONGEST_QUOTE = 200


def refuse_what_would_run_code(name: str, folder: Path) -> None:
    """Look at a folder before anything of it is loaded. What a hub id holds is known to the library alone."""
    for key, value in _settings(folder / "config.json"):
        if key.endswith("_implementation") and "/" in value:
            raise ModelError(f"{name} wants {value} to be downloaded and run. {_NO_CODE}")
        if key == "transformers_weights":
            _require_plain_weights(folder / "config.json", value, endings=(".safetensors", INDEX))
    for index in sorted(folder.glob(f"*{INDEX}")):
        for value in _shards(index):
            _require_plain_weights(index, value, endings=(".safetensors",))
    pickled = _pickled_alone(folder)
    if pickled is not None:
        raise ModelError(_without_safetensors(name, f"pickled weights alone ({pickled})"))


def explained(name: str, error: Exception) -> ModelError:
    """A failure of the library while it loaded a model, in one sentence."""
    message = str(error).strip()
    if "trust_remote_code" in message:
        return ModelError(f"{name} comes with code of its own that would have to be run. {_NO_CODE}")
    if "`safetensors`" in message or "torch.load" in message or "weights_only" in message:
        return ModelError(_without_safetensors(name, "pickled weights alone"))
    if "ignore_mismatched_sizes" in message:
        return ModelError(f"{name} has weights of other shapes than its config.json describes; use files of one model.")
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


def _require_plain_weights(path: Path, named: str, *, endings: tuple[str, ...]) -> None:
    """A settings file may send the library to safetensors in its own folder, and to nothing else."""
    if Path(named).name != named or "\\" in named:
        raise ModelError(
            f"{path} takes weights from {named[:_LONGEST_QUOTE]!r}, which is not the name of a file in its folder; "
            "give a folder that holds its own weights."
        )
    if not named.endswith(endings):
        raise ModelError(_without_safetensors(str(path), f"an entry for pickled weights ({named[:_LONGEST_QUOTE]!r})"))


def _shards(index: Path) -> list[str]:
    """The files that an index of weights names."""
    try:
        names = parse_json(read_bytes(index, most=_LARGEST_INDEX))["weight_map"].values()
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise ModelError(f"{index} cannot be read as an index of weights ({error}); get the folder again.") from error
    return sorted(set(map(str, names)))


def _settings(path: Path) -> Iterator[tuple[str, str]]:
    """Every setting that is text, those of models inside a model included."""
    remaining = [parse_json(path.read_bytes())] if path.exists() else []
    while remaining:
        settings = remaining.pop()
        for key, value in settings.items() if isinstance(settings, dict) else ():
            if isinstance(value, str):
                yield key, value
            else:
                remaining.append(value)
