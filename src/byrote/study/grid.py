"""The grid of a study: axes with their values, and one cell for every combination of them."""

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from byrote.errors import ConfigError

OUTERMOST = ("model", "texts")
"""Cells of one model follow each other."""
MOST_CELLS = 10_000
NAME_CHARACTERS = 24


@dataclass(frozen=True, slots=True)
class Axis:
    """An option that takes several values, as they were written."""

    name: str
    values: tuple[str, ...]

    @property
    def is_swept(self) -> bool:
        return len(self.values) > 1

    def label_of(self, value: str) -> str:
        """A value as figures and tables say it: paths by their last part."""
        labels = [_last(each) if self.name in OUTERMOST else each for each in self.values]
        own = labels[self.values.index(value)]
        return own if labels.count(own) == 1 else value


@dataclass(frozen=True, slots=True)
class Cell:
    """One combination: `settings` has a value for every axis. `name` is its folder."""

    name: str
    settings: Mapping[str, str]


def make_axes(values: Mapping[str, Sequence[str]]) -> tuple[Axis, ...]:
    """The axes, models and texts outermost, otherwise as given."""
    for name, each in values.items():
        if len(set(each)) < len(each):
            raise ConfigError(f"{name} has a value twice ({', '.join(each)}); give every value once.")
        if not each:
            raise ConfigError(f"{name} has no value; give one or leave it out.")
    order = sorted(values, key=lambda name: OUTERMOST.index(name) if name in OUTERMOST else len(OUTERMOST))
    return tuple(Axis(name, tuple(values[name])) for name in order)


def make_cells(axes: Sequence[Axis]) -> tuple[Cell, ...]:
    """Every combination, the last axis running fastest."""
    count = 1
    for axis in axes:
        count *= len(axis.values)
    if count > MOST_CELLS:
        raise ConfigError(f"the study has {count:,} cells; at most {MOST_CELLS:,} make sense. Give fewer values.")
    cells = []
    for number, chosen in enumerate(itertools.product(*(axis.values for axis in axes)), start=1):
        settings = {axis.name: value for axis, value in zip(axes, chosen, strict=True)}
        cells.append(Cell(_name(number, axes, settings), settings))
    return tuple(cells)


def base_cells(axes: Sequence[Axis], cells: Sequence[Cell]) -> tuple[Cell, ...]:
    """The first cell of every model and text: all other axes at their first value."""
    first = {axis.name: axis.values[0] for axis in axes if axis.name not in OUTERMOST}
    return tuple(cell for cell in cells if all(cell.settings[name] == value for name, value in first.items()))


def _name(number: int, axes: Sequence[Axis], settings: Mapping[str, str]) -> str:
    """A folder name that says what varies: `03-pythia-1b-prefix_tokens=25`."""
    parts = [
        axis.label_of(settings[axis.name]) if axis.name in OUTERMOST else f"{axis.name}={settings[axis.name]}"
        for axis in axes
        if axis.is_swept
    ]
    words = [re.sub(r"[^\w.=+-]+", "_", part)[:NAME_CHARACTERS] for part in parts]
    return "-".join([f"{number:02d}", *words])


def _last(path: str) -> str:
    return PurePath(path).name or path
