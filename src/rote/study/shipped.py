"""The recipes that come with rote: published experiments as files of studies."""

from pathlib import Path

from rote.errors import ConfigError

FOLDER = Path(__file__).parent / "recipes"


def recipe_files() -> dict[str, Path]:
    """Name → file, in order of names."""
    return {path.stem: path for path in sorted(FOLDER.glob("*.yaml"))}


def recipe_file(name: str) -> Path:
    known = recipe_files()
    if name not in known:
        raise ConfigError(f"there is no recipe {name}; choose among {', '.join(known)}.")
    return known[name]


def file_of(given: Path) -> Path:
    """The file of a study as it was given: a path, or where there is none the name of a recipe."""
    path = given.expanduser()
    if path.exists() or path.suffix or len(path.parts) != 1:
        return path
    known = recipe_files()
    if path.name not in known:
        raise ConfigError(f"{given} is neither a file nor a recipe; the recipes are {', '.join(known)}.")
    return known[path.name]
