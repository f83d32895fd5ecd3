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
from rote.stats.roc import RocCurve

TIE_POINTS = 40
COLOURS = (SKY, ORANGE, GREEN, PURPLE, INK, BLUE, VERMILLION)


def drawn_curve(curve: RocCurve, edge: float) -> RocCurve:
    """The curve on a logarithmic axis that begins at `edge`. Where targets and controls are tied it rises in a straight
    line between two rates, which only points in between can show there."""
    false, true = curve
    between = [
        np.interp(np.geomspace(max(low, edge), high, TIE_POINTS)[1:-1], [low, high], [0.0, 1.0])
        if high > max(low, edge) and above > below
        else np.empty(0)
        for low, high, below, above in zip(false, false[1:], true, true[1:], strict=False)
    ]
    places = np.concatenate([index + part for index, part in enumerate(between)] + [np.arange(len(false))])
    places.sort()
    steps = np.arange(len(false))
    return RocCurve(np.maximum(np.interp(places, steps, false), edge), np.interp(places, steps, true))


def roc_curves(entries: Sequence[ScoreSeparation], *, title: str = "") -> Figure:
    """One line per score, from the least rate that the controls can show; dashed is what chance gives."""
    figure, axes = new_figure(height=4.2)
    least = 1 / max(entry.controls for entry in entries)
    with house_style():
        for entry, colour in zip(entries, COLOURS, strict=False):
            # Without a false positive a curve lies left of a logarithmic axis: it enters at its edge.
            false, true = drawn_curve(entry.curve, least / 2)
            axes.plot(false, true, color=colour, label=f"{NAMES[entry.score]}, AUC {entry.area.auc:.3f}", linewidth=1.6)
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
