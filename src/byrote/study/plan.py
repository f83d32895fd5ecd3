"""The plan of a study: axes with their values, a cell for every combination of them, and the scan of every cell."""

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import PurePath
from typing import Any

from byrote.errors import ConfigError
from byrote.options import build, options_of
from byrote.scan.options import RunConfig, parse_policy
from byrote.study.options import StudyConfig

OUTERMOST = ("model", "texts")
"""Cells of one model follow each other."""
MOST_CELLS = 10_000
NAME_CHARACTERS = 24
SAMPLING = ("montecarlo_windows", "montecarlo_samples")
OPTIONS_OF_AXIS = {"policy": ("temperature", "top_k", "top_p"), "texts": ("text",)}
"""Scan options set by an axis; every other axis is named after its option."""


@dataclass(frozen=True, slots=True)
class Axis:
    """An option that takes several values, as they were written."""

    name: str
    values: tuple[str, ...]

    @property
    def is_swept(self) -> bool:
        return len(self.values) > 1

    def label_of(self, value: str) -> str:
        """A value as figures and tables print it: paths by their last part where that is unique."""
        labels = [PurePath(each).name or each if self.name in OUTERMOST else each for each in self.values]
        own = labels[self.values.index(value)]
        return own if labels.count(own) == 1 else value


@dataclass(frozen=True, slots=True)
class Cell:
    """One combination: `settings` has a value for every axis. `name` is its folder."""

    name: str
    settings: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class StudyPlan:
    """A checked study: nothing is measured before every cell's scan options are valid."""

    axes: tuple[Axis, ...]
    cells: tuple[Cell, ...]
    scans: Mapping[str, RunConfig]
    """Cell name → its scan."""
    config: StudyConfig
    document_facts: Mapping[str, Mapping[str, Any]]
    """Document name → columns added to its rows."""

    @property
    def sampling(self) -> dict[str, int]:
        return {name: getattr(self.config, name) for name in SAMPLING}

    def described(self) -> dict[str, Any]:
        """Options that change no measured number, or are axes."""
        return {name: value for name, value in asdict(self.config).items() if name not in SAMPLING}

    def identity(self) -> dict[str, Any]:
        """All that decides the numbers except models and texts, whose hashes are in the runs of the cells."""
        set_by_axes = {name for axis in self.axes for name in OPTIONS_OF_AXIS.get(axis.name, (axis.name,))}
        shared = next(iter(self.scans.values())).identity()
        return {
            "axes": {axis.name: list(axis.values) for axis in self.axes},
            "fixed": {name: value for name, value in shared.items() if name not in set_by_axes},
            "sampling": self.sampling,
        }


def plan_study(
    values: Mapping[str, Any], *, place: str, document_facts: Mapping[str, Mapping[str, Any]] | None = None
) -> StudyPlan:
    """The plan that a study's file describes; `place` names the file in error messages."""
    own = {item.name for item in fields(StudyConfig)}
    config = build(StudyConfig, {name: value for name, value in values.items() if name in own}, place=place)
    axes = make_axes(_axis_values(values, config))
    swept = {axis.name for axis in axes}
    fixed = {name: value for name, value in values.items() if name not in own | swept}
    fixed = _capacities(axes, fixed) | fixed
    cells = make_cells(axes)
    scans = {cell.name: _scan_of(cell, fixed) for cell in cells}
    if config.montecarlo_windows and any(scan.is_served for scan in scans.values()):
        raise ConfigError("montecarlo_windows samples models on this machine, not behind a server; leave it out.")
    return StudyPlan(axes, cells, scans, config, document_facts or {})


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
    count = math.prod(len(axis.values) for axis in axes)
    if count > MOST_CELLS:
        raise ConfigError(f"the study has {count:,} cells; at most {MOST_CELLS:,} make sense. Give fewer values.")
    names = [axis.name for axis in axes]
    combinations = itertools.product(*(axis.values for axis in axes))
    return tuple(
        Cell(_cell_name(number, axes, chosen), dict(zip(names, chosen, strict=True)))
        for number, chosen in enumerate(combinations, start=1)
    )


def base_cells(axes: Sequence[Axis], cells: Sequence[Cell]) -> tuple[Cell, ...]:
    """The first cell of every model and text: all other axes at their first value."""
    first = {axis.name: axis.values[0] for axis in axes if axis.name not in OUTERMOST}
    return tuple(cell for cell in cells if all(cell.settings[name] == value for name, value in first.items()))


def _cell_name(number: int, axes: Sequence[Axis], chosen: Sequence[str]) -> str:
    """A folder name with the swept values: `03-pythia-1b-prefix_tokens=25`."""
    parts = [
        axis.label_of(value) if axis.name in OUTERMOST else f"{axis.name}={value}"
        for axis, value in zip(axes, chosen, strict=True)
        if axis.is_swept
    ]
    return "-".join([f"{number:02d}", *(re.sub(r"[^\w.=+-]+", "_", part)[:NAME_CHARACTERS] for part in parts)])


def _axis_values(values: Mapping[str, Any], config: StudyConfig) -> dict[str, list[str]]:
    """Every scan option that has a list where it takes one value; models, texts and policies always."""
    if not values.get("model"):
        raise ConfigError("model is missing; give the study one model or a list of them.")
    known = options_of(RunConfig)
    axes: dict[str, list[str]] = {}
    for name, value in values.items():
        if name == "model" or (name in known and isinstance(value, list) and not known[name].kind.is_list):
            each = value if isinstance(value, list) else [value]
            for nested in each:
                if isinstance(nested, dict | list):
                    raise ConfigError(f"{nested!r} is a value of an axis; write plain values.")
            axes[name] = ["none" if one is None else str(one) for one in each]
    if config.texts:
        if values.get("text") or values.get("pairs"):
            raise ConfigError("the study has both texts and text or pairs; texts make cells of their own, choose one.")
        axes["texts"] = list(config.texts)
    if config.policy:
        axes["policy"] = list(config.policy)
    return axes


def _capacities(axes: Sequence[Axis], fixed: Mapping[str, Any]) -> dict[str, int]:
    """The longest prefix and target of the grid: with these reserved, all cells of a model have the same windows."""
    swept = {axis.name: axis.values for axis in axes if axis.is_swept and not fixed.get("pairs")}
    return {
        option: max(int(value) for value in swept[lengths])
        for option, lengths in (("cut_prefix_tokens", "prefix_tokens"), ("cut_suffix_tokens", "suffix_tokens"))
        if lengths in swept and all(value.isdecimal() for value in swept[lengths])
    }


def _scan_of(cell: Cell, fixed: Mapping[str, Any]) -> RunConfig:
    """The options of a cell's scan, checked; an error names the cell."""
    values = dict(fixed)
    for name, value in cell.settings.items():
        if name == "policy":
            policy = parse_policy(value)
            values |= {"temperature": policy.temperature, "top_k": policy.top_k, "top_p": policy.top_p}
        elif name == "texts":
            values["text"] = [value]
        else:
            values[name] = value
    try:
        return RunConfig(**values)
    except ConfigError as error:
        raise ConfigError(f"cell {cell.name}: {error}") from error
