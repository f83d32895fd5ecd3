"""(n, p) curves and token ranks."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rote.report.figures.style import (
    BLUE,
    INK,
    SOFT,
    VERMILLION,
    house_style,
    legend_above,
    log_axis,
    new_figure,
    percent_axis,
    say_empty,
)
from rote.stats.curves import MassKind, RateCurve, RateCurves, queries_needed

SHADES = (0.35, 0.55, 0.78, 1.0)
"""Opacity per success probability: the harder to satisfy, the darker."""
KIND_NAMES = {
    MassKind.EXACT: "verbatim",
    MassKind.LOWER_BOUND: "near-verbatim, at least",
    MassKind.UPPER_BOUND: "near-verbatim, at most",
}
KIND_COLOURS = {MassKind.EXACT: BLUE, MassKind.LOWER_BOUND: VERMILLION, MassKind.UPPER_BOUND: SOFT}


def query_curves(
    curves: Sequence[RateCurves],
    *,
    greedy_rate: float | None,
    searched_down_to: float | None = None,
    title: str = "",
) -> Figure:
    """Rate against the number of queries, one line per success probability; greedy and the limit as level lines.

    Lower bounds that were not searched out below a mass of `searched_down_to` are dashed where smaller masses count.
    """
    figure, axes = new_figure(5.2, 4.2)
    with house_style():
        if not any(group.windows for group in curves):
            say_empty(axes, "There are no windows.")
            return figure
        for group in curves:
            colour = KIND_COLOURS[group.mass_kind]
            for index, curve in enumerate(group.curves):
                look = {"color": colour, "alpha": SHADES[index % len(SHADES)]}
                label = f"{KIND_NAMES[group.mass_kind]}, p = {curve.p:g}"
                floor = searched_down_to if group.mass_kind is MassKind.LOWER_BOUND else None
                _draw_curve(axes, curve, floor, label=label, look=look)
            limit = group.worst_case.value
            axes.axhline(limit, color=colour, linewidth=0.9, linestyle=":")
            axes.annotate(
                "any n",
                (1, limit),
                xycoords=("axes fraction", "data"),
                xytext=(2, 0),
                textcoords="offset points",
                color=colour,
                fontsize=7,
                va="center",
            )
        if greedy_rate is not None:
            axes.axhline(greedy_rate, color=INK, linewidth=1, linestyle="-.", label="greedy, one query")
        if searched_down_to is not None and any(group.mass_kind is MassKind.LOWER_BOUND for group in curves):
            axes.plot([], [], color=VERMILLION, linestyle="--", label="stopped windows by p_z alone")
        log_axis(axes, "x")
        axes.set_ylim(bottom=0)
        axes.margins(x=0.01)
        axes.set_xlabel("queries, n")
        axes.set_ylabel("windows extracted with probability p")
        percent_axis(axes)
        figure.suptitle(title, x=0.01, ha="left", fontsize=9.5, fontweight="bold")
        legend_above(axes, columns=2)
    return figure


def _draw_curve(
    axes: Axes, curve: RateCurve, searched_down_to: float | None, *, label: str, look: Mapping[str, Any]
) -> None:
    """One line; dashed from the last number of queries for which only masses of `searched_down_to` or more count."""
    queries, values = np.array(curve.queries), np.array([rate.value for rate in curve.rates])
    most = np.inf if searched_down_to is None else queries_needed(searched_down_to, curve.p, whole=False)
    solid = int((queries <= most).sum())
    axes.plot(queries[:solid], values[:solid], label=label, **look)
    if solid < len(queries):
        start = max(solid - 1, 0)
        axes.plot(queries[start:], values[start:], linestyle="--", **look)


def token_ranks(ranks: Sequence[int], *, kept: int | None = None, title: str = "") -> Figure:
    """The place (1 = first choice) of each target token of one window, log scale; those cut off by top-k are marked."""
    figure, axes = new_figure(6.2, 2.6)
    with house_style():
        positions = np.arange(1, len(ranks) + 1)
        values = np.asarray(ranks, dtype=np.float64)
        outside = values > kept if kept is not None else np.zeros(len(values), dtype=bool)
        axes.vlines(positions, 0.8, values, color="#d9d6ce", linewidth=1.2)
        axes.scatter(positions[~outside], values[~outside], color=BLUE, s=14, zorder=3, label="kept by the policy")
        if outside.any():
            axes.scatter(
                positions[outside],
                values[outside],
                color=VERMILLION,
                marker="D",
                s=18,
                zorder=3,
                label="cut off: probability 0",
            )
        if kept is not None:
            axes.axhline(kept, color=INK, linewidth=0.9, linestyle="--")
            axes.annotate(
                f"k = {kept}",
                (1, kept),
                xycoords=("axes fraction", "data"),
                ha="right",
                va="bottom",
                fontsize=7,
                color=INK,
            )
        log_axis(axes, "y")
        axes.set_ylim(bottom=0.8)
        axes.set_xlabel("target token")
        axes.set_ylabel("rank under the model")
        figure.suptitle(title, x=0.01, ha="left", fontsize=9.5, fontweight="bold")
        legend_above(axes)
    return figure
