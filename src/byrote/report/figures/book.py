"""The book heat map: where in a text extraction succeeds, verbatim over near-verbatim, model under model."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import FuncFormatter

from byrote.report.figures.style import FAINT, HEAT, SOFT, UNMEASURED, WIDE, decade, house_style
from byrote.stats.population import Floats, stretch_maxima

COLUMNS = 1200
"""Characters are joined into this many columns, each showing its strongest character."""
HATCHED: dict[str, Any] = {"facecolor": "white", "edgecolor": UNMEASURED, "hatch": "//////", "linewidth": 0}


@dataclass(frozen=True)
class HeatRow:
    """One strip: per-character maxima, NaN where no window covers a character."""

    label: str
    heat: Floats


def book_heat_map(rows: Sequence[HeatRow], *, threshold: float, title: str = "") -> Figure:
    """Strips under each other on one log colour scale from τ to 1; white below τ, hatched where nothing is known."""
    with house_style():
        figure = Figure(figsize=(WIDE, 0.75 + 0.36 * len(rows) + 0.45), layout="constrained")
        grid = figure.subplots(len(rows), 1, sharex=True, squeeze=False)
        norm = LogNorm(vmin=min(threshold, 0.999), vmax=1)
        image = None
        for axes, row in zip(grid[:, 0], rows, strict=True):
            strip = np.ma.masked_invalid(stretch_maxima(row.heat, COLUMNS))
            # A log scale has no place for 0; anything below τ is drawn white all the same.
            strip = np.ma.maximum(strip, threshold * 1e-3)
            image = axes.imshow(
                strip[None, :],
                aspect="auto",
                cmap=HEAT,
                norm=norm,
                interpolation="nearest",
                extent=(0, len(row.heat), 0, 1),
            )
            # A patch of its own: a transparent figure takes the colours of the axes' background away.
            axes.add_patch(Rectangle((0, 0), 1, 1, transform=axes.transAxes, zorder=-1, **HATCHED))
            axes.set_yticks([0.5], [row.label])
            axes.tick_params(axis="y", length=0)
            axes.grid(visible=False)
            for spine in axes.spines.values():
                spine.set(visible=True, color=FAINT)
        grid[0, 0].set_title(title)
        if any(np.isnan(row.heat).any() for row in rows):
            _name_hatching(grid[0, 0])
        grid[-1, 0].set_xlabel("position in the text (characters)")
        if image is not None:
            bar = figure.colorbar(image, ax=list(grid[:, 0]), pad=0.01, aspect=12)
            bar.set_label("probability", color=SOFT)
            bar.ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: decade(value)))
            bar.ax.minorticks_off()
            bar.outline.set_visible(False)
    return figure


def _name_hatching(axes: Axes) -> None:
    axes.legend(
        handles=[Patch(**HATCHED, label="not measured")], loc="lower right", bbox_to_anchor=(1, 1), borderaxespad=0.2
    )
