"""The plan of a study: axes with their values, a cell for every combination of them, and what every cell measures.

Also the recipes that come with byrote, published experiments as files of studies, and a small version of any study.

A study's file holds the options of a scan (or of a prior run or an audit) and a few of its own; an option of these that
takes one value and has a list of them is an axis.
"""

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path, PurePath
from typing import Any, Literal

from byrote.errors import ConfigError
from byrote.longform.options import PROFILES, AuditCommand, AuditOptions
from byrote.options import (
    Option,
    build,
    option,
    options_of,
    profile_path,
    read_config_file,
    require_known,
    settable_of,
    settle,
)
from byrote.prior.options import PriorConfig
from byrote.scan.options import RunConfig, parse_policy
from byrote.study.published import MEASURES, Published, expanded


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyConfig:
    """Options that a study has and a cell has not."""

    measurement: Literal["scan", "prior", "audit"] = option("scan", "What every cell is.", group="text")
    profile: str = option(
        "", "Settings of a published audit by name; those of the file win.", group="audit", default_words="none"
    )
    about: str = option("", "What the study asks, in a sentence.", group="text")
    texts: tuple[str, ...] = option((), "Texts that each make cells of their own; --text measures several together.",
                                    group="text")  # fmt: skip
    policy: tuple[str, ...] = option(
        (), "Policies that each make cells of their own, as k=40 or t=0.7+k=40.", group="policy", commas=True
    )
    overlap: float = option(
        0.5, "Windows of two cells are a pair if their targets share this part of the characters of either.",
        group="text", above=0, at_most=1,
    )  # fmt: skip
    montecarlo_windows: int = option(
        0, "Extractable windows sampled in the first cell of every model, to see sampling converge.",
        group="estimates", at_least=0,
    )  # fmt: skip
    montecarlo_samples: int = option(1000, "Continuations sampled of each.", group="estimates", at_least=10)
    montecarlo_replicates: int = option(1, "Independent groups of as many samples.", group="estimates", at_least=1)
    machine: tuple[str, ...] = option(
        (), "Machine settings of every model, in their order: device=map, batch_windows=64.", group="machine"
    )
    published: tuple[Published, ...] = ()
    """Numbers to stand beside one's own; in a file `over` and `values` give one for every value of an axis."""
    changed: tuple[str, ...] = option((), "What the command line changed of the file, in words.", group="text")

    def __post_init__(self) -> None:
        settle(self)
        for one in self.published:
            if not one.source:
                raise ConfigError(
                    f"a published {one.measure} of {one.value:g} has no source; name paper, table and page."
                )


OUTERMOST = ("model", "texts", "book")
"""Cells of one model follow each other. Values of these axes are names or paths."""
MOST_CELLS = 10_000
NAME_CHARACTERS = 24
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
class AuditCell:
    """The options of an audit that is a cell."""

    command: AuditCommand
    options: AuditOptions

    @property
    def inputs(self) -> tuple[str, ...]:
        """The model, if it is on this machine, and the texts."""
        command = self.command
        return ("" if command.endpoint else command.model, str(command.book), *map(str, command.control))

    def identity(self) -> dict[str, Any]:
        return self.options.identity()


CellConfig = RunConfig | PriorConfig | AuditCell
HOMES: dict[str, tuple[type, ...]] = {
    "scan": (RunConfig,),
    "prior": (PriorConfig,),
    "audit": (AuditCommand, AuditOptions),
}
"""What a cell is → where its options are declared."""


@dataclass(frozen=True, slots=True)
class StudyPlan:
    """A checked study: nothing is measured before every cell's options are valid."""

    axes: tuple[Axis, ...]
    cells: tuple[Cell, ...]
    configs: Mapping[str, CellConfig]
    """Cell name → what it measures."""
    config: StudyConfig

    def identity(self) -> dict[str, Any]:
        """All that decides the numbers except models and texts, whose hashes are in the runs of the cells."""
        set_by_axes = {name for axis in self.axes for name in OPTIONS_OF_AXIS.get(axis.name, (axis.name,))}
        shared = next(iter(self.configs.values())).identity()
        sampling = ("montecarlo_windows", "montecarlo_samples", "montecarlo_replicates")
        return {
            "measurement": self.config.measurement,
            "axes": {axis.name: list(axis.values) for axis in self.axes},
            "fixed": {name: value for name, value in shared.items() if name not in set_by_axes},
            "sampling": {name: getattr(self.config, name) for name in sampling},
        }


def plan_study(values: Mapping[str, Any], *, place: str) -> StudyPlan:
    """The plan that a study's file describes; `place` names the file in error messages."""
    values = _with_profile(values)
    config, axes = config_and_axes(values, place=place)
    require_known(values, (*options_of(StudyConfig), *cell_options(config.measurement)), place=place)
    own = {item.name for item in fields(StudyConfig)} | {axis.name for axis in axes}
    fixed = {name: value for name, value in values.items() if name not in own}
    if config.measurement == "scan":
        fixed = _capacities(axes, fixed) | fixed
    machines = _machines(config, axes)
    cells = make_cells(axes)
    configs = {
        cell.name: _config_of(cell, fixed | machines.get(cell.settings["model"], {}), config.measurement, place=place)
        for cell in cells
    }
    if config.montecarlo_windows and any(not isinstance(one, RunConfig) or one.is_served for one in configs.values()):
        raise ConfigError(
            "montecarlo_windows samples scanned models on this machine, none behind a server; leave it out."
        )
    return StudyPlan(axes, cells, configs, config)


def read_study_file(given: Path) -> dict[str, Any]:
    """The values of a study's file: a path, or where there is none the name of a recipe."""
    path = given.expanduser()
    is_path = path.is_file() or len(path.parts) != 1 or (path.suffix and path.name not in recipe_files())
    homes = (home for own in HOMES.values() for home in own)
    return read_config_file(path if is_path else recipe_file(path.name), StudyConfig, *homes)


def _with_profile(values: Mapping[str, Any]) -> Mapping[str, Any]:
    name = values.get("profile")
    return values if not name else read_config_file(profile_path(name, PROFILES), AuditOptions) | dict(values)


def cell_options(measurement: str) -> dict[str, Option]:
    """By name; those of an audit's `settings` among them, as `--set` names them."""
    homes = HOMES.get(measurement, ())
    return {one.name: one for home in homes for one in (*options_of(home).values(), *settable_of(home))}


def config_and_axes(values: Mapping[str, Any], *, place: str) -> tuple[StudyConfig, tuple[Axis, ...]]:
    """The study's own options, its published numbers among them, and its axes; options of cells are not checked."""
    own = {item.name for item in fields(StudyConfig)} - {"published"}
    config = build(StudyConfig, {name: value for name, value in values.items() if name in own}, place=place)
    axes = make_axes(_axis_values(values, config))
    published = expanded(values.get("published") or [], {axis.name: axis.values for axis in axes})
    config = replace(config, published=tuple(published))
    for one in config.published:
        if MEASURES[one.measure].of != config.measurement:
            raise ConfigError(f"published has the measure {one.measure}, which no {config.measurement} has.")
    return config, axes


def _machines(config: StudyConfig, axes: Sequence[Axis]) -> dict[str, dict[str, str]]:
    """Model → its machine settings, which decide no number."""
    given, models, known = config.machine, axes[0].values, cell_options(config.measurement)
    if given and len(given) != len(models):
        raise ConfigError(f"machine has {len(given)} entries for {len(models)} models; give one for each.")
    found = {}
    for model, entry in zip(models, given, strict=False):
        pairs = [part.partition("=") for part in entry.split(",")]
        settings = {name.strip().replace("-", "_"): value.strip() for name, _, value in pairs}
        for name in settings:
            if name not in known or known[name].spec.group != "machine" or known[name].spec.in_identity:
                raise ConfigError(
                    f"machine names {name}, which is no setting of the machine alone; see byrote {config.measurement} "
                    "--help-all."
                )
        found[model] = settings
    return found


def with_changes(values: Mapping[str, Any], changes: Mapping[str, Any], *, place: str) -> dict[str, Any]:
    """The values of a study's file with some replaced.

    Models and texts take the places of the file's, in order, and numbers published about those are compared with them;
    machine settings of the file's models are left out then. Other changes are named in `changed`, since a number that
    was published under other settings may be another quantity.
    """
    values = _with_profile(values)
    config, axes = config_and_axes(values, place=place)
    known = cell_options(config.measurement)
    stand_ins = {
        axis.name: dict(zip(axis.values, changes.get(axis.name, axis.values), strict=False))
        for axis in axes
        if axis.name in OUTERMOST
    }
    published = []
    for one in config.published:
        settings = {name: stand_ins.get(name, {}).get(value, value) for name, value in one.settings.items()}
        where = ", ".join(f"{name}={value}" for name, value in settings.items())
        published.append(asdict(one) | {"where": where, "about": one.about or one.where})
    words = tuple(
        f"{name} is {_in_words(value)} instead of {_in_words(values[name]) if name in values else 'the default'}"
        for name, value in changes.items()
        if name not in PLACES and value != values.get(name) and (name not in known or _decides_numbers(known[name]))
    )
    machine = [] if "model" in changes else [
        ", ".join(part for part in entry.split(",") if part.partition("=")[0].strip() not in changes) or "device=auto"
        for entry in config.machine
    ]  # fmt: skip
    own = {"published": published, "changed": [*config.changed, *words]}
    return dict(values) | {"machine": machine} | dict(changes) | own


def _decides_numbers(one: Option) -> bool:
    """An audit goes on under another limit of turns, and finds more."""
    return one.spec.in_identity or one.spec.group == "audit"


def _in_words(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


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
    known = cell_options(config.measurement)
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


def _config_of(cell: Cell, fixed: Mapping[str, Any], measurement: str, *, place: str) -> CellConfig:
    """The options of a cell, checked; an error names the cell. Its folder is that of the study that is run."""
    values = dict(fixed) | {"out": cell.name}
    for name, value in cell.settings.items():
        if name == "policy":
            policy = parse_policy(value)
            values |= {"temperature": policy.temperature, "top_k": policy.top_k, "top_p": policy.top_p}
        elif name == "texts":
            values["text"] = [value]
        else:
            values[name] = value
    for one in cell_options(measurement).values():
        if one.owner is not None and one.name in values:
            values[one.owner] = dict(values.get(one.owner, {})) | {one.name: values.pop(one.name)}
    try:
        made = [
            build(home, {name: value for name, value in values.items() if name in options_of(home)}, place=place)
            for home in HOMES[measurement]
        ]
        return AuditCell(*made) if measurement == "audit" else made[0]
    except ConfigError as error:
        raise ConfigError(f"cell {cell.name}: {error}") from error


def recipe_files() -> dict[str, Path]:
    """Name → file, in order of names."""
    return {path.stem: path for path in sorted((Path(__file__).parent / "recipes").glob("*.yaml"))}


def recipe_file(name: str) -> Path:
    known = recipe_files()
    if name not in known:
        raise ConfigError(f"there is neither a file nor a recipe {name}; the recipes are {', '.join(known)}.")
    return known[name]


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
    "prior_prefixes": ("20", "20"),
    "prefix_words": ("12", "12"),
    "target_words": ("8", "8"),
    "max_turns": ("2", "2"),
}
"""Option → the value in a smoke test, and the second one where it is an axis."""
PLACES = (
    "model", "text", "texts", "book", "control", "pairs", "prior_text", "spans", "endpoint", "revision", "out",
    "device", "dtype", "limit", "machine",
)  # fmt: skip


def shrunk(
    values: Mapping[str, Any], *, models: tuple[str, ...], texts: tuple[str, ...], control: str
) -> dict[str, Any]:
    """The values of a study's file, small, and about these models and texts instead of its own."""
    known = cell_options(values.get("measurement", "scan"))
    small: dict[str, Any] = {name: first for name, (first, _) in SMALL.items() if name in known}
    for name, value in values.items():
        if name in ("published", "sweep"):
            small[name] = value
        elif isinstance(value, list) and name not in PLACES:
            small[name] = list(SMALL.get(name, value)[: min(len(value), 2)])
        elif name not in PLACES:
            small[name] = SMALL[name][0] if name in SMALL and int(value) > 0 else value
    wanted = len(values["model"]) if isinstance(values.get("model"), list) else 1
    small |= {"model": list(models[: min(wanted, 2)]), "control": [control], "device": "cpu"}
    about = f"A smoke test on tiny models, whose numbers stand for nothing. {values.get('about') or ''}"
    small["about"] = about.strip()
    if "prior_text" in known:
        return small | {"text": list(texts), "prior_text": list(texts)}
    if "book" in known:
        books = texts[:2] if isinstance(values.get("book"), list) else texts[:1]
        local = {"style": "text", "continue_prompt": "plain", "request_fields": "{}"}
        return small | local | {"book": list(books), "frequency_penalty": "none", "presence_penalty": "none"}
    is_axis = isinstance(values.get("texts"), list) and len(values["texts"]) > 1
    return small | ({"texts": list(texts[:2])} if is_axis else {"text": list(texts)})
