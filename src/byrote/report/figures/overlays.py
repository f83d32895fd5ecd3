"""Lines over one setting, several panels side by side: sweeps and studies. Marks have intervals; curves have bands."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from byrote.report.figures.style import MARKERS, SERIES, SOFT, house_style, log_axis, percent_axis, say_empty
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


@house_style()
def overlay(panels: Sequence[Panel], setting: Setting) -> Figure:
    """The panels, three in a row, with one legend under them: a line has the same colour and mark in all."""
    names = list(dict.fromkeys(line.label for panel in panels for line in panel.lines))
    beside = min(len(panels), PANELS_BESIDE)
    rows, width = -(-len(panels) // beside), PANEL_INCHES * beside + 0.6
    columns = legend_columns(names, width)
    below = 0.25 + LEGEND_ROW_INCHES * -(-len(names) // columns)
    figure = Figure(figsize=(width, 3.1 * rows + below), layout="constrained")
    grid = figure.subplots(rows, beside, squeeze=False).ravel()
    every = grid[: len(panels)]
    for axes, panel in zip(every, panels, strict=True):
        _draw(axes, panel, setting, names)
    for axes in grid[len(panels) :]:
        axes.set_axis_off()
    handles = {line.get_label(): line for axes in every for line in axes.get_lines() if line.get_label() in names}
    if len(names) > 1:
        shown = [name for name in names if name in handles]
        figure.legend(
            [handles[name] for name in shown], [shortened(name, width) for name in shown],
            loc="outside lower left", ncols=columns, columnspacing=1.4,
        )  # fmt: skip
    return figure


def legend_columns(names: Sequence[str], width: float) -> int:
    """As many columns as stand beside each other in a legend that is `width` inches wide; at least one."""
    longest = max((len(shortened(name, width)) for name in names), default=0)
    return min(max(1, len(names)), max(1, int(width / (HANDLE_INCHES + CHARACTER_INCHES * longest))))


def shortened(name: str, width: float) -> str:
    """The two ends of a name that is longer than a legend of this width."""
    most = int((width - HANDLE_INCHES) / CHARACTER_INCHES)
    return name if len(name) <= most else f"{name[: most // 2 - 1]}…{name[-(most // 2) :]}"


def _draw(axes: Axes, panel: Panel, setting: Setting, names: Sequence[str]) -> None:
    if not any(line.points for line in panel.lines):
        say_empty(axes, "Nothing was measured here.")
        return
    if setting.is_log:
        log_axis(axes, "x")
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
        axes.annotate(
            f"shaded: {level.label}", (1.0, 0.5), xycoords="axes fraction", xytext=(3, 0), textcoords="offset points",
            rotation=90, ha="left", va="center", fontsize=7, color="#6b6e76",
        )  # fmt: skip
    axes.set_title(panel.title)
    axes.set_xlabel(setting.name)
    axes.set_ylabel(panel.value_name)
    if panel.is_share:
        percent_axis(axes)
    axes.set_ylim(bottom=0)


def _draw_line(axes: Axes, line: Line, number: int, setting: Setting, *, beside: int) -> None:
    """Bars of lines that share places stand beside each other, so that none hides another."""
    colour = SOFT if line.is_control else SERIES[number % len(SERIES)]
    is_curve = len(line.points) > MARKED_POINTS
    places = np.array([point.place for point in line.points])
    values = [point.value for point in line.points]
    low = np.array([np.nan if point.low is None else point.low for point in line.points])
    high = np.array([np.nan if point.high is None else point.high for point in line.points])
    style = "" if not setting.is_ordered else "-" if number < len(SERIES) else "--"
    if is_curve:
        solid = int((places <= line.solid_to).sum())
        axes.plot(places[:solid], values[:solid], color=colour, linestyle=style, label=line.label)
        if solid < len(places):
            beyond = slice(max(solid - 1, 0), None)
            axes.plot(places[beyond], values[beyond], color=colour, linestyle=":" if style == "--" else "--")
        if beside <= BANDS_AT_ONCE:
            axes.fill_between(places, low, high, color=colour, alpha=0.15, linewidth=0)
        else:
            chosen = slice(number % BAR_EVERY, None, BAR_EVERY)
            axes.vlines(places[chosen], low[chosen], high[chosen], color=colour, alpha=0.5, linewidth=1.2)
        return
    shifted = _shifted(places, number, beside, is_log=setting.is_log)
    # The second time round, a colour has another mark.
    marker = MARKERS[(number + number // len(SERIES)) % len(MARKERS)]
    axes.plot(shifted, values, color=colour, linestyle=style, marker=marker, label=line.label, clip_on=False, zorder=3)
    has_bar = ~np.isnan(low)
    axes.vlines(shifted[has_bar], low[has_bar], high[has_bar], color=colour, alpha=0.5, linewidth=1.4)


def _shifted(places: np.ndarray, number: int, beside: int, *, is_log: bool) -> np.ndarray:
    if len(places) < 2 or beside < 2:
        return places
    offset = (number % beside - (beside - 1) / 2) * min(0.12 / beside, 0.03)
    if is_log:
        return np.asarray(places * (places.max() / places.min()) ** offset)
    return np.asarray(places + (places.max() - places.min()) * offset)
