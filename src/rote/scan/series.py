"""Checkpoints of one training as a series of scans: the same windows, one run folder each."""

import glob
import os
import re
from dataclasses import replace
from pathlib import Path

from rote.errors import ConfigError
from rote.scan.options import RunConfig


def runs_of(config: RunConfig) -> list[RunConfig]:
    """One configuration for every model that `--model` names, each with a folder of its own in `--out`; a single model
    that is not a glob keeps `--out` itself."""
    models = [config.model] if config.is_served else models_named(config.model)
    if models == [config.model]:
        return [config]
    return [
        replace(config, model=model, out=str(Path(config.out) / folder))
        for model, folder in zip(models, _folders(models), strict=True)
    ]


def models_named(given: str) -> list[str]:
    """The models behind names with commas and globs, numbers in their order: step-2 comes before step-10."""
    if os.path.lexists(os.path.expanduser(given)):
        return [given]
    names = [name.strip() for name in given.split(",") if name.strip()]
    return list(dict.fromkeys(model for name in names for model in _matching(name)))


def _matching(name: str) -> list[str]:
    if not glob.has_magic(name):
        return [name]
    found = [path for path in glob.glob(os.path.expanduser(name)) if os.path.isdir(path)]
    if not found:
        raise ConfigError(f"model {name!r} matches no folder; give model folders, or check the pattern.")
    return sorted(found, key=_in_order)


def _in_order(path: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"([0-9]+)", path)]


def _folders(models: list[str]) -> list[str]:
    """Names of run folders: as little of each model's path as tells them apart."""
    parts = [[part for part in Path(model).parts if part not in ("/", ".", "..", "~")] for model in models]
    for count in range(1, max(map(len, parts)) + 1):
        names = ["--".join(one[-count:]) for one in parts]
        if len(set(names)) == len(names):
            return names
    raise ConfigError(f"the models {', '.join(models)} cannot be told apart by their names; rename one of them.")
