"""What a search costs and how close it comes: beam-width sweep, Monte Carlo against the bounds."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure

from byrote.report.content import Drawing
from byrote.report.figures.style import (
    BLUE,
    INK,
    MARKERS,
    ORANGE,
    SERIES,
    VERMILLION,
    house_style,
    legend_above,
    log_axis,
    new_figure,
    percent_axis,
)


@dataclass(frozen=True)
class BeamWidthSeries:
    """One search variant: per beam width the recovery ratio against teacher forcing and the cost per window."""

    label: str
    widths: tuple[int, ...]
    recovery: tuple[float, ...]
    """Sum of masses found over the sum of p_z, or the share of verbatim-extractable windows recovered."""
    token_evaluations: tuple[float, ...]


@house_style()
def beam_width_sweep(series: Sequence[BeamWidthSeries]) -> Drawing:
    """Recovery and cost against beam width, side by side, on a doubling scale."""
    figure = Figure(figsize=(7.4, 3.2), layout="constrained")
    left, right = figure.subplots(1, 2, sharex=True)
    widths = sorted({width for one in series for width in one.widths})
    for index, one in enumerate(series):
        colour, marker = SERIES[index % len(SERIES)], MARKERS[index % len(MARKERS)]
        left.plot(one.widths, one.recovery, color=colour, marker=marker, label=one.label)
        right.plot(one.widths, one.token_evaluations, color=colour, marker=marker, label=one.label)
    left.axhline(1, color="#9a9da5", linewidth=0.9, linestyle="--")
    left.set_ylabel("recovered, relative to teacher forcing")
    percent_axis(left)
    right.set_ylabel("token evaluations per window")
    log_axis(right, "y")
    for axes in (left, right):
        axes.set_xscale("log", base=2)
        axes.set_xticks(widths, [str(width) for width in widths])
        axes.set_xlabel("beam width, B")
    left.legend(loc="best")
    caption = "How many verbatim-extractable windows the search finds by itself, and its cost, by beam width."
    return Drawing("beam-widths", caption, figure, "recovery", is_wide=True)


@dataclass(frozen=True)
class Convergence:
    """A running estimate: value, and its 95 % interval, after each number of token evaluations."""

    label: str
    token_evaluations: tuple[float, ...]
    value: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]


@house_style()
def monte_carlo_convergence(estimates: Sequence[Convergence], *, lower: float, upper: float, title: str = "") -> Figure:
    """Running estimates with their intervals against cost; the certified bounds as a band across."""
    figure, axes = new_figure(5.6, 3.4)
    axes.axhspan(lower, upper, color=BLUE, alpha=0.12, linewidth=0, label="certified bounds")
    axes.axhline(lower, color=BLUE, linewidth=0.9)
    axes.axhline(upper, color=BLUE, linewidth=0.9)
    for one, colour in zip(estimates, (VERMILLION, ORANGE, *SERIES[2:]), strict=False):
        axes.fill_between(one.token_evaluations, one.low, one.high, color=colour, alpha=0.2, linewidth=0)
        axes.plot(one.token_evaluations, one.value, color=colour, label=one.label)
    log_axis(axes, "x")
    highest = max([upper, *[float(np.nanmax(one.high)) for one in estimates]])
    axes.set_ylim(0, highest * 1.08)
    axes.set_xlabel("token evaluations")
    axes.set_ylabel("near-verbatim mass")
    axes.set_title(title)
    axes.legend(loc="best")
    return figure


@dataclass(frozen=True)
class SampledMass:
    """One window: what was computed of its mass (a bracket), and the share of samples with its interval."""

    lower: float
    upper: float
    sampled: float
    low: float
    high: float


@house_style()
def sampled_against_computed(windows: Sequence[SampledMass]) -> Figure:
    """Every window's sampled mass against the computed one, log-log: bars that miss the diagonal disagree."""
    figure, axes = new_figure()
    every = np.array([(one.lower, one.upper, one.sampled, one.low, one.high) for one in windows])
    floor = min(every[every > 0], default=0.1) / 2
    for lower, upper, sampled, low, high in np.maximum(every, floor):
        middle = (lower * upper) ** 0.5
        axes.hlines(sampled, lower, upper, color=BLUE, alpha=0.5, linewidth=1.6)
        axes.vlines(middle, low, high, color=VERMILLION, alpha=0.5, linewidth=1.6)
        axes.plot(middle, sampled, "o", color=VERMILLION)
    axes.plot([floor, 1], [floor, 1], color=INK, linewidth=0.8, linestyle="--", label="sampled = computed")
    axes.plot([], [], color=BLUE, alpha=0.5, label="certified bounds")
    axes.plot([], [], color=VERMILLION, alpha=0.5, label="95 % interval of the share")
    log_axis(axes, "both")
    axes.grid(visible=True, axis="both")
    axes.set_xlabel("computed mass (0 at the left edge)")
    axes.set_ylabel("share of samples (0 at the bottom)")
    legend_above(axes)
    return figure
