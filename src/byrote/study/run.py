"""Running a study: a scan for every missing cell, each in a run folder of its own, and one row a cell.

A model is loaded once for all its cells. An interrupted study keeps its finished cells and resumes the unfinished one.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from byrote.errors import RunError
from byrote.explore.monte_carlo import MonteCarloOptions, sample_windows
from byrote.models.base import LanguageModel
from byrote.models.load import open_model
from byrote.progress import Progress, SilentProgress
from byrote.scan.options import RunConfig
from byrote.scan.run import scan_to_folder
from byrote.scan.source import fitted
from byrote.store.columns import Column, Schema, window_of
from byrote.store.files import hash_file, make_folder
from byrote.store.manifest import read_manifest
from byrote.store.read import read_run
from byrote.store.session import RunSession
from byrote.study.plan import Cell, StudyPlan, base_cells

KIND = "study"
SAMPLED_KIND = "study_montecarlo"
CELL_COLUMNS: Schema = (
    Column("window_id", "text", is_required=True),
    Column("settings", "text", is_required=True),
    Column("run_id", "text", is_required=True),
    Column("weights_hash", "text"),
    Column("windows", "int64", is_required=True),
    Column("token_evals", "int64", is_required=True),
    Column("manifest_sha256", "text", is_required=True),
)
"""`window_id` is the cell's name."""
SAMPLED_COLUMNS: Schema = (
    Column("window_id", "text", is_required=True),
    Column("p_verbatim", "float64"),
    Column("mass_lower", "float64", is_required=True),
    Column("mass_upper", "float64", is_required=True),
    Column("hits", "list[int32]", is_required=True),
    Column("samples", "list[int32]", is_required=True),
    Column("evaluations", "list[float64]", is_required=True),
)
"""A window sampled by Monte Carlo: hits of the first samples, of more, of all, beside its certified bounds."""

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class StudyResult:
    path: Path
    was_complete: bool


def run_study(
    plan: StudyPlan,
    out: Path,
    *,
    progress: Progress | None = None,
    say: Say = lambda _: None,
    command_line: Sequence[str] = (),
    fresh: bool = False,
) -> StudyResult:
    """Run or resume the study at `out`. `say` gets a sentence for every cell and every remark of its scan."""
    with RunSession.open(
        out, kind=KIND, identity=plan.identity(), schema=CELL_COLUMNS, fresh=fresh, part_rows=1
    ) as session:
        if session.is_complete:
            return StudyResult(session.path, was_complete=True)
        make_folder(out / "cells", inside=out)
        runner = _CellRunner(plan, out, progress or SilentProgress(), say, command_line, fresh)
        finished, sampled = session.finished_ids(), []
        base = base_cells(plan.axes, plan.cells) if plan.config.montecarlo_windows else ()
        for number, cell in enumerate(plan.cells, start=1):
            if cell.name not in finished:
                say(f"cell {number} of {len(plan.cells)}: {cell.name}")
                runner.scan(cell)
                session.add(_cell_row(cell, cell_folder(out, cell)))
            if cell in base:  # at once, while the model is loaded
                sampled.append(runner.sample(cell))
        _complete(session, plan, sampled, command_line)
    return StudyResult(session.path, was_complete=False)


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

    def scan(self, cell: Cell) -> None:
        """Make the cell's run, or resume it. A server, and the workers of a cluster, are opened by the scan itself."""
        config = replace(self.plan.scans[cell.name], out=str(cell_folder(self.out, cell)))
        is_here = not config.is_served and config.executor == "local"
        with self.progress.phase(f"loading {config.model}"):
            model = self._load(config) if is_here else None
        result = scan_to_folder(
            config,
            progress=self.progress,
            command_line=self.command_line,
            fresh=self.fresh,
            document_facts=self.plan.document_facts,
            model=model,
        )
        for words in result.notes:
            self.say(words)

    def sample(self, cell: Cell) -> Path:
        """The manifest of a cell's sampled windows, which are sampled unless they were before."""
        run_id, sampling = _finished_manifest(cell_folder(self.out, cell))["run_id"], self.plan.sampling
        folder, identity = sampled_folder(self.out, cell), {"run": run_id, "sampling": sampling}
        make_folder(folder.parent, inside=self.out)
        with RunSession.open(
            folder, kind=SAMPLED_KIND, identity=identity, schema=SAMPLED_COLUMNS, fresh=self.fresh
        ) as session:
            if not session.is_complete:
                self.say(f"sampling windows of {cell.name}")
                session.complete_with(self._sampled_rows(cell), {"config": sampling, "run": run_id})
        return folder / "manifest.json"

    def _sampled_rows(self, cell: Cell) -> list[dict[str, Any]]:
        config, stored = self.plan.scans[cell.name], read_run(cell_folder(self.out, cell)).results
        if "mass_lower" not in stored.columns:
            return []
        rows = _rows_to_sample(stored.rows(named=True), config.threshold, self.plan.config.montecarlo_windows)
        if not rows:
            return []
        windows = [window_of(row) for row in rows]
        sized = fitted(config, windows)
        options = MonteCarloOptions(
            policy=config.policy,
            distance=config.distance if config.distance != "none" else "levenshtein",
            edit_budget=config.edit_budget,
            samples=self.plan.config.montecarlo_samples,
            replicates=1,
            seed=config.seed,
            stops_when_lost=True,
        )
        sampled = sample_windows(self._load(config), windows, options, slots=sized.slots, limits=sized.limits)
        curves = {one.window.window_id: one.curve for one in sampled}
        return [
            {
                "window_id": row["window_id"],
                "p_verbatim": row.get("p_verbatim"),
                "mass_lower": row["mass_lower"][-1],
                "mass_upper": row["mass_upper"][-1],
                "hits": [point.hits for point in curves[row["window_id"]]],
                "samples": [point.samples for point in curves[row["window_id"]]],
                "evaluations": [float(point.token_evals) for point in curves[row["window_id"]]],
            }
            for row in rows
        ]

    def _load(self, config: RunConfig) -> LanguageModel:
        wanted = config.loading | {"model": config.model, "compile": config.compile}
        if self._model is None or self._loaded_with != wanted:
            self._model = None  # before the next one comes: two may not fit
            self._model, self._loaded_with = open_model(config.model, **config.loading), wanted
        return self._model


def _rows_to_sample(rows: Sequence[Mapping[str, Any]], threshold: float, count: int) -> list[Mapping[str, Any]]:
    """`count` extractable target windows at even steps of their rank by mass; all when there are no more."""
    extractable = [row for row in rows if row["split"] == "target" and row["mass_lower"][-1] >= threshold]
    ranked = sorted(extractable, key=lambda row: (row["mass_lower"][-1], row["window_id"]))
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
        "windows": manifest["totals"]["windows"],
        "token_evals": manifest["totals"]["token_evals"],
        "manifest_sha256": hash_file(folder / "manifest.json"),
    }


def _complete(session: RunSession, plan: StudyPlan, sampled: Sequence[Path], command_line: Sequence[str]) -> None:
    """Bind every cell's manifest, after all cells were checked to have seen the same texts and weights."""
    folders = [cell_folder(session.path, cell) for cell in plan.cells]
    contents = [_finished_manifest(folder) for folder in folders]
    require_same_sources(plan.cells, contents)
    manifest = {
        "config": plan.described(),
        "texts": contents[0]["texts"],
        "model": {"name": ", ".join(dict.fromkeys(str(content["model"]["name"]) for content in contents))},
        "device": contents[0]["device"],
        "seed": contents[0]["seed"],
        "command_line": command_line,
        "timings": {"measuring_seconds": sum(content["timings"]["measuring_seconds"] for content in contents)},
        "totals": {
            "cells": len(plan.cells),
            "token_evals": sum(content["totals"]["token_evals"] for content in contents),
        },
        **plan.identity(),
    }
    session.bind(*(folder / "manifest.json" for folder in folders), *sampled)
    session.complete(manifest, order=[cell.name for cell in plan.cells])


def require_same_sources(cells: Sequence[Cell], manifests: Sequence[Mapping[str, Any]]) -> None:
    """One name stands for one text and one model in all cells: a study that was resumed after a file was edited does
    not compare the old with the new."""
    seen: dict[str, tuple[str, str]] = {}
    for cell, manifest in zip(cells, manifests, strict=True):
        given = cell.settings.get("texts", "all")
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
