"""Overlay figures of a study: one for every axis with several values, a line for every combination of the others."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from byrote.report.content import Drawing
from byrote.report.figures.overlays import Level, Line, Panel, Point, Setting, overlay
from byrote.report.rates import Criterion, places_of, rate_for, split_rows
from byrote.report.sweeps import PROBABILITIES, policy_queries, policy_rates
from byrote.stats.curves import RateCurves, query_grid, rate_curves
from byrote.stats.intervals import exact_interval
from byrote.study.folder import MeasuredCell, StudyView
from byrote.study.grid import Axis
from byrote.types import Split

MOST_LINES = 14
LARGEST_QUERIES = 1e6
FIGURE_NAMES = {
    "model": ("scaling", "Rates by model size"),
    "prefix_tokens": ("prefix-length", "Rates by length of the prefix"),
    "suffix_tokens": ("suffix-length", "Rates by length of the target"),
    "beam_width": ("beam-width", "What a wider beam finds, and what it costs"),
    "distance": ("pruning", "What pruning by distance finds, and what it costs"),
    "viability": ("pruning-rule", "What the pruning rule changes"),
    "edit_budget": ("edit-budget", "Searches pruned at different ε"),
    "policy": ("policies", "Rates by decoding policy"),
    "texts": ("texts", "Rates by text"),
}
SEARCH_AXES = ("beam_width", "distance", "viability", "edit_budget", "stop_rule", "rank", "pin", "negligible", "screen")
"""What changes how mass is searched for and not what there is to find: cost is shown beside it."""
Value = Callable[[MeasuredCell], Point | None]


def study_drawings(study: StudyView) -> list[Drawing]:
    """Every figure that the finished cells have data for."""
    drawings = [axis_drawing(study, axis) for axis in study.swept]
    drawings += edits_drawings(study)
    return drawings + query_drawings(study) + sweep_drawings(study) + convergence_drawings(study.sampled)


def axis_drawing(study: StudyView, axis: Axis) -> Drawing:
    """Rates along one axis with their intervals; with the cost where the axis is one of the search."""
    name, words = FIGURE_NAMES.get(axis.name, (axis.name.replace("_", "-"), f"Rates by {axis.name.replace('_', ' ')}"))
    places, setting = _places(study, axis)
    panels = [_panel(study, axis, places, title, name, value) for title, name, value in _shares(axis)]
    panels = [panel for panel in panels if any(line.points for line in panel.lines)] or panels[:1]
    if axis.name in SEARCH_AXES:
        cost = _panel(
            study, axis, places, "Cost", "token evaluations a window", lambda one: Point(0.0, one.evaluations)
        )
        panels.append(cost._replace(is_share=False))
    kept, every = len(panels[0].lines), len(_groups(study, axis))
    left_out = "" if kept == every else f" {every - kept} further combinations are in the tables."
    caption = f"{words}, target windows, with 95 % intervals.{left_out}"
    return Drawing(f"study-{name}", caption, overlay(panels, setting), is_wide=len(panels) > 1)


def _shares(axis: Axis) -> list[tuple[str, str, Value]]:
    verbatim = ("Word for word", "windows with p ≥ τ", lambda one: _rate(one, Criterion.VERBATIM))
    near = ("Nearly", "windows with mass ≥ τ, at least", lambda one: _rate(one, Criterion.NEAR))
    most = ("Nearly, not ruled out", "windows with mass ≥ τ, at most", lambda one: _rate(one, Criterion.NOT_RULED_OUT))
    return [near, most] if axis.name in SEARCH_AXES else [verbatim, near]


def _rate(one: MeasuredCell, criterion: Criterion) -> Point | None:
    edits = None if criterion is Criterion.VERBATIM else one.view.population.edit_budget
    found = rate_for(one.rates, criterion, split=Split.TARGET, edits=edits)
    return None if found is None else Point.of(0.0, found.rate)


def _panel(study: StudyView, axis: Axis, places: dict[str, float], title: str, value_name: str, value: Value) -> Panel:
    lines = []
    for label, cells in list(_groups(study, axis).items())[:MOST_LINES]:
        found = [(places[one.cell.settings[axis.name]], value(one)) for one in cells]
        points = [point._replace(place=place) for place, point in found if point is not None]
        lines.append(Line(label, tuple(sorted(points))))
    return Panel(title, value_name, tuple(lines))


def _groups(study: StudyView, axis: Axis) -> dict[str, list[MeasuredCell]]:
    """Cells that differ in this axis alone, by what they have in common."""
    groups: dict[str, list[MeasuredCell]] = {}
    for one in study.cells:
        groups.setdefault(study.label_of(one.cell, without=(axis.name,)), []).append(one)
    return groups


def _places(study: StudyView, axis: Axis) -> tuple[dict[str, float], Setting]:
    """Where every value stands: by size for models, by itself where it is a number, otherwise in order."""
    words = {
        "model": "parameters",
        "prefix_tokens": "tokens of the prefix",
        "suffix_tokens": "tokens of the target",
        "beam_width": "beam width, B",
        "edit_budget": "edits allowed while searching, ε",
        "viability": "pruning rule",
        "texts": "text",
    }
    name = words.get(axis.name, axis.name.replace("_", " "))
    numbers = _parameters(study) if axis.name == "model" else _numbers(axis)
    if numbers is None or len(set(numbers.values())) < len(axis.values):
        places = {value: float(place) for place, value in enumerate(axis.values)}
        label = "model" if axis.name == "model" else name
        ticks = tuple((place, axis.label_of(value)) for value, place in places.items())
        return places, Setting(label, ticks, is_ordered=False)
    ticks = tuple(
        (place, _tick(axis, value, place)) for value, place in sorted(numbers.items(), key=lambda one: one[1])
    )
    is_log = min(numbers.values()) > 0 and max(numbers.values()) >= 4 * min(numbers.values())
    return numbers, Setting(name, ticks, is_log=is_log)


def _tick(axis: Axis, value: str, place: float) -> str:
    if axis.name != "model":
        return value
    for size, letter in ((1e9, "B"), (1e6, "M"), (1e3, "K")):
        if place >= size:
            return f"{place / size:.3g}{letter}\n{axis.label_of(value)}"
    return f"{place:g}\n{axis.label_of(value)}"


def _numbers(axis: Axis) -> dict[str, float] | None:
    try:
        return {value: float(value) for value in axis.values}
    except ValueError:
        return None


def _parameters(study: StudyView) -> dict[str, float] | None:
    """None unless every model says how large it is."""
    known = {one.cell.settings["model"]: one.view.manifest["model"].get("parameters") for one in study.cells}
    sizes = {model: float(size) for model, size in known.items() if size}
    return sizes if len(sizes) == len(next(axis for axis in study.axes if axis.name == "model").values) else None


def edits_drawings(study: StudyView) -> list[Drawing]:
    """The rate at every ε, a line for each model and text; greedy answers in a panel of their own."""
    measured = [one for one in study.base() if one.view.population.mass_lower is not None]
    if not measured:
        return []
    panels = [
        Panel(title, "windows extractable", tuple(_by_edits(study, one, criterion) for one in measured[:MOST_LINES]))
        for title, criterion in (("Greedy answers", Criterion.GREEDY), ("Mass ≥ τ, at least", Criterion.NEAR))
    ]
    caption = (
        "Target windows extractable within ε edits, by greedy decoding and by certified mass, with 95 % intervals; "
        "other settings at their first value."
    )
    budget = max(one.view.population.edit_budget for one in measured)
    setting = Setting("edits allowed, ε", tuple((float(edits), str(edits)) for edits in range(budget + 1)))
    return [Drawing("study-edits", caption, overlay(panels, setting), is_wide=True)]


def _by_edits(study: StudyView, one: MeasuredCell, criterion: Criterion) -> Line:
    others = [axis.name for axis in study.axes if axis.name not in ("model", "texts")]
    found = [entry for entry in one.rates if entry.criterion is criterion and entry.split is Split.TARGET]
    points = tuple(Point.of(float(entry.edits or 0), entry.rate) for entry in found)
    return Line(study.label_of(one.cell, without=others), points)


def query_drawings(study: StudyView) -> list[Drawing]:
    """(n, p) of every policy that has cells of its own: word for word and nearly."""
    axis = next((axis for axis in study.swept if axis.name == "policy"), None)
    if axis is None:
        return []
    groups = _groups(study, axis)
    drawings = []
    for number, (label, cells) in enumerate(groups.items(), start=1):
        panels = [
            Panel(
                f"{words}, p = {probability:g}",
                "windows extracted with probability p",
                tuple(_query_line(one, axis, place, is_near=is_near) for one in cells),
            )
            for words, is_near in (("Word for word", False), ("Nearly, at least", True))
            for place, probability in list(enumerate(PROBABILITIES))[1:2]
        ]
        caption = (
            f"Share of target windows within n queries under every policy searched ({label}), with 95 % intervals."
        )
        suffix = f"-{number}" if len(groups) > 1 else ""
        figure = overlay(panels, Setting("queries, n", is_log=True))
        drawings.append(Drawing(f"study-policy-queries{suffix}", caption, figure, is_wide=True))
    return drawings


def _query_line(one: MeasuredCell, axis: Axis, place: int, *, is_near: bool) -> Line:
    curve = query_rates(one, is_near=is_near).curves[place]
    points = tuple(Point.of(n, rate) for n, rate in zip(curve.queries, curve.rates, strict=True))
    return Line(axis.label_of(one.cell.settings[axis.name]), points)


def query_rates(one: MeasuredCell, *, is_near: bool) -> RateCurves:
    """(n, p) rates of a cell's target windows."""
    population = one.view.population
    part = population.select(split_rows(population, Split.TARGET))
    logs = part.log_mass(part.edit_budget) if is_near else part.log_verbatim()
    return rate_curves(logs, places_of(part), queries=query_grid(LARGEST_QUERIES), probabilities=PROBABILITIES)


def sweep_drawings(study: StudyView) -> list[Drawing]:
    """(n, p) of every policy scored in the same pass, for the first cell of every model and text."""
    drawings = []
    for number, one in enumerate(study.base(), start=1):
        swept = [each for each in policy_rates(one.view) if each.split is Split.TARGET]
        if swept:
            label = study.label_of(one.cell, without=[axis.name for axis in study.axes if axis.name != "model"])
            caption = f"Word for word within n queries under every policy of the sweep: {label}."
            drawings.append(Drawing(f"study-sweep-{number}", caption, policy_queries(swept), is_wide=True))
    return drawings


def convergence_drawings(sampled: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[Drawing]:
    """Monte Carlo estimates as samples are added, against the certified bounds: a panel a window, a figure a cell."""
    drawings = []
    for number, (name, rows) in enumerate(sampled.items(), start=1):
        if rows:
            caption = (
                "Near-verbatim mass by plain sampling as samples are added, with 95 % intervals; shaded: the "
                f"certified bounds of the same windows (cell {name})."
            )
            figure = overlay([_convergence(row) for row in rows], Setting("samples, M", is_log=True))
            drawings.append(Drawing(f"study-montecarlo-{number}", caption, figure, is_wide=len(rows) > 1))
    return drawings


def _convergence(row: Mapping[str, Any]) -> Panel:
    points = []
    for hits, samples in zip(row["hits"], row["samples"], strict=True):
        interval = exact_interval(hits, samples)
        points.append(Point(float(samples), hits / samples, interval.low, interval.high))
    level = Level("certified bounds", row["mass_lower"], row["mass_upper"])
    panel = Panel(row["window_id"], "near-verbatim mass", (Line("sampled", tuple(points)),), (level,), is_share=False)
    return panel if np.isfinite(row["mass_upper"]) else panel._replace(levels=())
