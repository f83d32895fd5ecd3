"""Rates by ε with intervals, and rates by number of copies in training."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from byrote.report.content import Drawing
from byrote.report.figures.style import (
    BLUE,
    INK,
    MARKERS,
    SERIES,
    SOFT,
    VERMILLION,
    house_style,
    legend_above,
    new_figure,
    percent_axis,
    say_empty,
)
from byrote.report.rates import Criterion, CriterionRate
from byrote.stats.intervals import Rate
from byrote.stats.population import Floats
from byrote.types import Split

RATE_LOOKS = {
    (Criterion.NEAR, Split.TARGET): {"color": VERMILLION, "marker": "o", "linestyle": "-"},
    (Criterion.GREEDY, Split.TARGET): {"color": INK, "marker": "o", "linestyle": "--", "markerfacecolor": "white"},
    (Criterion.NEAR, Split.CONTROL): {"color": SOFT, "marker": "s", "linestyle": "-"},
    (Criterion.GREEDY, Split.CONTROL): {"color": SOFT, "marker": "s", "linestyle": ":", "markerfacecolor": "white"},
}
CRITERION_NAMES = {Criterion.NEAR: "near-verbatim", Criterion.GREEDY: "greedy"}
DODGE = 0.07
VERDICT_COLOURS = {
    Split.TARGET: {"extractable": VERMILLION, "neither": "#e3ded2", "ruled out": BLUE},
    Split.CONTROL: {"extractable": INK, "neither": "#ecebe8", "ruled out": "#b4b6bb"},
}
"""From the bottom of a bar to its top; the control is grey."""


@house_style()
def rates_by_edits(rates: Sequence[CriterionRate], *, threshold: float) -> Drawing:
    """Share of windows that meet each criterion against ε, one line per criterion and split, with 95 % whiskers."""
    figure, axes = new_figure()
    caption = "Share of windows by number of edits allowed, with 95 % intervals; target beside control."
    drawing = Drawing("rates-by-edits", caption, figure, "near")
    for index, ((criterion, split), look) in enumerate(RATE_LOOKS.items()):
        found = [entry for entry in rates if (entry.criterion, entry.split) == (criterion, split)]
        if found:
            found.sort(key=lambda entry: entry.edits or 0)
            positions = np.array([entry.edits or 0 for entry in found]) + (index - 1.5) * DODGE
            label = f"{CRITERION_NAMES[criterion]}, {split.value}"
            _draw_rates(axes, positions, [entry.rate for entry in found], look={**look, "label": label})
    if not axes.lines:
        say_empty(axes, "No rate depends on ε in this run.")
        return drawing
    axes.set_xlabel("edits allowed, ε")
    axes.set_ylabel(f"windows (near-verbatim: mass ≥ {threshold:g})")
    axes.set_xticks(range(max(entry.edits or 0 for entry in rates) + 1))
    axes.set_ylim(bottom=0)
    axes.margins(y=0.08)
    percent_axis(axes)
    legend_above(axes)
    return drawing


@house_style()
def verdicts_by_edits(rates: Sequence[CriterionRate], *, threshold: float) -> Drawing:
    """A bar per ε and split: windows whose lower bound reaches τ, whose upper bound stays below it, and the rest."""
    figure, axes = new_figure()
    caption = "What the certified bounds say at each ε: shown to be extractable, ruled out, or neither."
    drawing = Drawing("verdicts-by-edits", caption, figure, "bounds")
    shares = {(entry.criterion, entry.split, entry.edits): entry.rate.value for entry in rates}
    splits = [split for split in Split if (Criterion.NOT_RULED_OUT, split, 0) in shares]
    if not splits:
        say_empty(axes, "The run holds no upper bounds.")
        return drawing
    every_edits = sorted({edits or 0 for criterion, _, edits in shares if criterion is Criterion.NOT_RULED_OUT})
    width = 0.8 / len(splits)
    for index, split in enumerate(splits):
        places = np.array(every_edits) + (index - (len(splits) - 1) / 2) * width
        shown = np.array([shares[Criterion.NEAR, split, edits] for edits in every_edits])
        possible = np.array([shares[Criterion.NOT_RULED_OUT, split, edits] for edits in every_edits])
        bottoms, tops = (0 * shown, shown, possible), (shown, possible, 0 * shown + 1)
        for bottom, top, (name, colour) in zip(bottoms, tops, VERDICT_COLOURS[split].items(), strict=True):
            label = f"{name}, {split.value}"
            axes.bar(places, top - bottom, 0.92 * width, bottom=bottom, label=label, color=colour)
    axes.set_xlabel("edits allowed, ε")
    axes.set_ylabel(f"windows, by mass ≥ {threshold:g}")
    axes.set_xticks(every_edits)
    axes.set_ylim(0, 1)
    percent_axis(axes)
    legend_above(axes, columns=len(splits))
    return drawing


def _draw_rates(axes: Axes, positions: Floats, rates: Sequence[Rate], *, look: Mapping[str, object]) -> None:
    """A line through the rates; a whisker wherever the interval is defined."""
    values = np.array([rate.value for rate in rates])
    axes.plot(positions, values, **look)  # type: ignore[arg-type]
    defined = np.array([rate.interval.is_defined for rate in rates])
    low = np.array([rate.interval.low for rate in rates])
    high = np.array([rate.interval.high for rate in rates])
    axes.vlines(positions[defined], low[defined], high[defined], color=str(look["color"]), alpha=0.45, linewidth=1.6)


@dataclass(frozen=True)
class CopiesSeries:
    """One model or criterion: rates by ascending number of copies."""

    label: str
    copies: tuple[int, ...]
    rates: tuple[Rate, ...]


@house_style()
def rate_by_copies(series: Sequence[CopiesSeries]) -> Figure:
    """Rates against the number of copies in training, on a scale that holds 0 and doubles with every step."""
    figure, axes = new_figure()
    every = sorted({copies for one in series for copies in one.copies})
    if not every:
        say_empty(axes, "No document's number of copies is known.")
        return figure
    place = {copies: float(np.log2(copies) + 1) if copies else 0.0 for copies in every}
    for index, one in enumerate(series):
        # Beside each other, so that no interval hides another.
        shift = 0.06 * (index - (len(series) - 1) / 2)
        positions = np.array([place[copies] + shift for copies in one.copies])
        look = {"color": SERIES[index % len(SERIES)], "marker": MARKERS[index % len(MARKERS)], "label": one.label}
        _draw_rates(axes, positions, one.rates, look=look)
    axes.set_xticks([place[copies] for copies in every], [str(copies) for copies in every])
    axes.set_xlabel("copies in training (log scale)")
    axes.set_ylabel("windows extractable")
    axes.set_ylim(-0.02, 1.02)
    percent_axis(axes)
    legend_above(axes)
    return figure
