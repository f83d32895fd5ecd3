"""How the cells of a study are measured: each by a scan, with a model that is loaded once for all its cells."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from byrote.cli.console import make_console, make_progress
from byrote.cli.flags import command
from byrote.cli.scan import look_first
from byrote.errors import ConfigError
from byrote.explore.monte_carlo import MonteCarloOptions, sample_windows
from byrote.models.base import LanguageModel
from byrote.models.load import open_model
from byrote.options import Settled, build, option, options_of, read_config_file, required
from byrote.scan.options import RunConfig, parse_policy
from byrote.scan.run import scan_to_folder
from byrote.scan.source import fitted
from byrote.store.columns import window_of
from byrote.store.read import read_run
from byrote.study.grid import Axis, Cell, make_axes, make_cells
from byrote.study.options import StudyConfig
from byrote.study.recipes import file_of, shrunk

if TYPE_CHECKING:
    from byrote.study.run import Plan, StudyResult


class _Loaded(NamedTuple):
    given: dict[str, Any]
    model: LanguageModel


class CellRuns:
    """Measures cells one after another, each in the folder it is given, and keeps the model of the last one."""

    def __init__(
        self,
        scans: Mapping[str, RunConfig],
        study: StudyConfig,
        document_facts: Mapping[str, Mapping[str, Any]],
        *,
        fresh: bool,
        tell: Callable[[str], None],
    ) -> None:
        self._scans, self._study, self._document_facts = scans, study, document_facts
        self._fresh, self._tell = fresh, tell
        self._loaded: _Loaded | None = None

    def measure(self, cell: Cell, folder: Path) -> None:
        """Make the cell's run, or resume it. A server, and the workers of a cluster, are opened by the scan itself."""
        config = replace(self._scans[cell.name], out=str(folder))
        with make_progress() as progress:
            is_here = not config.is_served and config.executor == "local"
            with progress.phase(f"loading {config.model}"):
                model = self._model_of(config) if is_here else None
            result = scan_to_folder(
                config,
                progress=progress,
                command_line=sys.argv,
                fresh=self._fresh,
                document_facts=self._document_facts,
                model=model,
            )
        for words in result.notes:
            self._tell(words)

    def sample(self, cell: Cell, folder: Path) -> list[dict[str, Any]]:
        """Sample a few extractable windows of a finished cell, evenly spread from the lightest to the heaviest."""
        config, stored = self._scans[cell.name], read_run(folder).results
        if "mass_lower" not in stored.columns:
            return []
        rows = chosen_rows(stored.rows(named=True), config.threshold, self._study.montecarlo_windows)
        windows = [window_of(row) for row in rows]
        if not windows:
            return []
        sized, model = fitted(config, windows), self._model_of(config)
        options = MonteCarloOptions(
            policy=config.policy,
            distance=config.distance if config.distance != "none" else "levenshtein",
            edit_budget=config.edit_budget,
            samples=self._study.montecarlo_samples,
            replicates=1,
            seed=config.seed,
            stops_when_lost=True,
        )
        sampled = sample_windows(model, windows, options, slots=sized.slots, limits=sized.limits)
        found = {one.window.window_id: one for one in sampled}
        return [_sampled_row(row, found[row["window_id"]].curve) for row in rows]

    def _model_of(self, config: RunConfig) -> LanguageModel:
        wanted = config.loading | {"model": config.model, "compile": config.compile}
        if self._loaded is None or self._loaded.given != wanted:
            self._loaded = None  # before the next one comes: two may not fit
            self._loaded = _Loaded(wanted, open_model(config.model, **config.loading))
        return self._loaded.model


def chosen_rows(rows: Sequence[Mapping[str, Any]], threshold: float, count: int) -> list[Mapping[str, Any]]:
    """`count` extractable target windows at even steps of their rank by mass; all when there are no more."""
    extractable = [row for row in rows if row["split"] == "target" and row["mass_lower"][-1] >= threshold]
    ranked = sorted(extractable, key=lambda row: (row["mass_lower"][-1], row["window_id"]))
    if len(ranked) <= count:
        return ranked
    return [ranked[round((place + 0.5) * len(ranked) / count - 0.5)] for place in range(count)]


def _sampled_row(row: Mapping[str, Any], curve: Sequence[Any]) -> dict[str, Any]:
    return {
        "window_id": row["window_id"],
        "p_verbatim": row.get("p_verbatim"),
        "mass_lower": row["mass_lower"][-1],
        "mass_upper": row["mass_upper"][-1],
        "hits": [point.hits for point in curve],
        "samples": [point.samples for point in curve],
        "evaluations": [float(point.token_evals) for point in curve],
    }


DESCRIBING = ("about", "published", "overlap", "texts", "policy")
"""What a study's file says that changes no measured number, or is an axis."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyCommand(Settled):
    file: Path = required(
        "YAML file of the study, or the name of a recipe (byrote recipes lists them).", group="text", positional=True
    )
    out: Path | None = option(
        None, "Folder of the study; an unfinished one is resumed.", group="text", default_words="out of the file"
    )
    fresh: bool = option(False, "Start over instead of resuming.", group="text", names="--fresh/--resume")
    smoke: bool = option(
        False, "Try the file on a model that is trained on the spot: two values an axis, ten windows.", group="text",
        names="--smoke",
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Prepared:
    """A study ready to run: its plan, a scan for every cell, and what is known of the documents."""

    plan: "Plan"
    scans: Mapping[str, RunConfig]
    config: StudyConfig
    document_facts: Mapping[str, Mapping[str, Any]]


@command(StudyCommand)
def study(given: StudyCommand) -> None:
    """Scan a grid of models, texts, lengths, beam widths and policies, and lay the results over each other.

    Every option of byrote scan may stand in the file; one with a list of values is an axis of the grid. Run the same
    command again to go on with an interrupted study.
    """
    values = read_config_file(file_of(given.file), StudyConfig, RunConfig)
    out = given.out or values.pop("out", None)
    if out is None:
        raise ConfigError("out is missing; give --out runs/study, or a line `out:` in the file.")
    values.pop("out", None)
    facts: dict[str, dict[str, Any]] = {}
    if given.smoke:
        values, facts = smoke_values(values, Path(out))
    prepared = prepare(values, place=str(given.file), document_facts=facts)
    for scan in prepared.scans.values():
        look_first(model="" if scan.is_served else scan.model, texts=(*scan.text, *scan.control))
    console, out = make_console(stderr=True), Path(out)
    result = measure_study(prepared, out, fresh=given.fresh, tell=lambda words: console.print(words, soft_wrap=True))
    page = out / "report" / "index.html"
    if result.was_complete:
        console.print(f"{out} was complete already; nothing was measured. --fresh starts over.", soft_wrap=True)
    if not result.was_complete or not page.exists():
        from byrote.report.page import write_page
        from byrote.study.report import read

        with console.status("writing the report"):
            write_page([read([out])], page.parent)
    console.print(f"Report: {page}", soft_wrap=True)
    console.print(f"See it with: byrote show {out}", soft_wrap=True)


def prepare(values: Mapping[str, Any], *, place: str, document_facts: Mapping[str, Mapping[str, Any]]) -> Prepared:
    """Axes, cells and a checked configuration for each of them, before anything is measured."""
    from byrote.study.run import Plan

    own = {item.name for item in fields(StudyConfig)}
    config = build(StudyConfig, {name: value for name, value in values.items() if name in own}, place=place)
    axes = make_axes(_axes(values, config))
    cells = make_cells(axes)
    fixed = {name: value for name, value in values.items() if name not in own and name not in {a.name for a in axes}}
    fixed = rooms(axes, fixed) | fixed
    scans = {cell.name: scan_of(cell, fixed) for cell in cells}
    if config.montecarlo_windows and any(scan.is_served for scan in scans.values()):
        raise ConfigError("montecarlo_windows samples models on this machine, not behind a server; leave it out.")
    shared = next(iter(scans.values())).identity()
    set_by_axes = {name for axis in axes for name in _set_by(axis.name)}
    sampled = {name: value for name, value in asdict(config).items() if name.startswith("montecarlo")}
    plan = Plan(
        axes=axes,
        cells=cells,
        fixed={name: value for name, value in shared.items() if name not in set_by_axes},
        sampling=sampled,
        described={name: value for name, value in asdict(config).items() if name in DESCRIBING},
    )
    return Prepared(plan, scans, config, document_facts)


def _axes(values: Mapping[str, Any], config: StudyConfig) -> dict[str, list[str]]:
    """Every scan option that has a list where it takes one value; models, texts and policies always."""
    known = options_of(RunConfig)
    axes: dict[str, list[str]] = {}
    if not values.get("model"):
        raise ConfigError("model is missing; give the study one model or a list of them.")
    for name, value in values.items():
        if name == "model" or (name in known and isinstance(value, list) and not known[name].kind.is_list):
            axes[name] = [_word(each) for each in (value if isinstance(value, list) else [value])]
    if config.texts:
        if values.get("text") or values.get("pairs"):
            raise ConfigError("the study has both texts and text or pairs; texts make cells of their own, choose one.")
        axes["texts"] = list(config.texts)
    if config.policy:
        axes["policy"] = list(config.policy)
    return axes


def rooms(axes: Sequence[Axis], fixed: Mapping[str, Any]) -> dict[str, int]:
    """Room for the longest prefix and target of the grid, so that all cells of a model have the same windows."""
    swept = {axis.name: axis.values for axis in axes if axis.is_swept and not fixed.get("pairs")}
    return {
        room: max(int(value) for value in swept[lengths])
        for room, lengths in (("cut_prefix_tokens", "prefix_tokens"), ("cut_suffix_tokens", "suffix_tokens"))
        if lengths in swept and all(value.isdecimal() for value in swept[lengths])
    }


def _word(value: Any) -> str:
    if isinstance(value, dict | list):
        raise ConfigError(f"{value!r} is a value of an axis; write plain values.")
    return "none" if value is None else str(value)


def _set_by(axis: str) -> tuple[str, ...]:
    return {"policy": ("temperature", "top_k", "top_p"), "texts": ("text",)}.get(axis, (axis,))


def scan_of(cell: Cell, fixed: Mapping[str, Any]) -> RunConfig:
    """The options of a cell's scan, checked; an error names the cell."""
    values = dict(fixed)
    for name, value in cell.settings.items():
        if name == "policy":
            policy = parse_policy(value)
            values |= {"temperature": policy.temperature, "top_k": policy.top_k, "top_p": policy.top_p}
        else:
            values["text" if name == "texts" else name] = [value] if name == "texts" else value
    try:
        return RunConfig(**values)
    except ConfigError as error:
        raise ConfigError(f"cell {cell.name}: {error}") from error


def measure_study(prepared: Prepared, out: Path, *, fresh: bool, tell: Callable[[str], None]) -> "StudyResult":
    """Measure the cells that are missing."""
    from byrote.study.run import run_study

    runs = CellRuns(prepared.scans, prepared.config, prepared.document_facts, fresh=fresh, tell=tell)
    return run_study(
        prepared.plan,
        out,
        measure=runs.measure,
        sample_windows=runs.sample if prepared.config.montecarlo_windows else None,
        tell=tell,
        command_line=sys.argv,
        fresh=fresh,
    )


def smoke_values(values: Mapping[str, Any], out: Path) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """The file's study on two tiny models and their passages, which are written beside the study."""
    import torch

    from byrote.lab.pocket import smaller_tiny_model, tiny_model

    torch.set_num_threads(1)
    models = (smaller_tiny_model(), tiny_model())
    files = models[1].write_texts(out.parent / f"{out.name}-texts")
    targets = sorted(map(str, files.targets.iterdir()))
    names = {passage.name: {"copies": passage.copies, "kind": str(passage.kind)} for passage in models[1].targets}
    small = shrunk(
        values, models=tuple(str(model.path) for model in models), texts=tuple(targets), control=str(files.controls)
    )
    return small, {f"{name}.txt": facts for name, facts in names.items()}
