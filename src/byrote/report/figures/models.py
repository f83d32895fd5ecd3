"""Models over each other: rates, mean mass and queries as lines; paired differences; which windows each model adds."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from byrote.report.comparison import Paired, SharedWindows
from byrote.report.figures.overlays import Line, Panel, Point, Setting, overlay
from byrote.report.figures.style import FAINT, INK, MARKERS, SERIES, SOFT, WIDE, house_style, new_figure, say_empty

MOST_COMBINATIONS = 16


def rates_by_model(near: Sequence[Line], greedy: Sequence[Line]) -> Figure:
    """Share of windows against ε, a line a model: near-verbatim left, the greedy answer right; controls in grey."""
    panels = [Panel("near-verbatim, mass ≥ τ", "windows", tuple(near))]
    if any(line.points for line in greedy):
        panels.append(Panel("the greedy answer", "windows", tuple(greedy)))
    return overlay(panels, Setting("edits allowed, ε"))


def mean_mass_by_model(lines: Sequence[Line]) -> Figure:
    """Mean near-verbatim mass of the target windows against ε, a line a model; masses below τ are counted as 0."""
    return overlay([Panel("", "mean mass, at least", tuple(lines))], Setting("edits allowed, ε"))


def queries_by_model(panels: Sequence[tuple[str, Sequence[Line]]]) -> Figure:
    """Share of windows against the number of queries at one success probability, a line a model, a panel a mass."""
    drawn = [Panel(name, "windows extracted", tuple(lines)) for name, lines in panels]
    return overlay(drawn, Setting("queries, n", is_log=True))


def difference_forest(rows: Sequence[Paired]) -> Figure:
    """Paired differences in percentage points with 95 % intervals, a line a pair and quantity; 0 is no difference."""
    figure, axes = new_figure(WIDE, 1.1 + 0.26 * max(1, len(rows)))
    with house_style():
        if not rows:
            say_empty(axes, "No two models measured the same windows.")
            return figure
        pairs = list(dict.fromkeys((row.first, row.second) for row in rows))
        for place, row in enumerate(rows):
            number = pairs.index((row.first, row.second))
            colour, marker = SERIES[number % len(SERIES)], MARKERS[number % len(MARKERS)]
            axes.plot(100 * row.found.difference, place, marker=marker, color=colour)
            if row.found.interval.is_defined:
                axes.hlines(place, 100 * row.found.interval.low, 100 * row.found.interval.high, color=colour, alpha=0.5)
        axes.axvline(0, color=INK, linewidth=0.8)
        axes.set_yticks(range(len(rows)), [f"{row.first} → {row.second}: {row.name}" for row in rows])
        axes.invert_yaxis()
        axes.grid(visible=True, axis="x")
        axes.grid(visible=False, axis="y")
        axes.set_xlabel("difference in percentage points, second minus first")
    return figure


def windows_by_models(labels: Sequence[str], combinations: Sequence[SharedWindows]) -> Figure:
    """A bar for each combination of models that windows are extractable from, with dots below that name it."""
    shown = combinations[:MOST_COMBINATIONS]
    with house_style():
        figure = Figure(figsize=(WIDE, 2.5 + 0.28 * len(labels)), layout="constrained")
        if not shown:
            say_empty(figure.add_subplot(), "No target window is extractable from any of the models.")
            return figure
        bars, dots = figure.subplots(2, 1, sharex=True, height_ratios=(2.2, 0.3 * len(labels) + 0.1))
        places = np.arange(len(shown))
        alone = [sum(one.members) == 1 for one in shown]
        colours = [
            SERIES[one.members.index(True) % len(SERIES)] if only else SOFT
            for one, only in zip(shown, alone, strict=True)
        ]
        bars.bar(places, [one.windows for one in shown], color=colours, width=0.6)
        for place, one in zip(places, shown, strict=True):
            bars.annotate(
                f"{one.windows:,}",
                (place, one.windows),
                xytext=(0, 2),
                textcoords="offset points",
                ha="center",
                fontsize=8,
            )
        bars.set_ylabel("target windows")
        bars.tick_params(axis="x", length=0)
        for row in range(len(labels)):
            held = np.array([one.members[row] for one in shown])
            dots.scatter(places, np.full(len(shown), row), s=34, color=FAINT, linewidths=0)
            dots.scatter(
                places[held], np.full(int(held.sum()), row), s=34, color=SERIES[row % len(SERIES)], linewidths=0
            )
        dots.set_yticks(range(len(labels)), labels)
        dots.set_ylim(len(labels) - 0.5, -0.5)
        dots.set_xticks([])
        dots.grid(visible=False)
        dots.spines[["left", "bottom"]].set_visible(False)
        bars.margins(y=0.15)
    return figure


def rate_line(label: str, points: Sequence[Point], *, is_control: bool = False) -> Line:
    """A model's line; its control has a line of the one colour that controls have."""
    return Line(f"{label}, control" if is_control else label, tuple(points), is_control)
