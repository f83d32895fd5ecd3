"""(n, p) curves and token ranks."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from byrote.report.content import Drawing
from byrote.report.figures.style import (
    BLUE,
    INK,
    SOFT,
    VERMILLION,
    WIDE,
    house_style,
    label_point,
    legend_above,
    log_axis,
    new_figure,
    percent_axis,
    say_empty,
)
from byrote.stats.curves import MassKind, RateCurve, RateCurves, queries_needed

SHADES = (0.35, 0.55, 0.78, 1.0)
"""Opacity per success probability: the harder to satisfy, the darker."""
KIND_LOOKS = {
    MassKind.EXACT: (BLUE, "verbatim"),
    MassKind.LOWER_BOUND: (VERMILLION, "near-verbatim, at least"),
    MassKind.UPPER_BOUND: (SOFT, "near-verbatim, at most"),
}


@house_style()
def query_curves(
    curves: Sequence[RateCurves],
    *,
    greedy_rate: float | None,
    control: Sequence[RateCurves] = (),
    searched_down_to: float | None = None,
    dashed: str = "",
) -> Drawing:
    """Rate against the number of queries, a panel per kind of mass, a line per success probability.

    Greedy, the control (at the middle probability) and the limit of all n stand beside them. Lower bounds that were
    not searched out below a mass of `searched_down_to` are dashed where smaller masses count; `dashed` is the reason
    in words.
    """
    shown = [group for group in curves if group.windows]
    figure = Figure(figsize=(WIDE, 3.5), layout="constrained")
    caption = "Share of target windows that come out at least once with probability p within n queries."
    if searched_down_to is not None:
        caption += f" Dashed: {dashed}."
    drawing = Drawing("queries", caption, figure, "queries", is_wide=True)
    if not shown:
        say_empty(figure.add_subplot(), "There are no windows.")
        return drawing
    panels = figure.subplots(1, len(shown), sharey=True, squeeze=False)[0]
    of_kind = {group.mass_kind: group for group in control if group.windows}
    legend: dict[str, Any] = {}
    for axes, group in zip(panels, shown, strict=True):
        floor = searched_down_to if group.mass_kind is MassKind.LOWER_BOUND else None
        _draw_panel(axes, group, of_kind.get(group.mass_kind), floor, greedy_rate)
        handles, labels = axes.get_legend_handles_labels()
        legend |= dict(zip(labels, handles, strict=True))
    panels[0].set_ylabel("windows extracted with probability p")
    panels[0].set_ylim(bottom=0)
    percent_axis(panels[0])
    figure.legend(list(legend.values()), list(legend), loc="outside right upper", borderaxespad=0.2)
    return drawing


def _draw_panel(
    axes: Axes, group: RateCurves, control: RateCurves | None, floor: float | None, greedy_rate: float | None
) -> None:
    colour, title = KIND_LOOKS[group.mass_kind]
    for index, curve in enumerate(group.curves):
        look = {"color": colour, "alpha": SHADES[index % len(SHADES)], "linewidth": 1.8}
        _draw_curve(axes, curve, floor, label=f"p = {curve.p:g}", look=look)
    axes.axhline(group.worst_case.value, color=colour, linewidth=0.9, linestyle=":", label="any n")
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
    axes.set_title(title, color=colour)


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


@house_style()
def token_ranks(ranks: Sequence[int], *, kept: int | None, window_id: str) -> Drawing:
    """The place (1 = first choice) of each target token of one window, log scale; those cut off by top-k are marked."""
    figure, axes = new_figure(WIDE, 2.4)
    positions = np.arange(1, len(ranks) + 1)
    values = np.asarray(ranks, dtype=np.float64)
    outside = values > kept if kept is not None else np.zeros(len(values), dtype=bool)
    axes.vlines(positions, 0.8, values, color="#d9d6ce", linewidth=1.2)
    axes.scatter(positions[~outside], values[~outside], color=BLUE, s=14, zorder=3, label="kept by the policy")
    if outside.any():
        cut: dict[str, Any] = {"color": VERMILLION, "marker": "D", "s": 18, "label": "cut off: probability 0"}
        axes.scatter(positions[outside], values[outside], zorder=3, **cut)
    if kept is not None:
        axes.axhline(kept, color=INK, linewidth=0.9, linestyle="--")
        at_edge = {"xycoords": ("axes fraction", "data"), "ha": "right", "va": "bottom", "fontsize": 7, "color": INK}
        label_point(axes, f"k = {kept}", (1, kept), offset=(0, 3), **at_edge)
    log_axis(axes, "y")
    axes.set_ylim(bottom=0.8)
    axes.set_xlabel("target token")
    axes.set_ylabel("rank under the model")
    legend_above(axes)
    caption = f"Rank of each target token of window {window_id}, the one with the largest mass gain."
    return Drawing("ranks", caption, figure, "rank", is_wide=True)
