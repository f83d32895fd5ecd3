"""A study as it is read: its plan and every finished cell as a run. An unfinished study shows what it has."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from byrote.errors import RunError
from byrote.report.rates import CriterionRate, rates_by_criterion
from byrote.report.view import RunView, load_view
from byrote.store.files import hash_file
from byrote.store.read import StoredRun, read_run, verify_run
from byrote.study.options import StudyConfig
from byrote.study.plan import Axis, Cell, base_cells, make_cells
from byrote.study.run import KIND, cell_folder, sampled_folder

SHORT = {"prefix_tokens": "prefix", "suffix_tokens": "target", "beam_width": "beam", "edit_budget": "ε ≤"}
"""Axes as labels of lines and rows name them."""


@dataclass(frozen=True)
class MeasuredCell:
    """A finished cell with its run and the rates of that run."""

    cell: Cell
    view: RunView
    rates: list[CriterionRate]

    @property
    def evaluations(self) -> float:
        """Token evaluations a window."""
        return float(self.view.results["token_evals"].mean())  # type: ignore[arg-type]


@dataclass(frozen=True)
class StudyView:
    path: Path
    axes: tuple[Axis, ...]
    config: StudyConfig
    planned: int
    cells: tuple[MeasuredCell, ...]
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
            if axis.name in ("model", "texts", "policy")
            else f"{SHORT.get(axis.name, axis.name.replace('_', ' '))} {cell.settings[axis.name]}"
            for axis in self.swept
            if axis.name not in without
        ]
        return ", ".join(parts) or "all cells"


def read_study(path: Path) -> StudyView:
    """The study in `path`, every cell checked against what the study bound."""
    found = verify_run(path)
    if found.kind != KIND:
        raise RunError(f"{path} holds a {found.kind} run, not a study; see it with: byrote show {path}.")
    axes, rows = _axes(found.identity), _rows(path)
    cells, measured, sampled = make_cells(axes), [], {}
    for cell in cells:
        if cell.name not in rows:
            continue
        _require_measured(path, cell, rows[cell.name])
        view = load_view(cell_folder(path, cell))
        measured.append(MeasuredCell(cell, view, rates_by_criterion(view.population, view.threshold)))
        if (sampled_folder(path, cell) / "manifest.json").exists():
            sampled[cell.name] = read_run(sampled_folder(path, cell)).results.rows(named=True)
    return StudyView(
        path=Path(path),
        axes=axes,
        config=StudyConfig(**(found.manifest["config"] if found.manifest else {})),
        planned=len(cells),
        cells=tuple(measured),
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
