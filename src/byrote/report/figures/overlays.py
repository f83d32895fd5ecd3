"""Lines over one setting, several panels side by side: sweeps and studies. Marks have intervals; curves have bands."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from byrote.report.figures import style
from byrote.stats.intervals import Rate

PANEL_INCHES = 4.4
PANELS_BESIDE = 3
LEGEND_ROW_INCHES = 0.2
HANDLE_INCHES = 0.7
CHARACTER_INCHES = 0.068
"""A legend's line with the blanks around it, and a character of its label."""
MARKED_POINTS = 12
"""Lines of more points are curves: a band, or bars at some of the points where bands would cover each other."""
BANDS_AT_ONCE = 2
BAR_EVERY = 9


class Point(NamedTuple):
    """A value over a place on the axis, with its interval where it has one."""

    place: float
    value: float
    low: float | None = None
    high: float | None = None

    @classmethod
    def of(cls, place: float, rate: Rate) -> "Point":
        interval = rate.interval
        return cls(place, rate.value, interval.low, interval.high) if interval.is_defined else cls(place, rate.value)


class Line(NamedTuple):
    label: str
    points: tuple[Point, ...]
    is_control: bool = False
    """Controls have one colour in every figure."""
    solid_to: float = math.inf
    """Beyond this place a curve is dashed: what it shows there is a bound that was not searched for."""


class Level(NamedTuple):
    """A level line with a band: a certified bracket, or a rate that the axis does not change."""

    label: str
    low: float
    high: float


class Panel(NamedTuple):
    """One axes. `is_share`: values are shares and shown as percentages."""

    title: str
    value_name: str
    lines: tuple[Line, ...]
    levels: tuple[Level, ...] = ()
    is_share: bool = True


class Setting(NamedTuple):
    """The axis: its name, the names of its places where they are no numbers, and whether it is logarithmic."""

    name: str
    ticks: tuple[tuple[float, str], ...] = ()
    is_log: bool = False
    is_ordered: bool = True
    """False where places have no order (texts, policies): a line from one to the next would show a false course."""


def overlay(panels: Sequence[Panel], setting: Setting) -> Figure:
    """The panels, three in a row, with one legend under them: a line has the same colour and mark in all."""
    names = list(dict.fromkeys(line.label for panel in panels for line in panel.lines))
    beside = min(len(panels), PANELS_BESIDE)
    rows, width = -(-len(panels) // beside), PANEL_INCHES * beside + 0.6
    longest = max((len(shortened(name, width)) for name in names), default=0)
    columns = max(1, min(len(names), int(width / (HANDLE_INCHES + CHARACTER_INCHES * longest))))
    below = 0.25 + LEGEND_ROW_INCHES * -(-len(names) // columns)
    figure = Figure(figsize=(width, 3.1 * rows + below), layout="constrained")
    grid = figure.subplots(rows, beside, squeeze=False).ravel()
    for axes, panel in zip(grid, panels, strict=False):
        _draw(axes, panel, setting, names)
    for axes in grid[len(panels) :]:
        axes.set_axis_off()
    if len(names) > 1:
        handles = {line.get_label(): line for axes in grid for line in axes.get_lines()}
        shown = [name for name in names if name in handles]
        labels = [shortened(name, width) for name in shown]
        look: dict[str, Any] = {"loc": "outside lower left", "ncols": columns, "columnspacing": 1.4}
        figure.legend([handles[name] for name in shown], labels, **look)
    return figure


def shortened(name: str, width: float) -> str:
    """The two ends of a name that is longer than a legend of this width."""
    most = int((width - HANDLE_INCHES) / CHARACTER_INCHES)
    return name if len(name) <= most else f"{name[: most // 2 - 1]}…{name[-(most // 2) :]}"


def _draw(axes: Axes, panel: Panel, setting: Setting, names: Sequence[str]) -> None:
    if not any(line.points for line in panel.lines):
        style.say_empty(axes, "Nothing was measured here.")
        return
    if setting.is_log:
        style.log_axis(axes, "x")
    places = {point.place for line in panel.lines for point in line.points}
    if len(places) == 1:
        (only,) = places
        axes.set_xlim((only / 2, only * 2) if setting.is_log else (only - 0.5, only + 0.5))
    if setting.ticks:
        axes.set_xticks([place for place, _ in setting.ticks], [name for _, name in setting.ticks])
    for line in panel.lines:
        _draw_line(axes, line, names.index(line.label), setting, beside=len(panel.lines))
    for level in panel.levels:
        axes.axhspan(level.low, level.high, color="#d9d6ce", alpha=0.5, linewidth=0, zorder=0)
        look = {"xycoords": "axes fraction", "rotation": 90, "va": "center", "fontsize": 7, "color": style.SOFT}
        style.label_point(axes, f"shaded: {level.label}", (1.0, 0.5), offset=(3, 0), **look)
    axes.set(title=panel.title, xlabel=setting.name, ylabel=panel.value_name, ylim=(0, None))
    if panel.is_share:
        style.percent_axis(axes)


def _draw_line(axes: Axes, line: Line, number: int, setting: Setting, *, beside: int) -> None:
    """Bars of lines that share places stand beside each other, so that none hides another."""
    colour = style.SOFT if line.is_control else style.SERIES[number % len(style.SERIES)]
    places = np.array([point.place for point in line.points])
    values = [point.value for point in line.points]
    low = np.array([np.nan if point.low is None else point.low for point in line.points])
    high = np.array([np.nan if point.high is None else point.high for point in line.points])
    dashes = "" if not setting.is_ordered else "-" if number < len(style.SERIES) else "--"
    if len(line.points) > MARKED_POINTS:
        solid = int((places <= line.solid_to).sum())
        axes.plot(places[:solid], values[:solid], color=colour, linestyle=dashes, label=line.label)
        if solid < len(places):
            beyond = slice(max(solid - 1, 0), None)
            axes.plot(places[beyond], values[beyond], color=colour, linestyle=":" if dashes == "--" else "--")
        if beside <= BANDS_AT_ONCE:
            axes.fill_between(places, low, high, color=colour, alpha=0.15, linewidth=0)
        else:
            chosen = slice(number % BAR_EVERY, None, BAR_EVERY)
            axes.vlines(places[chosen], low[chosen], high[chosen], color=colour, alpha=0.5, linewidth=1.2)
        return
    has_bar = ~np.isnan(low)
    if len(places) > 1 and beside > 1 and has_bar.any():
        shift = (number % beside - (beside - 1) / 2) * min(0.12 / beside, 0.03)
        least, most = places.min(), places.max()
        places = places * (most / least) ** shift if setting.is_log else places + (most - least) * shift
    # The second time round, a colour has another mark.
    marker = style.MARKERS[(number + number // len(style.SERIES)) % len(style.MARKERS)]
    axes.plot(places, values, color=colour, linestyle=dashes, marker=marker, label=line.label, clip_on=False, zorder=3)
    axes.vlines(places[has_bar], low[has_bar], high[has_bar], color=colour, alpha=0.5, linewidth=1.4)
