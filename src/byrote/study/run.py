"""Running a study: a run for every missing cell, each in a folder of its own, and one row a cell.

A model is loaded once for all its cells. An interrupted study keeps its finished cells and resumes the unfinished one.

A study as it is read: its plan and every finished cell as a run. An unfinished study shows what it has.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import polars as pl

from byrote.errors import RunError
from byrote.longform.run import perform_audit
from byrote.models.base import LanguageModel
from byrote.models.load import open_model
from byrote.prior.options import PriorConfig
from byrote.prior.run import Say, prior_to_folder
from byrote.progress import Progress, SilentProgress
from byrote.report.analysis.rates import CriterionRate, rates_by_criterion
from byrote.report.view import RunView, load_view
from byrote.scan.mc import sample_to_folder
from byrote.scan.options import McOptions, RunConfig
from byrote.scan.run import scan_to_folder
from byrote.store.columns import Column, Schema
from byrote.store.files import hash_file, make_folder
from byrote.store.manifest import read_manifest
from byrote.store.read import StoredRun, read_run, verify_run
from byrote.store.resume import RunSession
from byrote.study.plan import OUTERMOST, AuditCell, Axis, Cell, StudyConfig, StudyPlan, base_cells, make_cells

SHORT = {"prefix_tokens": "prefix", "suffix_tokens": "target", "beam_width": "beam", "edit_budget": "ε ≤"}
"""Axes as labels of lines and rows name them."""


@dataclass(frozen=True)
class MeasuredCell:
    """A finished scan of a study, and the rates of that run."""

    cell: Cell
    view: RunView
    rates: list[CriterionRate]

    @property
    def evaluations(self) -> float:
        """Token evaluations a window."""
        return float(self.view.results["token_evals"].mean())  # type: ignore[arg-type]


@dataclass(frozen=True)
class RecordedCell:
    """A finished prior run or audit of a study."""

    cell: Cell
    path: Path
    manifest: Mapping[str, Any]


@dataclass(frozen=True)
class StudyView:
    path: Path
    measurement: str
    axes: tuple[Axis, ...]
    config: StudyConfig
    planned: int
    cells: tuple[MeasuredCell, ...]
    """Empty unless cells are scans."""
    recorded: tuple[RecordedCell, ...]
    """Empty where they are."""
    sampled: Mapping[str, list[dict[str, Any]]]
    """cell → its windows sampled by Monte Carlo."""
    manifest: Mapping[str, Any] | None

    @property
    def swept(self) -> tuple[Axis, ...]:
        """Axes with several values: what the study compares."""
        return tuple(axis for axis in self.axes if axis.is_swept)

    def base(self) -> list[MeasuredCell]:
        """The first finished cell of every model and text, all else at its first value."""
        chosen = {cell.name for cell in base_cells(self.axes, [one.cell for one in self.cells])}
        return [one for one in self.cells if one.cell.name in chosen]

    def label_of(self, cell: Cell, *, without: Sequence[str] = ()) -> str:
        """The cell's values on the swept axes, except those named in `without`."""
        parts = [
            axis.label_of(cell.settings[axis.name])
            if axis.name in (*OUTERMOST, "policy")
            else f"{SHORT.get(axis.name, axis.name.replace('_', ' '))} {cell.settings[axis.name]}"
            for axis in self.swept
            if axis.name not in without
        ]
        return ", ".join(parts) or "all cells"


def read_study(path: Path) -> StudyView:
    """The study in `path`, every cell checked against what the study bound."""
    found = verify_run(path)
    axes, rows = _axes(found.identity), _rows(path)
    cells, measured, recorded, sampled = make_cells(axes), [], [], {}
    for cell in cells:
        if cell.name not in rows:
            continue
        _require_measured(path, cell, rows[cell.name])
        folder = cell_folder(path, cell)
        if found.identity["measurement"] != "scan":
            recorded.append(RecordedCell(cell, folder, _finished_manifest(folder)))
            continue
        view = load_view(folder)
        measured.append(MeasuredCell(cell, view, rates_by_criterion(view.population, view.threshold)))
        if (sampled_folder(path, cell) / "manifest.json").exists():
            samples = read_run(sampled_folder(path, cell))
            if samples.identity["scan"] == rows[cell.name]["run_id"]:
                sampled[cell.name] = samples.results.rows(named=True)
    return StudyView(
        path=Path(path),
        measurement=found.identity["measurement"],
        axes=axes,
        config=StudyConfig(**(found.manifest["config"] if found.manifest else {})),
        planned=len(cells),
        cells=tuple(measured),
        recorded=tuple(recorded),
        sampled=sampled,
        manifest=found.manifest,
    )


def check_cells(study: StoredRun) -> Iterator[str]:
    """One line a file of every cell that was begun, and of the windows sampled; a RunError names what does not fit."""
    path = study.path
    rows = {} if not study.result_files else _rows(path)
    for cell in make_cells(_axes(study.identity)):
        if cell.name in rows:
            _require_measured(path, cell, rows[cell.name])
        for folder in (cell_folder(path, cell), sampled_folder(path, cell)):
            if any((folder / name).exists() for name in ("identity.json", "manifest.json")):
                yield from (f"{folder.relative_to(path).as_posix()}/{line}" for line in verify_run(folder).checked)


def _axes(identity: Mapping[str, Any]) -> tuple[Axis, ...]:
    return tuple(Axis(name, tuple(entries)) for name, entries in identity["axes"].items())


def _rows(path: Path) -> dict[str, dict[str, Any]]:
    """Finished cell → its row."""
    return {row["window_id"]: row for row in read_run(path).results.rows(named=True)}


def _require_measured(path: Path, cell: Cell, row: Mapping[str, Any]) -> None:
    manifest = cell_folder(path, cell) / "manifest.json"
    is_same = json.loads(row["settings"]) == dict(cell.settings)
    if not is_same or not manifest.exists() or hash_file(manifest) != row["manifest_sha256"]:
        raise RunError(f"{manifest} is not of the run that the study measured; restore it, or start over with --fresh.")


CELL_COLUMNS: Schema = (
    Column("window_id", "text", is_required=True),
    Column("settings", "text", is_required=True),
    Column("run_id", "text", is_required=True),
    Column("weights_hash", "text"),
    Column("windows", "int64"),
    Column("token_evals", "int64"),
    Column("manifest_sha256", "text", is_required=True),
)
"""`window_id` is the cell's name. Audits have neither windows nor token evaluations."""


def run_study(
    plan: StudyPlan,
    out: Path,
    *,
    progress: Progress | None = None,
    say: Say = lambda _: None,
    command_line: Sequence[str] = (),
    fresh: bool = False,
) -> bool:
    """Run or resume the study at `out`; whether it was complete already.

    `say` gets a sentence for every cell and every remark of its scan.
    """
    with RunSession.open(
        out, kind="study", identity=plan.identity(), schema=CELL_COLUMNS, fresh=fresh, part_rows=1
    ) as session:
        if session.is_complete:
            return True
        make_folder(out / "cells", inside=out)
        runner = _CellRunner(plan, out, progress or SilentProgress(), say, command_line, fresh)
        finished, sampled = session.finished_ids(), []
        base = base_cells(plan.axes, plan.cells) if plan.config.montecarlo_windows else ()
        for number, cell in enumerate(plan.cells, start=1):
            if cell.name not in finished:
                say(f"cell {number} of {len(plan.cells)}: {cell.name}")
                runner.measure(cell)
                session.add(_cell_row(cell, cell_folder(out, cell)))
            if cell in base:  # at once, while the model is loaded
                sampled.append(runner.sample(cell))
        _complete(session, plan, sampled, command_line)
    return False


def cell_folder(out: Path, cell: Cell) -> Path:
    return Path(out) / "cells" / cell.name


def sampled_folder(out: Path, cell: Cell) -> Path:
    return Path(out) / "montecarlo" / cell.name


@dataclass(slots=True)
class _CellRunner:
    """Scans and samples cells one after another, keeping the model of the last one."""

    plan: StudyPlan
    out: Path
    progress: Progress
    say: Say
    command_line: Sequence[str]
    fresh: bool
    _model: LanguageModel | None = field(default=None, init=False)
    _loaded_with: dict[str, Any] = field(default_factory=dict, init=False)

    def measure(self, cell: Cell) -> None:
        """Make the cell's run, or resume it. Servers, and the workers of a cluster, are opened by the run itself."""
        config, folder = self.plan.configs[cell.name], cell_folder(self.out, cell)
        if isinstance(config, AuditCell):
            perform_audit(replace(config.command, out=folder), config.options, command_line=tuple(self.command_line))
            return
        config = replace(config, out=str(folder))
        is_elsewhere = isinstance(config, RunConfig) and (config.is_served or config.executor != "local")
        with self.progress.phase(f"loading {config.model}"):
            model = None if is_elsewhere else self._load(config)
        how: dict[str, Any] = {"progress": self.progress, "command_line": self.command_line, "fresh": self.fresh}
        if isinstance(config, PriorConfig):
            prior_to_folder(config, model=model, say=self.say, **how)
            return
        for words in scan_to_folder(config, model=model, **how).notes:
            self.say(words)

    def sample(self, cell: Cell) -> Path | None:
        """The manifest of the cell's samples, drawn as by `byrote mc`; None where no window is extractable."""
        config, run = self.plan.configs[cell.name], read_run(cell_folder(self.out, cell))
        assert isinstance(config, RunConfig)  # the plan has no sampling for others
        window_ids = _windows_to_sample(run.results, config.threshold, self.plan.config.montecarlo_windows)
        if not window_ids:
            return None
        folder = sampled_folder(self.out, cell)
        manifest = folder / "manifest.json"
        is_finished = manifest.exists() and read_run(folder).identity["scan"] == run.run_id
        if self.fresh or not is_finished:
            self.say(f"sampling windows of {cell.name}")
            make_folder(folder.parent, inside=self.out)
            options = McOptions(
                run=run.path,
                out=folder,
                samples=self.plan.config.montecarlo_samples * self.plan.config.montecarlo_replicates,
                replicates=self.plan.config.montecarlo_replicates,
                interval="exact",
                seed=config.seed,
                slots=config.slots,
                device=config.device,
            )
            model = self._load(config)
            sample_to_folder(
                options, window_ids=window_ids, model=model, command_line=self.command_line, fresh=self.fresh
            )
        return manifest

    def _load(self, config: RunConfig | PriorConfig) -> LanguageModel:
        wanted = config.loading | {"model": config.model, "compile": isinstance(config, RunConfig) and config.compile}
        if self._model is None or self._loaded_with != wanted:
            self._model = None  # before the next one comes: two may not fit
            self._model, self._loaded_with = open_model(config.model, **config.loading), wanted
        return self._model


def _windows_to_sample(results: pl.DataFrame, threshold: float, count: int) -> list[str]:
    """`count` extractable target windows at even steps of their rank by mass; all when there are no more."""
    if "mass_lower" not in results.columns:
        return []
    mass = pl.col("mass_lower").list.last()
    extractable = results.filter(pl.col("split") == "target", mass >= threshold)
    ranked = extractable.sort(mass, "window_id")["window_id"].to_list()
    if len(ranked) <= count:
        return ranked
    return [ranked[round((place + 0.5) * len(ranked) / count - 0.5)] for place in range(count)]


def _cell_row(cell: Cell, folder: Path) -> dict[str, Any]:
    manifest = _finished_manifest(folder)
    return {
        "window_id": cell.name,
        "settings": json.dumps(dict(cell.settings), ensure_ascii=False),
        "run_id": manifest["run_id"],
        "weights_hash": manifest["model"].get("weights_hash"),
        "windows": manifest["totals"].get("windows"),
        "token_evals": manifest["totals"].get("token_evals"),
        "manifest_sha256": hash_file(folder / "manifest.json"),
    }


def _complete(
    session: RunSession, plan: StudyPlan, sampled: Sequence[Path | None], command_line: Sequence[str]
) -> None:
    """Bind every cell's manifest, after all cells were checked to have seen the same texts and weights."""
    folders = [cell_folder(session.path, cell) for cell in plan.cells]
    contents = [_finished_manifest(folder) for folder in folders]
    require_same_sources(plan.cells, contents)
    manifest = {
        "config": asdict(plan.config),
        "texts": contents[0]["texts"],
        "model": {"name": ", ".join(dict.fromkeys(str(content["model"]["name"]) for content in contents))},
        "device": contents[0]["device"],
        "seed": contents[0]["seed"],
        "command_line": command_line,
        "timings": {"measuring_seconds": sum(content["timings"]["measuring_seconds"] for content in contents)},
        "totals": {
            "cells": len(plan.cells),
            "token_evals": sum(content["totals"].get("token_evals", 0) for content in contents),
        },
        **plan.identity(),
    }
    session.bind(*(folder / "manifest.json" for folder in folders), *(path for path in sampled if path is not None))
    session.complete(manifest, order=[cell.name for cell in plan.cells])


def require_same_sources(cells: Sequence[Cell], manifests: Sequence[Mapping[str, Any]]) -> None:
    """One name stands for one text and one model in all cells: a study that was resumed after a file was edited does
    not compare the old with the new."""
    seen: dict[str, tuple[str, str]] = {}
    for cell, manifest in zip(cells, manifests, strict=True):
        given = cell.settings.get("texts", cell.settings.get("book", "all"))
        hashes = {f"text {name}": entry["content_hash"] for name, entry in manifest["texts"].items()}
        hashes[f"the set of texts ({given})"] = ", ".join(sorted(manifest["texts"]))
        hashes[f"model {manifest['model']['name']}"] = str(manifest["model"].get("weights_hash"))
        for what, digest in hashes.items():
            known, earlier = seen.setdefault(what, (digest, cell.name))
            if known != digest:
                raise RunError(
                    f"{what} was not the same in cells {earlier} and {cell.name}: it was changed between them. "
                    "Restore it, or start over with --fresh."
                )


def _finished_manifest(folder: Path) -> dict[str, Any]:
    manifest = read_manifest(folder / "manifest.json")
    if manifest is None:
        raise RunError(f"{folder} is not finished; run the study again to go on from there.")
    return manifest
