"""The recipes that come with byrote: published experiments as files of studies."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from byrote.errors import ConfigError

FOLDER = Path(__file__).parent / "recipes"


def recipe_files() -> dict[str, Path]:
    """Name → file, in order of names."""
    return {path.stem: path for path in sorted(FOLDER.glob("*.yaml"))}


def recipe_file(name: str) -> Path:
    known = recipe_files()
    if name not in known:
        raise ConfigError(f"there is neither a file nor a recipe {name}; the recipes are {', '.join(known)}.")
    return known[name]


def file_of(given: Path) -> Path:
    """The file of a study as it was given: a path, or where there is none the name of a recipe."""
    path = given.expanduser()
    is_path = path.exists() or path.suffix or len(path.parts) != 1
    return path if is_path else recipe_file(path.name)


SMALL: dict[str, tuple[str, str]] = {
    "prefix_tokens": ("12", "20"),
    "suffix_tokens": ("8", "10"),
    "stride_chars": ("60", "90"),
    "beam_width": ("4", "2"),
    "edit_budget": ("2", "1"),
    "montecarlo_windows": ("2", "2"),
    "montecarlo_samples": ("60", "60"),
    "sample": ("10", "10"),
    "screen_min_windows": ("4", "4"),
}
"""Option → the value in a smoke test, and the second one where it is an axis."""
ALWAYS = ("prefix_tokens", "suffix_tokens", "stride_chars", "beam_width", "edit_budget", "sample", "screen_min_windows")
PLACES = ("model", "text", "texts", "control", "pairs", "revision", "out", "device", "dtype", "limit")
MOST_VALUES = 2


def shrunk(
    values: Mapping[str, Any], *, models: tuple[str, ...], texts: tuple[str, ...], control: str
) -> dict[str, Any]:
    """The values of a study's file, small, and about these models and texts instead of its own."""
    small = {name: _shrunk(name, value) for name, value in values.items() if name not in PLACES}
    for name in ALWAYS:
        small.setdefault(name, SMALL[name][0])
    wanted = len(values["model"]) if isinstance(values.get("model"), list) else 1
    small |= {"model": list(models[: min(wanted, MOST_VALUES)]), "control": [control], "device": "cpu"}
    about = f"A smoke test on tiny models, whose numbers stand for nothing. {values.get('about') or ''}"
    small["about"] = about.strip()
    is_axis = isinstance(values.get("texts"), list) and len(values["texts"]) > 1
    return small | ({"texts": list(texts[:MOST_VALUES])} if is_axis else {"text": list(texts)})


def _shrunk(name: str, value: Any) -> Any:
    if name == "published" or name == "sweep":
        return value
    if isinstance(value, list):
        return list(SMALL[name][: len(value)]) if name in SMALL else value[:MOST_VALUES]
    return SMALL[name][0] if name in SMALL and int(value) > 0 else value
