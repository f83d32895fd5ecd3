"""Rates by group: one line a group, a mark per criterion and side."""

from collections.abc import Sequence

from matplotlib.figure import Figure

from rote.report.figures.style import (
    BLUE,
    INK,
    VERMILLION,
    WIDE,
    house_style,
    legend_above,
    new_figure,
    percent_axis,
    say_empty,
)
from rote.report.groups import GroupRate
from rote.report.rates import Criterion
from rote.types import Split

COLOURS = {Criterion.GREEDY: INK, Criterion.VERBATIM: BLUE, Criterion.NEAR: VERMILLION}
NAMES = {Criterion.GREEDY: "greedy, exact", Criterion.VERBATIM: "word for word", Criterion.NEAR: "nearly"}
MOST_GROUPS = 24
LINE_INCHES = 0.42


def rates_by_group(entries: Sequence[GroupRate]) -> Figure:
    """Groups with the most records first; what does not fit is in the table."""
    sizes: dict[str, int] = {}
    for entry in entries:
        sizes[entry.group] = max(sizes.get(entry.group, 0), entry.rate.n)
    groups = sorted(sizes, key=lambda group: (-sizes[group], group))[:MOST_GROUPS]
    figure, axes = new_figure(WIDE, 1.4 + LINE_INCHES * max(1, len(groups)))
    with house_style():
        if not groups:
            say_empty(axes, "No record of this run has a group.")
            return figure
        marks = list(dict.fromkeys((entry.criterion, entry.split) for entry in entries))
        for number, (criterion, split) in enumerate(marks):
            own = {entry.group: entry.rate for entry in entries if (entry.criterion, entry.split) == (criterion, split)}
            shift = (number - (len(marks) - 1) / 2) * 0.7 / max(1, len(marks))
            places = [place + shift for place, group in enumerate(groups) if group in own]
            rates = [own[group] for group in groups if group in own]
            colour = COLOURS[criterion]
            face = colour if split is Split.TARGET else "white"
            label = f"{NAMES[criterion]}, {split.value}"
            values = [rate.value for rate in rates]
            axes.plot(values, places, "o", color=colour, markerfacecolor=face, label=label, clip_on=False)
            for place, rate in zip(places, rates, strict=True):
                if rate.interval.is_defined:
                    axes.hlines(place, rate.interval.low, rate.interval.high, color=colour, alpha=0.45, linewidth=1.6)
        axes.set_yticks(range(len(groups)), [f"{group} ({sizes[group]})" for group in groups])
        axes.set_ylim(len(groups) - 0.5, -0.5)
        axes.set_xlim(-0.02, 1.02)
        axes.grid(visible=True, axis="x")
        axes.grid(visible=False, axis="y")
        axes.set_xlabel("records extractable")
        percent_axis(axes, "x")
        legend_above(axes)
    return figure
