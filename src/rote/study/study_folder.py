"""A study as it is read: its plan and every finished cell as a run. An unfinished study shows what it has."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rote.errors import RunError
from rote.report.rates import CriterionRate, rates_by_criterion
from rote.report.view import RunView, load_view
from rote.store.read import read_run
from rote.store.seal import hash_file
from rote.store.verify import verify_run
from rote.study.grid import Axis, Cell, base_cells, make_cells
from rote.study.options import StudyConfig
from rote.study.run import KIND, cell_folder, sampled_folder

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
        """What tells a cell from the others: its values on the swept axes, but for those named."""
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
    if found.identity.kind != KIND:
        raise RunError(f"{path} holds a {found.identity.kind} run, not a study; see it with: rote show {path}.")
    values = found.identity.values
    axes = tuple(Axis(name, tuple(entries)) for name, entries in values["axes"].items())
    cells = {cell.name: cell for cell in make_cells(axes)}
    rows = read_run(path).results.rows(named=True)
    measured = [_measured(path, cells[row["window_id"]], row) for row in rows]
    order = list(cells)
    measured.sort(key=lambda one: order.index(one.cell.name))
    return StudyView(
        path=Path(path),
        axes=axes,
        config=StudyConfig(**(found.manifest["config"] if found.manifest else {})),
        planned=len(cells),
        cells=tuple(measured),
        sampled=_sampled(path, measured),
        manifest=found.manifest,
    )


def _measured(path: Path, cell: Cell, row: Mapping[str, Any]) -> MeasuredCell:
    folder = cell_folder(path, cell)
    if (
        json.loads(row["settings"]) != dict(cell.settings)
        or hash_file(folder / "manifest.json") != row["manifest_sha256"]
    ):
        raise RunError(f"{folder} is not the run that the study measured; restore it, or start over with --fresh.")
    view = load_view(folder)
    return MeasuredCell(cell, view, rates_by_criterion(view.population, view.threshold))


def _sampled(path: Path, measured: Sequence[MeasuredCell]) -> dict[str, list[dict[str, Any]]]:
    folders = {one.cell.name: sampled_folder(path, one.cell) for one in measured}
    return {
        name: read_run(folder).results.rows(named=True)
        for name, folder in folders.items()
        if (folder / "manifest.json").exists()
    }
