"""Figures of several scans: models over each other, never one figure a model."""

from collections.abc import Iterator, Sequence

import numpy as np

from rote.report.comparison import Comparison, counted_mass
from rote.report.drawing import Drawing
from rote.report.figures.masses import gain_curves
from rote.report.figures.models import (
    difference_forest,
    mean_mass_by_model,
    queries_by_model,
    rate_line,
    rates_by_model,
    windows_by_models,
)
from rote.report.figures.overlays import Line, Point
from rote.report.figures.search import BeamWidthSeries, beam_width_sweep
from rote.report.figures.shells import verbatim_share_by_model
from rote.report.paired import paired_differences, shared_windows
from rote.report.queries import curves_of, most_queries, searched_down_to
from rote.report.rates import Criterion, rates_by_criterion, split_rows
from rote.report.view import RunView
from rote.stats.curves import MassKind, query_grid
from rote.stats.population import Population
from rote.stats.recovery import recovery
from rote.types import Split

LARGEST_QUERIES = 1e6
SHOWN_PROBABILITY = 0.5
PANEL_NAMES = {MassKind.EXACT: "verbatim", MassKind.LOWER_BOUND: "near-verbatim, at least"}


def comparison_drawings(views: Sequence[RunView], comparison: Comparison) -> list[Drawing]:
    """What may be drawn of any models, and what only of models on the same windows."""
    drawings = [_rates(views), *_masses(views), _queries(views), *_beam_widths(views)]
    if comparison.aligned is None:
        return drawings
    threshold = views[0].threshold
    largest = min(view.population.edit_budget for view in views)
    every = paired_differences(comparison, threshold)
    rows = [row for row in every if row.quantity != "near" or row.edits == largest]
    caption = (
        "Difference of the models on the same target windows, with 95 % intervals over documents or long stretches of "
        "text."
    )
    forest = Drawing("differences", caption, difference_forest(rows), "interval", is_wide=True)
    caption = "Target windows by the models they are extractable from: from one alone, from some, from all."
    shared = windows_by_models(comparison.labels, shared_windows(comparison, threshold))
    return [*drawings, forest, Drawing("windows-by-model", caption, shared, "near", is_wide=True)]


def _targets(view: RunView) -> Population:
    rows = split_rows(view.population, Split.TARGET)
    return view.population.select(rows) if rows.any() else view.population


def _rates(views: Sequence[RunView]) -> Drawing:
    lines: dict[Criterion, list[Line]] = {Criterion.NEAR: [], Criterion.GREEDY: []}
    for view in views:
        rates = rates_by_criterion(view.population, view.threshold)
        for criterion, own in lines.items():
            for split in Split:
                found = [entry for entry in rates if (entry.criterion, entry.split) == (criterion, split)]
                points = [Point.of(float(entry.edits or 0), entry.rate) for entry in found]
                if points:
                    own.append(rate_line(view.label, points, is_control=split is Split.CONTROL))
    caption = "Share of windows by number of edits allowed, model over model, with 95 % intervals; controls in grey."
    figure = rates_by_model(*(_controls_last(lines[criterion]) for criterion in (Criterion.NEAR, Criterion.GREEDY)))
    return Drawing("rates-by-model", caption, figure, "near", is_wide=True)


def _controls_last(lines: Sequence[Line]) -> list[Line]:
    """So that a model has the same colour in every figure, with controls or without."""
    return sorted(lines, key=lambda line: line.is_control)


def _masses(views: Sequence[RunView]) -> Iterator[Drawing]:
    near = [(view, _targets(view)) for view in views if view.population.mass_lower is not None]
    if not near:
        return
    threshold = views[0].threshold
    lines = [
        Line(
            view.label,
            tuple(
                Point(edits, float(counted_mass(part, edits, threshold).mean()))
                for edits in range(part.edit_budget + 1)
            ),
        )
        for view, part in near
    ]
    caption = "Mean near-verbatim mass of the target windows by number of edits; a mass below τ counts as 0."
    yield Drawing("mean-mass-by-model", caption, mean_mass_by_model(lines), "near")
    sized = sorted(near, key=lambda pair: pair[0].manifest["model"].get("parameters") or 0)
    shares = [
        (_sized(view), np.column_stack([part.mass(edits) for edits in range(part.edit_budget + 1)]))
        for view, part in sized
    ]
    caption = "The verbatim share of the mass of extractable windows, smallest model first."
    yield Drawing("verbatim-share-by-model", caption, verbatim_share_by_model(shares, threshold=threshold), "shell")
    gains = [(view.label, part.verbatim(), part.mass(part.edit_budget)) for view, part in near]
    caption = (
        "How much probability near-verbatim continuations add, model over model; of all windows (dashed) at least "
        "this, because searches end where τ cannot be reached."
    )
    yield Drawing("mass-gain-by-model", caption, gain_curves(gains, threshold=threshold), "gain")


def _sized(view: RunView) -> str:
    parameters = view.manifest["model"].get("parameters")
    return view.label if not parameters else f"{view.label}\n{parameters / 1e6:,.3g} M"


def _queries(views: Sequence[RunView]) -> Drawing:
    panels: dict[MassKind, list[Line]] = {}
    grid = query_grid(LARGEST_QUERIES, per_decade=20)
    for view in views:
        for split in Split:
            part = view.population.select(split_rows(view.population, split))
            for curves in curves_of(part, queries=grid, probabilities=[SHOWN_PROBABILITY]) if len(part) else ():
                points = [Point(n, rate.value) for n, rate in zip(grid, curves.curves[0].rates, strict=True)]
                line = rate_line(view.label, points, is_control=split is Split.CONTROL)
                if curves.mass_kind is MassKind.LOWER_BOUND:
                    line = line._replace(
                        solid_to=most_queries(searched_down_to(part, view.threshold), SHOWN_PROBABILITY)
                    )
                panels.setdefault(curves.mass_kind, []).append(line)
    caption = (
        f"Share of windows that come out at least once with probability {SHOWN_PROBABILITY:g} within n queries; "
        "controls in grey. Dashed: masses below τ count there, for which not every window was searched."
    )
    figure = queries_by_model([(PANEL_NAMES[kind], _controls_last(lines)) for kind, lines in panels.items()])
    return Drawing("queries-by-model", caption, figure, "queries", is_wide=True)


def _beam_widths(views: Sequence[RunView]) -> Iterator[Drawing]:
    """Runs of one model that differ in beam width: what a wider beam recovers, and what it costs."""
    groups: dict[tuple[str, str], list[tuple[int, float, float]]] = {}
    for view in views:
        population = view.population
        if population.search_verbatim is None or population.p_verbatim is None:
            continue
        name = f"{view.config['viability']} rule, {'pinned' if view.config['pin'] else 'not pinned'}"
        found = recovery(population.search_verbatim, population.p_verbatim, view.threshold)
        searched = ~np.isnan(population.search_verbatim)
        cost = view.results["token_evals"].to_numpy()[searched]
        if found.windows and len(cost):
            key = (str(view.manifest["model"].get("weights_hash")), name)
            groups.setdefault(key, []).append((int(view.config["beam_width"]), found.share, float(cost.mean())))
    swept = {name: sorted(points) for (_, name), points in groups.items() if len({point[0] for point in points}) > 1}
    if swept:
        series = [
            BeamWidthSeries(name, *(tuple(column) for column in zip(*points, strict=True)))
            for name, points in swept.items()
        ]
        caption = "How many verbatim-extractable windows the search finds by itself, and its cost, by beam width."
        yield Drawing("beam-widths", caption, beam_width_sweep(series), "recovery", is_wide=True)
