"""Memorized or merely likely: conditional against prior probability, and the shares that survive the correction."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure

from rote.report.figures.style import BLUE, INK, SOFT, VERMILLION, house_style, new_figure, percent_axis
from rote.stats.population import Floats


def prior_scatter(
    log_conditional: Floats, log_prior: Floats, *, least_conditional: float, least_ratio: float, title: str = ""
) -> Figure:
    """log P(s|p) against log v̂_s; a window is prior-aware memorized above m and left of the line of ratio n."""
    figure, axes = new_figure(4.8, 4.2)
    with house_style():
        ten = np.log(10)
        x, y = log_prior / ten, log_conditional / ten
        extractable = log_conditional > np.log(least_conditional)
        memorized = extractable & (log_conditional - log_prior > np.log(least_ratio))
        groups = [
            (~extractable, SOFT, "o", "not extractable"),
            (extractable & ~memorized, BLUE, "^", "extractable, merely likely"),
            (memorized, VERMILLION, "D", "prior-aware memorized"),
        ]
        for rows, colour, marker, label in groups:
            axes.scatter(
                x[rows],
                y[rows],
                s=14,
                color=colour,
                marker=marker,
                alpha=0.6,
                linewidths=0,
                label=f"{label} ({int(rows.sum())})",
                rasterized=len(x) > 2_000,
            )
        finite = np.concatenate([x[np.isfinite(x)], [np.log10(least_conditional)]])
        span = np.array([finite.min() - 0.5, finite.max() + 0.5])
        axes.plot(
            span,
            span + np.log10(least_ratio),
            color=INK,
            linewidth=0.9,
            linestyle="--",
            label=f"ratio = {least_ratio:.3g}",
        )
        axes.axhline(
            np.log10(least_conditional), color=INK, linewidth=0.9, linestyle=":", label=f"m = {least_conditional:g}"
        )
        axes.set_xlim(*span)
        axes.grid(visible=True, axis="both")
        axes.set_xlabel("log₁₀ of the probability without the prefix, v̂")
        axes.set_ylabel("log₁₀ of the probability given the prefix")
        axes.set_title(title)
        axes.legend(loc="best", fontsize=7)
    return figure


@dataclass(frozen=True)
class PriorShare:
    """One model or prefix length: extractable and prior-aware memorized among `windows`."""

    label: str
    windows: int
    extractable: int
    memorized: int


def prior_shares(shares: Sequence[PriorShare], *, title: str = "") -> Figure:
    """Bars of the extractable share, the prior-aware memorized part of it filled."""
    figure, axes = new_figure(max(3.6, 1.1 * len(shares) + 1.4), 3.4)
    with house_style():
        positions = np.arange(len(shares))
        extractable = np.array([share.extractable / share.windows if share.windows else np.nan for share in shares])
        memorized = np.array([share.memorized / share.windows if share.windows else np.nan for share in shares])
        axes.bar(positions, extractable, width=0.6, color="white", edgecolor=BLUE, linewidth=1.2, label="extractable")
        axes.bar(positions, memorized, width=0.6, color=VERMILLION, label="of which prior-aware memorized")
        for position, share, top in zip(positions, shares, extractable, strict=True):
            if share.extractable:
                kept = f"{share.memorized / share.extractable:.0%} kept"
                axes.annotate(
                    kept, (position, top), xytext=(0, 3), textcoords="offset points", ha="center", fontsize=7.5
                )
        axes.set_xticks(positions, [share.label for share in shares])
        axes.set_ylabel("windows")
        axes.margins(y=0.15)
        axes.set_ylim(bottom=0)
        percent_axis(axes)
        axes.set_title(title)
        axes.legend(loc="best")
    return figure
