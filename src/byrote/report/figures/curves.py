"""(n, p) curves and token ranks."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from byrote.report.figures.style import (
    BLUE,
    INK,
    SOFT,
    VERMILLION,
    WIDE,
    house_style,
    legend_above,
    log_axis,
    new_figure,
    percent_axis,
    say_empty,
)
from byrote.stats.curves import MassKind, RateCurve, RateCurves, queries_needed

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
    control: Sequence[RateCurves] = (),
    searched_down_to: float | None = None,
) -> Figure:
    """Rate against the number of queries, a panel per kind of mass, a line per success probability.

    Greedy, the control (at the middle probability) and the limit of all n stand beside them. Lower bounds that were
    not searched out below a mass of `searched_down_to` are dashed where smaller masses count.
    """
    with house_style():
        shown = [group for group in curves if group.windows]
        if not shown:
            figure, axes = new_figure()
            say_empty(axes, "There are no windows.")
            return figure
        figure = Figure(figsize=(WIDE, 3.5), layout="constrained")
        panels = figure.subplots(1, len(shown), sharey=True, squeeze=False)[0]
        of_kind = {group.mass_kind: group for group in control if group.windows}
        for axes, group in zip(panels, shown, strict=True):
            floor = searched_down_to if group.mass_kind is MassKind.LOWER_BOUND else None
            _draw_panel(axes, group, of_kind.get(group.mass_kind), floor, greedy_rate)
        panels[0].set_ylabel("windows extracted with probability p")
        panels[0].set_ylim(bottom=0)
        percent_axis(panels[0])
        _legend_of_all(figure, panels)
    return figure


def _draw_panel(
    axes: Axes, group: RateCurves, control: RateCurves | None, floor: float | None, greedy_rate: float | None
) -> None:
    colour = KIND_COLOURS[group.mass_kind]
    for index, curve in enumerate(group.curves):
        look = {"color": colour, "alpha": SHADES[index % len(SHADES)], "linewidth": 1.8}
        _draw_curve(axes, curve, floor, label=f"p = {curve.p:g}", look=look)
    limit = group.worst_case.value
    axes.axhline(limit, color=colour, linewidth=0.9, linestyle=":", label="any n")
    if control is not None:
        middle = control.curves[min(1, len(control.curves) - 1)]
        _draw_curve(axes, middle, floor, label=f"control, p = {middle.p:g}", look={"color": SOFT, "linewidth": 1.4})
    if greedy_rate is not None:
        axes.axhline(greedy_rate, color=INK, linewidth=1, linestyle="-.", label="greedy, one query")
    if floor is not None:
        axes.plot([], [], color=colour, linestyle="--", label="stopped windows by p_z alone")
    log_axis(axes, "x")
    axes.margins(x=0.01)
    axes.set_xlabel("queries, n")
    axes.set_title(KIND_NAMES[group.mass_kind], color=colour)


def _legend_of_all(figure: Figure, panels: Sequence[Axes]) -> None:
    """One legend beside the panels: what both have is named once, in the colour of the last."""
    entries: dict[str, Any] = {}
    for axes in panels:
        handles, labels = axes.get_legend_handles_labels()
        entries |= dict(zip(labels, handles, strict=True))
    figure.legend(list(entries.values()), list(entries), loc="outside right upper", borderaxespad=0.2)


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


def token_ranks(ranks: Sequence[int], *, kept: int | None = None) -> Figure:
    """The place (1 = first choice) of each target token of one window, log scale; those cut off by top-k are marked."""
    figure, axes = new_figure(WIDE, 2.4)
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
                xytext=(0, 3),
                textcoords="offset points",
                ha="right",
                va="bottom",
                fontsize=7,
                color=INK,
            )
        log_axis(axes, "y")
        axes.set_ylim(bottom=0.8)
        axes.set_xlabel("target token")
        axes.set_ylabel("rank under the model")
        legend_above(axes)
    return figure
