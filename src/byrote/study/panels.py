"""Overlay figures of a study: one for every axis with several values, a line for every combination of the others."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from byrote.report.analysis.queries import lines_drawing, policy_queries, policy_rates, query_lines
from byrote.report.analysis.rates import Criterion, rate_for, split_rows
from byrote.report.content import Drawing
from byrote.report.figures.overlays import Line, Panel, Point, Setting, overlay
from byrote.scan.mc_report import convergence
from byrote.study.plan import Axis
from byrote.study.run import MeasuredCell, StudyView
from byrote.types import Split

MOST_LINES = 14
AXIS_FIGURES = {
    "model": ("scaling", "Rates by model size", "parameters"),
    "prefix_tokens": ("prefix-length", "Rates by length of the prefix", "tokens of the prefix"),
    "suffix_tokens": ("suffix-length", "Rates by length of the target", "tokens of the target"),
    "beam_width": ("beam-width", "What a wider beam finds, and what it costs", "beam width, B"),
    "distance": ("pruning", "What pruning by distance finds, and what it costs", "distance"),
    "viability": ("pruning-rule", "What the pruning rule changes", "pruning rule"),
    "edit_budget": ("edit-budget", "Searches pruned at different ε", "edits allowed while searching, ε"),
    "policy": ("policies", "Rates by decoding policy", "policy"),
    "texts": ("texts", "Rates by text", "text"),
}
"""Axis → file, caption and axis label of its figure."""
SEARCH_AXES = ("beam_width", "distance", "viability", "edit_budget", "stop_rule", "rank", "pin", "negligible", "screen")
"""Options of the search, which change what is found of the mass and not the mass itself: cost is drawn beside."""


def study_drawings(study: StudyView) -> Iterator[Drawing]:
    """Every figure that the finished cells have data for."""
    for axis in study.swept:
        yield _axis_drawing(study, axis)
    yield from _edits_drawings(study)
    yield from _query_drawings(study)
    yield from _sweep_drawings(study)
    yield from _convergence_drawings(study.sampled)


def _axis_drawing(study: StudyView, axis: Axis) -> Drawing:
    """Rates along one axis with their intervals; with the cost where the axis is one of the search."""
    plain = axis.name.replace("_", " ")
    file, caption, label = AXIS_FIGURES.get(axis.name, (axis.name.replace("_", "-"), f"Rates by {plain}", plain))
    places, setting = _places(study, axis, label)
    groups = _groups(study, axis)

    def panel(title: str, value_name: str, value: Callable[[MeasuredCell], Point | None]) -> Panel:
        lines = []
        for group, cells in list(groups.items())[:MOST_LINES]:
            found = [(places[one.cell.settings[axis.name]], value(one)) for one in cells]
            points = [point._replace(place=place) for place, point in found if point is not None]
            lines.append(Line(group, tuple(sorted(points))))
        return Panel(title, value_name, tuple(lines))

    near = panel("Nearly", "windows with mass ≥ τ, at least", lambda one: _rate(one, Criterion.NEAR))
    if axis.name in SEARCH_AXES:
        name, words = "Nearly, not ruled out", "windows with mass ≥ τ, at most"
        panels = [near, panel(name, words, lambda one: _rate(one, Criterion.NOT_RULED_OUT))]
    else:
        panels = [panel("Word for word", "windows with p ≥ τ", lambda one: _rate(one, Criterion.VERBATIM)), near]
    panels = [one for one in panels if any(line.points for line in one.lines)] or panels[:1]
    if axis.name in SEARCH_AXES:
        cost = panel("Cost", "token evaluations a window", lambda one: Point(0.0, one.evaluations))
        panels.append(cost._replace(is_share=False))
    left_out = len(groups) - len(panels[0].lines)
    further = f" {left_out} further combinations are in the tables." if left_out else ""
    return Drawing(
        f"study-{file}",
        f"{caption}, target windows, with 95 % intervals.{further}",
        overlay(panels, setting),
        is_wide=len(panels) > 1,
    )


def _rate(one: MeasuredCell, criterion: Criterion) -> Point | None:
    edits = None if criterion is Criterion.VERBATIM else one.view.population.edit_budget
    found = rate_for(one.rates, criterion, split=Split.TARGET, edits=edits)
    return None if found is None else Point.of(0.0, found.rate)


def _groups(study: StudyView, axis: Axis) -> dict[str, list[MeasuredCell]]:
    """Cells that differ in this axis alone, by what they have in common."""
    groups: dict[str, list[MeasuredCell]] = {}
    for one in study.cells:
        groups.setdefault(study.label_of(one.cell, without=(axis.name,)), []).append(one)
    return groups


def _places(study: StudyView, axis: Axis, label: str) -> tuple[dict[str, float], Setting]:
    """Where every value stands: by size for models, by itself where it is a number, otherwise in order."""
    numbers = _numbers(study, axis)
    if len(set(numbers.values())) < len(axis.values):
        places = {value: float(place) for place, value in enumerate(axis.values)}
        ticks = tuple((place, axis.label_of(value)) for value, place in places.items())
        return places, Setting("model" if axis.name == "model" else label, ticks, is_ordered=False)
    ordered = sorted(numbers.items(), key=lambda one: one[1])
    if axis.name == "model":
        ticks = tuple((size, f"{_size_words(size)}\n{axis.label_of(value)}") for value, size in ordered)
    else:
        ticks = tuple((number, value) for value, number in ordered)
    smallest, largest = ordered[0][1], ordered[-1][1]
    return numbers, Setting(label, ticks, is_log=smallest > 0 and largest >= 4 * smallest)


def _size_words(parameters: float) -> str:
    for size, letter in ((1e9, "B"), (1e6, "M"), (1e3, "K")):
        if parameters >= size:
            return f"{parameters / size:.3g}{letter}"
    return f"{parameters:g}"


def _numbers(study: StudyView, axis: Axis) -> dict[str, float]:
    """Value → its number, for a model its parameters, where it has one."""
    if axis.name == "model":
        known = {one.cell.settings["model"]: one.view.manifest["model"].get("parameters") for one in study.cells}
        return {model: float(size) for model, size in known.items() if size}
    try:
        return {value: float(value) for value in axis.values}
    except ValueError:
        return {}


def _edits_drawings(study: StudyView) -> Iterator[Drawing]:
    """The rate at every ε, a line for each model and text; greedy answers in a panel of their own."""
    measured = [one for one in study.base() if one.view.population.mass_lower is not None]
    if not measured:
        return
    others = [axis.name for axis in study.axes if axis.name not in ("model", "texts")]

    def line(one: MeasuredCell, criterion: Criterion) -> Line:
        found = [entry for entry in one.rates if entry.criterion is criterion and entry.split is Split.TARGET]
        points = tuple(Point.of(float(entry.edits or 0), entry.rate) for entry in found)
        return Line(study.label_of(one.cell, without=others), points)

    panels = [
        Panel(title, "windows extractable", tuple(line(one, criterion) for one in measured[:MOST_LINES]))
        for title, criterion in (("Greedy answers", Criterion.GREEDY), ("Mass ≥ τ, at least", Criterion.NEAR))
    ]
    caption = (
        "Target windows extractable within ε edits, by greedy decoding and by certified mass, with 95 % intervals; "
        "other settings at their first value."
    )
    budget = max(one.view.population.edit_budget for one in measured)
    setting = Setting("edits allowed, ε", tuple((float(edits), str(edits)) for edits in range(budget + 1)))
    yield Drawing("study-edits", caption, overlay(panels, setting), is_wide=True)


def _query_drawings(study: StudyView) -> Iterator[Drawing]:
    """(n, p) of every policy that has cells of its own: word for word and nearly."""
    axis = next((axis for axis in study.swept if axis.name == "policy"), None)
    if axis is None:
        return

    groups = _groups(study, axis)
    for number, (label, cells) in enumerate(groups.items(), start=1):
        lines = [
            query_lines(
                axis.label_of(one.cell.settings[axis.name]),
                one.view.population.select(split_rows(one.view.population, Split.TARGET)),
                one.view.threshold,
            )
            for one in cells
        ]
        caption = (
            f"Share of target windows within n queries under every policy searched ({label}), with 95 % intervals."
        )
        suffix = f"-{number}" if len(groups) > 1 else ""
        yield lines_drawing(f"study-policy-queries{suffix}", caption, lines)


def _sweep_drawings(study: StudyView) -> Iterator[Drawing]:
    """(n, p) of every policy scored in the same pass, for the first cell of every model and text."""
    for number, one in enumerate(study.base(), start=1):
        swept = [each for each in policy_rates(one.view) if each.split is Split.TARGET]
        if swept:
            label = study.label_of(one.cell, without=[axis.name for axis in study.axes if axis.name != "model"])
            caption = f"Word for word within n queries under every policy of the sweep: {label}."
            yield Drawing(f"study-sweep-{number}", caption, policy_queries(swept), is_wide=True)


def _convergence_drawings(sampled: Mapping[str, Sequence[Mapping[str, Any]]]) -> Iterator[Drawing]:
    """Monte Carlo estimates as samples are added, against the certified bounds: a panel a window, a figure a cell."""
    for number, (name, rows) in enumerate(sampled.items(), start=1):
        caption = (
            "Near-verbatim mass by plain sampling as samples are added, with 95 % intervals; shaded: the certified "
            f"bounds of the same windows (cell {name})."
        )
        figure = overlay(
            [convergence(row, "exact", over="curve_samples") for row in rows], Setting("samples, M", is_log=True)
        )
        yield Drawing(f"study-montecarlo-{number}", caption, figure, is_wide=len(rows) > 1)
