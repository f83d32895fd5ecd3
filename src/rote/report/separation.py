"""How well each score of a run tells targets from controls: area under the curve, and hits at few false positives."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import polars as pl

from rote.report.content import Cells
from rote.report.rates import places_of, split_rows
from rote.report.view import RunView
from rote.report.words import interval_words, percent
from rote.stats.clustered import rate_over_units
from rote.stats.intervals import Rate
from rote.stats.population import Floats
from rote.stats.roc import RocCurve, Separation, found_at, placements, roc_curve, separation
from rote.stats.units import choose_units
from rote.types import Split

FALSE_POSITIVE_RATES = (0.001, 0.01)
SIGNS = {
    "loss": -1.0,
    "zlib_ratio": -1.0,
    "min_k": 1.0,
    "min_k_plus_plus": 1.0,
    "reference_ratio": -1.0,
}
"""Columns of membership scores; −1 where low values speak for membership."""
NAMES = {
    "loss": "loss",
    "zlib_ratio": "loss / zlib",
    "min_k": "Min-K %",
    "min_k_plus_plus": "Min-K %++",
    "reference_ratio": "against a reference model",
    "log_p_verbatim": "verbatim probability",
    "near": "near-verbatim mass",
}


class ScoreSeparation(NamedTuple):
    """One score: its curve, its area, and the share of targets found at each of FALSE_POSITIVE_RATES."""

    score: str
    targets: int
    controls: int
    curve: RocCurve
    area: Separation
    found: tuple[Rate, ...]


def separations(view: RunView) -> list[ScoreSeparation]:
    """Every score of a run that has membership scores, where both sides have some; nothing otherwise."""
    if not any(name in view.results.columns for name in SIGNS):
        return []
    entries = (_separation(view, name, values) for name, values in _scores(view).items())
    return [entry for entry in entries if entry is not None]


def _scores(view: RunView) -> dict[str, Floats]:
    """By name, high values speaking for membership; a null is NaN."""
    columns = view.results.select(pl.col(*[name for name in SIGNS if name in view.results.columns]))
    scores = {name: columns[name].to_numpy().astype(np.float64) * SIGNS[name] for name in columns.columns}
    population = view.population
    if population.log_p_verbatim is not None:
        scores["log_p_verbatim"] = population.log_p_verbatim
    if population.mass_lower is not None:
        scores["near"] = population.log_mass(population.edit_budget)
    return scores


def _separation(view: RunView, name: str, values: Floats) -> ScoreSeparation | None:
    # Not a number: no reference model, or a suffix that neither model can say.
    sides = [split_rows(view.population, split) & ~np.isnan(values) for split in (Split.TARGET, Split.CONTROL)]
    if not all(side.any() for side in sides):
        return None
    targets, controls = (values[side] for side in sides)
    placed = placements(targets, controls), placements(controls, targets)
    units = [
        choose_units(places_of(view.population.select(side)), own) for side, own in zip(sides, placed, strict=True)
    ]
    found = tuple(
        rate_over_units(found_at(targets, controls, rate).astype(np.float64), units[0]) for rate in FALSE_POSITIVE_RATES
    )
    area = separation(targets, controls, *units)
    return ScoreSeparation(name, len(targets), len(controls), roc_curve(targets, controls), area, found)


def separation_table(views: Sequence[RunView]) -> pl.DataFrame | None:
    """One row per run and score; None when no run has membership scores and both sides."""
    rows = [separation_row(view, entry) for view in views for entry in separations(view)]
    return pl.DataFrame(rows, infer_schema_length=None) if rows else None


def separation_row(view: RunView, entry: ScoreSeparation) -> dict[str, object]:
    """A score's numbers by the names of the table."""
    row: dict[str, object] = {
        "run": view.label,
        "score": entry.score,
        "targets": entry.targets,
        "controls": entry.controls,
        "auc": entry.area.auc,
        "auc_low": entry.area.interval.low,
        "auc_high": entry.area.interval.high,
        "note": entry.area.interval.reason,
    }
    for rate, found in zip(FALSE_POSITIVE_RATES, entry.found, strict=True):
        name = f"found_at_{rate:g}"
        row |= {name: found.value, f"{name}_low": found.interval.low, f"{name}_high": found.interval.high}
    return row


def separation_cells(views: Sequence[RunView]) -> tuple[Cells, ...]:
    """The same in words; nothing without membership scores."""
    entries = [(view, entry) for view in views for entry in separations(view)]
    if not entries:
        return ()
    found = tuple(f"found at {rate * 100:g} % false positives" for rate in FALSE_POSITIVE_RATES)
    heads = ("score", "AUC", *found)
    rows = [_cells(entry) for _, entry in entries]
    if len(views) > 1:
        heads, rows = ("run", *heads), [(view.label, *row) for (view, _), row in zip(entries, rows, strict=True)]
    note = f"{few_controls_words(min(entry.controls for _, entry in entries))}."
    return (Cells("membership", "Telling targets from controls", heads, tuple(rows), note),)


def _cells(entry: ScoreSeparation) -> tuple[str, ...]:
    interval = entry.area.interval
    ends = f" ({interval.low:.3f} to {interval.high:.3f})" if interval.is_defined else ""
    found = [f"{percent(rate.value)} ({interval_words(rate.interval)})" for rate in entry.found]
    return NAMES[entry.score], f"{entry.area.auc:.3f}{ends}", *found


def few_controls_words(controls: int) -> str:
    """What the number of controls can show: a rate below 1/n is none at all."""
    least = 1 / controls
    coarse = [rate for rate in FALSE_POSITIVE_RATES if rate < least]
    if not coarse:
        return f"{controls:,} control windows"
    rates = " and ".join(f"{rate * 100:g} %" for rate in coarse)
    return f"{controls:,} control windows: at {rates} no false positive is allowed at all"
