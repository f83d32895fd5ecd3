"""One look for every figure: colour-blind safe (Okabe–Ito), text kept as text in SVG and PDF, no global state."""

import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from typing import Any, Literal

import matplotlib
import numpy as np
from matplotlib import font_manager
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from byrote.report.words import SUPERSCRIPTS

BLUE = "#0072b2"
ORANGE = "#e69f00"
VERMILLION = "#d55e00"
GREEN = "#009e73"
SKY = "#56b4e9"
PURPLE = "#cc79a7"
INK = "#222326"
SOFT = "#6b6e76"
FAINT = "#dddad2"
UNMEASURED = "#b9b6ad"
"""Hatching of text that no window covers."""
SERIES = (BLUE, VERMILLION, GREEN, ORANGE, PURPLE, SKY, INK)
"""Colours of models or settings, in order."""
WIDE = 9.2
"""Inches of a figure that takes a whole row of the page; all others are as large as each other."""
DRAWN_COLUMNS = ("x", "y", "x_low", "x_high", "y_low", "y_high", "value")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
"""A second cue beside colour, in the same order."""

HEAT = LinearSegmentedColormap.from_list(
    "byrote heat", ["#fffdf6", "#ffe9b3", "#ffd37c", "#f89b44", "#dc5a2a", "#b93a1d", "#7a1f14"]
).with_extremes(under="white", bad=(1, 1, 1, 0))
"""Light to dark with falling lightness throughout, the page's own scale."""

PREFERRED_FONTS = ("Inter", "Helvetica Neue", "Arial", "Liberation Sans")

RC: Any = {
    "svg.fonttype": "none",
    "pdf.fonttype": 42,
    "svg.hashsalt": "byrote",
    # Document names come from users: a dollar sign in one is a dollar sign, not mathematics.
    "text.parse_math": False,
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 9,
    "axes.labelcolor": INK,
    "axes.edgecolor": SOFT,
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": "#ebe8e1",
    "grid.linewidth": 0.7,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "xtick.major.width": 0.7,
    "ytick.major.width": 0.7,
    "xtick.minor.size": 0,
    "ytick.minor.size": 0,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "lines.linewidth": 1.6,
    "lines.markersize": 4.5,
    "figure.dpi": 150,
    "savefig.dpi": 200,
}


@contextmanager
def house_style() -> Iterator[None]:
    """Figures made or saved inside have the house look. Pages draw all of theirs inside."""
    installed = set(font_manager.get_font_names())
    # The first preferred family that is installed, then the one matplotlib ships for the signs the first lacks.
    families = [*[name for name in PREFERRED_FONTS if name in installed][:1], "DejaVu Sans"]
    with matplotlib.rc_context({**RC, "font.family": families}):
        yield


def new_figure(width: float = 5.2, height: float = 3.7) -> tuple[Figure, Axes]:
    """A figure with one axes, in inches, laid out so that nothing is cut off. No pyplot, so nothing stays open."""
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.add_subplot()


def save_bytes(figure: Figure, kind: str) -> bytes:
    """The figure as svg, png or pdf; the same bytes for the same figure."""
    buffer = BytesIO()
    metadata = {"Date": None} if kind == "svg" else {"CreationDate": None} if kind == "pdf" else None
    with house_style(), warnings.catch_warnings():
        # A name in a script that no installed font has becomes boxes in PNG; SVG keeps the text itself.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        # Vector files have no background of their own: they lie on any page.
        figure.savefig(buffer, format=kind, metadata=metadata, transparent=kind != "png")
    # The layout is settled by the first drawing; working it out again for every format is half the time.
    figure.set_layout_engine("none")
    return buffer.getvalue()


def drawn_rows(figure: Figure) -> list[dict[str, Any]]:
    """The numbers behind a figure as it was drawn: a row for every point of a line or scatter (x, y), bar and interval
    (their ends) and cell of a heat map (its value), with the names of panel and series. Not the outlines of violins,
    and no lines across a whole panel."""
    rows: list[dict[str, Any]] = []
    for number, axes in enumerate(figure.axes, 1):
        panel = axes.get_title("left") or axes.get_ylabel() or str(number)
        bars = {patch: container.get_label() for container in axes.containers for patch in container}

        def add(series: object, panel: str = panel, **numbers: float) -> None:
            name = "" if str(series).startswith("_") else str(series)
            found = {column: numbers.get(column) for column in DRAWN_COLUMNS}
            rows.append({"panel": panel, "series": name, **found})

        for line in axes.lines:
            if line.get_transform().contains_branch(axes.transData) and line.get_transform() == axes.transData:
                for x, y in np.asarray(line.get_xydata(), dtype=np.float64).tolist():
                    add(line.get_label(), x=x, y=y)
        for patch in axes.patches:
            if isinstance(patch, Rectangle) and patch.get_transform().contains_branch(axes.transData):
                (left, bottom), width, height = patch.get_xy(), patch.get_width(), patch.get_height()
                series = bars.get(patch, patch.get_label())
                add(series, x_low=left, x_high=left + width, y_low=bottom, y_high=bottom + height)
        for collection in axes.collections:
            if isinstance(collection, LineCollection):
                for (x_low, y_low), (x_high, y_high) in (one for one in collection.get_segments() if len(one) == 2):
                    add(collection.get_label(), x_low=x_low, x_high=x_high, y_low=y_low, y_high=y_high)
            elif isinstance(collection, PathCollection):
                for x, y in np.ma.asarray(collection.get_offsets()).filled(np.nan).tolist():
                    add(collection.get_label(), x=x, y=y)
        for image in axes.images:
            values = np.ma.asarray(image.get_array(), dtype=np.float64).filled(np.nan)
            if values.ndim == 2:
                left, right, bottom, top = image.get_extent()
                across, down = (right - left) / values.shape[1], (bottom - top) / values.shape[0]
                for (row, column), value in np.ndenumerate(values):
                    add("", x=left + (column + 0.5) * across, y=top + (row + 0.5) * down, value=value)
    return rows


def percent_axis(axes: Axes, axis: str = "y") -> None:
    """Shares in [0, 1] labelled as percentages."""
    chosen = axes.yaxis if axis == "y" else axes.xaxis
    chosen.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g} %"))


def log_axis(axes: Axes, axis: Literal["x", "y", "both"]) -> None:
    """Decades labelled 10⁻³, 0.01 … as plain text: it stays searchable, and mathematics mode would be slow."""
    for name, chosen in (("x", axes.xaxis), ("y", axes.yaxis)):
        if axis in (name, "both"):
            (axes.set_xscale if name == "x" else axes.set_yscale)("log")
            chosen.set_major_locator(_Decades(numticks=9))
            chosen.set_minor_locator(NullLocator())
            chosen.set_major_formatter(FuncFormatter(lambda value, _: decade(value)))


class _Decades(LogLocator):
    """Powers of ten; 2 and 5 between them where fewer than two powers are in sight."""

    def tick_values(self, vmin: float, vmax: float) -> Any:
        ticks = super().tick_values(vmin, vmax)
        if sum(vmin <= tick <= vmax for tick in ticks) >= 2:
            return ticks
        return LogLocator(subs=(1.0, 2.0, 5.0), numticks=9).tick_values(vmin, vmax)


def decade(value: float) -> str:
    """A power of ten as text, small ones written out; what lies between two powers as it is."""
    if value <= 0:
        return "0"
    power = round(math.log10(value))
    if not math.isclose(value, 10.0**power):
        return f"{value:g}"
    return f"{10.0**power:g}" if -2 <= power <= 3 else "10" + str(power).translate(SUPERSCRIPTS)


def legend_above(axes: Axes, columns: int = 2) -> None:
    """The legend over the plot, where it can hide no point."""
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1.0), ncols=columns, borderaxespad=0.4, columnspacing=1.4)


def value_grid(axes: Axes) -> None:
    """Vertical grid lines alone, for figures whose values run along x."""
    axes.grid(visible=True, axis="x")
    axes.grid(visible=False, axis="y")


def label_point(axes: Axes, words: str, at: tuple[float, float], *, offset: tuple[float, float], **look: Any) -> None:
    """Words beside a point, `offset` in points."""
    axes.annotate(words, at, xytext=offset, textcoords="offset points", **look)


def say_empty(axes: Axes, reason: str) -> None:
    """The reason in place of an empty plot."""
    axes.set_axis_off()
    axes.text(0.5, 0.5, reason, ha="center", va="center", color=SOFT, transform=axes.transAxes, wrap=True)
