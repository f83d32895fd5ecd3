"""The book heat map: where in a text extraction succeeds, verbatim over near-verbatim, model under model."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import FuncFormatter

from byrote.report.content import Drawing
from byrote.report.figures.style import FAINT, HEAT, SOFT, UNMEASURED, WIDE, decade, house_style
from byrote.stats.population import Floats, stretch_maxima

COLUMNS = 1200
"""Characters are joined into this many columns, each showing its strongest character."""
HATCHED: dict[str, Any] = {"facecolor": "white", "edgecolor": UNMEASURED, "hatch": "//////", "linewidth": 0}


class HeatRow(NamedTuple):
    """One strip: per-character maxima, NaN where no window covers a character."""

    label: str
    heat: Floats


@house_style()
def book_heat_map(rows: Sequence[HeatRow], *, threshold: float, title: str, file: str) -> Drawing:
    """Strips under each other on one log colour scale from τ to 1; white below τ, hatched where nothing is known."""
    figure = Figure(figsize=(WIDE, 0.75 + 0.36 * len(rows) + 0.45), layout="constrained")
    grid = figure.subplots(len(rows), 1, sharex=True, squeeze=False)[:, 0]
    norm = LogNorm(vmin=min(threshold, 0.999), vmax=1)
    for axes, row in zip(grid, rows, strict=True):
        strip = np.ma.masked_invalid(stretch_maxima(row.heat, COLUMNS))
        # A log scale has no place for 0; anything below τ is drawn white all the same.
        strip = np.ma.maximum(strip, threshold * 1e-3)
        extent = (0, len(row.heat), 0, 1)
        image = axes.imshow(strip[None, :], aspect="auto", cmap=HEAT, norm=norm, interpolation="nearest", extent=extent)
        # A patch of its own: a transparent figure takes the colours of the axes' background away.
        axes.add_patch(Rectangle((0, 0), 1, 1, transform=axes.transAxes, zorder=-1, **HATCHED))
        axes.set_yticks([0.5], [row.label])
        axes.tick_params(axis="y", length=0)
        axes.grid(visible=False)
        for spine in axes.spines.values():
            spine.set(visible=True, color=FAINT)
    grid[0].set_title(title)
    if any(np.isnan(row.heat).any() for row in rows):
        hatching = Patch(**HATCHED, label="not measured")
        grid[0].legend(handles=[hatching], loc="lower right", bbox_to_anchor=(1, 1), borderaxespad=0.2)
    grid[-1].set_xlabel("position in the text (characters)")
    bar = figure.colorbar(image, ax=list(grid), pad=0.01, aspect=12)
    bar.set_label("probability", color=SOFT)
    bar.ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: decade(value)))
    bar.ax.minorticks_off()
    bar.outline.set_visible(False)
    caption = (
        f"{title}: the largest probability over the windows that cover each character; white below τ, hatched where "
        "no window measured it."
    )
    return Drawing(file, caption, figure, "covered", is_wide=True)
