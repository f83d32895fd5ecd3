"""Receiver operating characteristics on a logarithmic axis, where few false positives can be read."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from rote.report.figures.style import (
    BLUE,
    GREEN,
    INK,
    ORANGE,
    PURPLE,
    SKY,
    SOFT,
    VERMILLION,
    house_style,
    legend_above,
    log_axis,
    new_figure,
    percent_axis,
)
from rote.report.separation import FALSE_POSITIVE_RATES, NAMES, ScoreSeparation

COLOURS = (SKY, ORANGE, GREEN, PURPLE, INK, BLUE, VERMILLION)


def roc_curves(entries: Sequence[ScoreSeparation], *, title: str = "") -> Figure:
    """One line per score, from the least rate that the controls can show; dashed is what chance gives."""
    figure, axes = new_figure(height=4.2)
    least = 1 / max(entry.controls for entry in entries)
    with house_style():
        for entry, colour in zip(entries, COLOURS, strict=False):
            false, true = entry.curve
            # Without a false positive a curve lies left of a logarithmic axis: it enters at its edge.
            label = f"{NAMES[entry.score]}, AUC {entry.area.auc:.3f}"
            axes.step(np.maximum(false, least / 2), true, where="post", color=colour, label=label, linewidth=1.6)
        diagonal = np.geomspace(least / 2, 1.0, 50)
        axes.plot(diagonal, diagonal, "--", color=SOFT, linewidth=1, label="chance")
        for rate in FALSE_POSITIVE_RATES:
            if rate >= least / 2:
                axes.axvline(rate, color=SOFT, linewidth=0.8, linestyle=":")
        log_axis(axes, "x")
        percent_axis(axes)
        axes.set_xlim(least / 2, 1.0)
        axes.set_ylim(-0.01, 1.02)
        axes.set_xlabel("share of control windows above the threshold")
        axes.set_ylabel("share of target windows above it")
        figure.suptitle(title, x=0.01, ha="left", fontsize=9.5, fontweight="bold")
        legend_above(axes)
    return figure
