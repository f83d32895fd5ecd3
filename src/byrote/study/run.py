"""The rows of a study: one a cell, with the run that measured it. `window_id` is the cell's name."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from byrote.errors import RunError
from byrote.store.columns import Column, Schema
from byrote.store.files import hash_file, make_folder
from byrote.store.manifest import read_manifest
from byrote.store.session import RunSession
from byrote.store.tables import Row
from byrote.study.grid import Axis, Cell, base_cells

CELL_COLUMNS: Schema = (
    Column("window_id", "text", is_required=True),
    Column("settings", "text", is_required=True),
    Column("run_id", "text", is_required=True),
    Column("weights_hash", "text"),
    Column("windows", "int64", is_required=True),
    Column("token_evals", "int64", is_required=True),
    Column("manifest_sha256", "text", is_required=True),
)
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


KIND = "study"
SAMPLED_KIND = "study_montecarlo"
Measure = Callable[[Cell, Path], None]
"""Makes the cell's run in the folder, or resumes it."""
SampleWindows = Callable[[Cell, Path], Sequence[Row]]
"""Rows of SAMPLED_COLUMNS from the cell's finished run."""
Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that decides a study's numbers, but for models and texts, which its cells know by their hashes."""

    axes: tuple[Axis, ...]
    cells: tuple[Cell, ...]
    fixed: Mapping[str, Any]
    """Options of a scan that all cells share."""
    sampling: Mapping[str, Any]
    """What is sampled by Monte Carlo."""
    described: Mapping[str, Any]
    """What the study says about itself and how it is read: it changes no measured number."""

    def identity(self) -> dict[str, Any]:
        axes = {axis.name: list(axis.values) for axis in self.axes}
        return {"axes": axes, "fixed": dict(self.fixed), "sampling": dict(self.sampling)}


@dataclass(frozen=True, slots=True)
class StudyResult:
    path: Path
    was_complete: bool
    measured: int
    """Cells measured now; the others were finished before."""


def run_study(
    plan: Plan,
    out: Path,
    *,
    measure: Measure,
    sample_windows: SampleWindows | None,
    tell: Tell,
    command_line: Sequence[str] = (),
    fresh: bool = False,
) -> StudyResult:
    """Run or resume the study at `out`."""
    with RunSession.open(
        out, kind=KIND, identity=plan.identity(), schema=CELL_COLUMNS, fresh=fresh, part_rows=1
    ) as session:
        if session.is_complete:
            return StudyResult(session.path, was_complete=True, measured=0)
        make_folder(out / "cells", inside=out)
        finished, sampled = session.finished_ids(), []
        base = () if sample_windows is None else base_cells(plan.axes, plan.cells)
        for number, cell in enumerate(plan.cells, start=1):
            if cell.name not in finished:
                tell(f"cell {number} of {len(plan.cells)}: {cell.name}")
                measure(cell, cell_folder(out, cell))
                session.add(cell_row(cell, cell_folder(out, cell)))
            # At once, while the model is there.
            if sample_windows is not None and cell in base:
                sampled.append(_sample(plan, cell, out, sample_windows, tell, fresh=fresh))
        complete(session, plan, sampled, command_line)
    return StudyResult(session.path, was_complete=False, measured=len(plan.cells) - len(finished))


def complete(session: RunSession, plan: Plan, sampled: Sequence[Path], command_line: Sequence[str]) -> None:
    """Bind every cell's manifest, after it was checked that all cells saw the same texts and weights."""
    manifests = [cell_folder(session.path, cell) / "manifest.json" for cell in plan.cells]
    contents = [_manifest(path) for path in manifests]
    require_same_sources(plan.cells, contents)
    manifest = {
        "config": dict(plan.described),
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
    session.bind(*manifests, *sampled)
    session.complete(manifest, order=[cell.name for cell in plan.cells])


def cell_folder(out: Path, cell: Cell) -> Path:
    return Path(out) / "cells" / cell.name


def sampled_folder(out: Path, cell: Cell) -> Path:
    return Path(out) / "montecarlo" / cell.name


def cell_row(cell: Cell, folder: Path) -> dict[str, Any]:
    manifest = _manifest(folder / "manifest.json")
    return {
        "window_id": cell.name,
        "settings": json.dumps(dict(cell.settings), ensure_ascii=False),
        "run_id": manifest["run_id"],
        "weights_hash": manifest["model"].get("weights_hash"),
        "windows": manifest["totals"]["windows"],
        "token_evals": manifest["totals"]["token_evals"],
        "manifest_sha256": hash_file(folder / "manifest.json"),
    }


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


def _manifest(path: Path) -> dict[str, Any]:
    manifest = read_manifest(path)
    if manifest is None:
        raise RunError(f"{path.parent} is not finished; run the study again to go on from there.")
    return manifest


def _sample(plan: Plan, cell: Cell, out: Path, sample_windows: SampleWindows, tell: Tell, *, fresh: bool) -> Path:
    """The manifest of a cell's sampled windows, which are sampled unless they were before."""
    run = _manifest(cell_folder(out, cell) / "manifest.json")["run_id"]
    folder, identity = sampled_folder(out, cell), {"run": run, "sampling": dict(plan.sampling)}
    make_folder(folder.parent, inside=out)
    with RunSession.open(folder, kind=SAMPLED_KIND, identity=identity, schema=SAMPLED_COLUMNS, fresh=fresh) as session:
        if not session.is_complete:
            tell(f"sampling windows of {cell.name}")
            rows = sample_windows(cell, cell_folder(out, cell))
            for row in rows:
                if row["window_id"] not in session.finished_ids():
                    session.add(row)
            session.complete({"config": dict(plan.sampling), "run": run}, order=[row["window_id"] for row in rows])
    return folder / "manifest.json"
