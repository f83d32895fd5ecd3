"""Cells that differ in one axis alone, compared on the windows they have in common."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from rote.report.rates import places_of, split_rows
from rote.report.view import RunView
from rote.stats.compare import Comparison, Outcomes, compare_rates
from rote.stats.population import Flags, Population
from rote.study.grid import Axis
from rote.study.pairing import Pairing, Spans, pair_by_span
from rote.study.study_folder import MeasuredCell, StudyView
from rote.types import Split


@dataclass(frozen=True, slots=True)
class PairedCells:
    """The second cell against the first, on target windows paired by span."""

    axis: Axis
    first: MeasuredCell
    second: MeasuredCell
    pairing: Pairing
    verbatim: Comparison | None
    near: Comparison | None
    """At each cell's own ε. None without pairs, or where it was not measured."""


def paired_cells(study: StudyView) -> list[PairedCells]:
    """Along every axis: each value against the axis's first, all else equal."""
    return [
        compare_cells(axis, first, second, least_overlap=study.config.overlap)
        for axis in study.swept
        if axis.name != "texts"
        for first, second in _neighbours(study, axis)
    ]


def compare_cells(axis: Axis, first: MeasuredCell, second: MeasuredCell, *, least_overlap: float) -> PairedCells:
    one, other = _targets(first.view), _targets(second.view)
    spans = Spans.of(one), Spans.of(other)
    if axis.name == "suffix_tokens":
        spans = spans[0].beginnings, spans[1].beginnings
    pairing = pair_by_span(*spans, least_overlap=least_overlap)
    thresholds = first.view.threshold, second.view.threshold
    verbatim = _compared(
        one, other, pairing, [part.verbatim() >= tau for part, tau in zip((one, other), thresholds, strict=True)]
    )
    near = None
    if one.mass_lower is not None and other.mass_lower is not None:
        hits = [part.mass(part.edit_budget) >= tau for part, tau in zip((one, other), thresholds, strict=True)]
        near = _compared(one, other, pairing, hits)
    return PairedCells(axis, first, second, pairing, verbatim, near)


def _targets(view: RunView) -> Population:
    return view.population.select(split_rows(view.population, Split.TARGET))


def _compared(first: Population, second: Population, pairing: Pairing, hits: list[Flags]) -> Comparison | None:
    if not len(pairing.first):
        return None
    chosen = np.zeros(len(first), dtype=np.bool_)
    chosen[pairing.first] = True
    names = tuple(first.window_id[pairing.first])
    sides = [
        Outcomes.of(names, flags[places].astype(np.float64))
        for flags, places in zip(hits, (pairing.first, pairing.second), strict=True)
    ]
    return compare_rates(*sides, places=places_of(first.select(chosen)))


def _neighbours(study: StudyView, axis: Axis) -> Iterator[tuple[MeasuredCell, MeasuredCell]]:
    others = [each.name for each in study.axes if each.name != axis.name]
    firsts = {
        tuple(one.cell.settings[name] for name in others): one
        for one in study.cells
        if one.cell.settings[axis.name] == axis.values[0]
    }
    for one in study.cells:
        base = firsts.get(tuple(one.cell.settings[name] for name in others))
        if base is not None and base is not one:
            yield base, one
