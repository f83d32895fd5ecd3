"""Figures of a prior run: every suffix by both probabilities, ratios by length, shares of verdicts."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from byrote.report.content import Drawing
from byrote.report.figures import style
from byrote.report.words import number_from_log, probability
from byrote.stats.population import Floats
from byrote.types import Interval, Split
from byrote.verdict import PriorVerdict

LOG_TEN = float(np.log(10.0))
VERDICT_LOOKS = {
    PriorVerdict.NOT_EXTRACTABLE: (style.SOFT, "o", "P(s|p) ≤ m"),
    PriorVerdict.MERELY_LIKELY: (style.BLUE, "^", "merely likely"),
    PriorVerdict.UNSETTLED: (style.ORANGE, "s", "unsettled"),
    PriorVerdict.MEMORIZED: (style.VERMILLION, "D", "memorized"),
}
"""Colour, marker and name of every verdict."""


class ShownThreshold(NamedTuple):
    """m and n at one suffix length, n with its interval and the ratios of the generic texts."""

    tokens: int
    least_conditional: float
    log_n: float
    interval: Interval
    log_ratios: tuple[float, ...]


def prior_scatter(rows: pl.DataFrame, threshold: ShownThreshold, *, title: str) -> Drawing:
    """log₁₀ P(s|p) against log₁₀ v̂ of every suffix, with m and n of one length; what has no logarithm at the edge."""
    figure, axes = style.new_figure(5.4, 4.6)
    x, y = (rows[column].to_numpy() / LOG_TEN for column in ("log_p_prior", "log_p_conditional"))
    # What has no logarithm is drawn one decade below the lowest that has one.
    left, low = ((_finite_range(values) or (0.0, 0.0))[0] - 1.0 for values in (x, y))
    _draw_points(axes, np.maximum(x, left), np.maximum(y, low), rows)
    span = np.array([left - 0.02 * abs(left), max(float(x.max()), left) + 0.5])
    _draw_threshold(axes, span, threshold)
    axes.set_xlim(*span)
    axes.set_ylim(low - 0.5, 0.5)
    axes.grid(visible=True, axis="both")
    axes.set_xlabel("log₁₀ v̂, the probability after other prefixes")
    axes.set_ylabel("log₁₀ P(s|p), the probability after its own prefix")
    axes.set_title(title, pad=60)
    style.legend_above(axes, columns=2)
    _note_edges(axes, np.isneginf(x) | np.isneginf(y))
    caption = (
        "Each suffix by its probability after its own prefix and after others; colours are settled verdicts, and the "
        "published rule calls memorized what is above both lines."
    )
    return Drawing("prior_scatter", caption, figure)


def ratios_by_length(rows: pl.DataFrame, thresholds: Sequence[ShownThreshold], *, title: str) -> Drawing:
    """Every ratio at its suffix length, beside those of the generic texts, their mean n with its interval."""
    figure, axes = style.new_figure(5.4, 4.2)
    shown = sorted(thresholds)
    tokens = np.array([each.tokens for each in shown], dtype=float)
    ratios = rows["log_ratio"].to_numpy() / LOG_TEN
    generic = np.array([value for each in shown for value in each.log_ratios]) / LOG_TEN
    every = np.concatenate([ratios, generic, [each.log_n / LOG_TEN for each in shown]])
    bottom, top = _finite_range(every) or (-1.0, 1.0)
    _draw_generic(axes, shown, tokens, (bottom, top))
    spread = np.linspace(-0.3, 0.3, 7)[np.arange(len(ratios)) % 7]
    _draw_points(axes, rows["suffix_ids"].list.len().to_numpy() + spread, np.clip(ratios, bottom, top), rows)
    axes.set_ylim(bottom - 0.4, top + 0.4)
    axes.set_xlim(tokens.min() - 1, tokens.max() + 1)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("tokens of the suffix")
    axes.set_ylabel("log₁₀ ratio P(s|p) / v̂")
    axes.set_title(title, pad=46)
    style.legend_above(axes, columns=3)
    _note_edges(axes, np.isinf(ratios))
    caption = "The ratio of the two probabilities beside the length of the suffix, and what generic texts have."
    return Drawing("prior_ratios", caption, figure)


def _draw_points(axes: Axes, x: Floats, y: Floats, rows: pl.DataFrame) -> None:
    """One marker a suffix, by verdict; controls are hollow."""
    is_control = (rows["split"] == str(Split.CONTROL)).to_numpy()
    for verdict, (colour, marker, name) in VERDICT_LOOKS.items():
        chosen = (rows["prior_verdict"] == str(verdict)).to_numpy()
        if not chosen.any():
            continue
        axes.scatter([], [], s=16, color=colour, marker=marker, label=f"{name} ({int(chosen.sum()):,})")
        for drawn, face in ((chosen & ~is_control, colour), (chosen & is_control, "none")):
            axes.scatter(
                x[drawn], y[drawn], s=16, facecolors=face, edgecolors=colour, marker=marker, alpha=0.7, linewidths=0.7,
                rasterized=len(x) > 2_000,
            )  # fmt: skip
    if is_control.any():
        axes.scatter([], [], s=16, facecolors="none", edgecolors=style.INK, linewidths=0.7, label="hollow: control")


def _draw_threshold(axes: Axes, span: Floats, threshold: ShownThreshold) -> None:
    where = f"for {threshold.tokens} tokens"
    log_m = np.log10(threshold.least_conditional) if threshold.least_conditional > 0 else -np.inf
    if np.isfinite(log_m):
        words = f"m = {probability(threshold.least_conditional)} {where}"
        axes.axhline(log_m, color=style.INK, linewidth=0.9, linestyle=":", label=words)
    if not np.isfinite(threshold.log_n):
        return
    log_n = threshold.log_n / LOG_TEN
    words = f"n = {number_from_log(threshold.log_n)} {where}"
    axes.plot(span, span + log_n, color=style.INK, linewidth=0.9, linestyle="--", label=words)
    if threshold.interval.is_defined and threshold.interval.low < threshold.interval.high:
        low, high = (np.clip(end / LOG_TEN, -400, 400) for end in (threshold.interval.low, threshold.interval.high))
        axes.fill_between(
            span, span + low, span + high, color=style.FAINT, alpha=0.45, linewidth=0, label="95 % of n", zorder=0
        )


def _draw_generic(axes: Axes, shown: Sequence[ShownThreshold], tokens: Floats, ends: tuple[float, float]) -> None:
    """Generic ratios as dashes, n as a line over its band; without generic texts n is the line alone."""
    log_n = np.array([each.log_n for each in shown]) / LOG_TEN
    low = np.clip([each.interval.low / LOG_TEN for each in shown], *ends)
    high = np.clip([each.interval.high / LOG_TEN for each in shown], *ends)
    # A single length has no extent of its own: give the line and the band the width of its column.
    if len(shown) == 1:
        tokens, log_n, low, high = tokens[0] + np.array([-0.7, 0.7]), log_n.repeat(2), low.repeat(2), high.repeat(2)
    for each in shown:
        values = np.array(each.log_ratios) / LOG_TEN
        axes.plot(np.full(len(values), each.tokens), values, "_", color=style.SOFT, markersize=7, markeredgewidth=0.7)
    if any(each.log_ratios for each in shown):
        axes.plot([], [], "_", color=style.SOFT, markersize=7, markeredgewidth=0.7, label="one generic text")
        axes.fill_between(tokens, low, high, color=style.FAINT, alpha=0.45, linewidth=0, label="95 % of n", zorder=0)
    axes.plot(tokens, log_n, color=style.INK, linewidth=1.1, linestyle="--", label="n, their mean")


def _finite_range(values: Floats) -> tuple[float, float] | None:
    finite = values[np.isfinite(values)]
    return (float(finite.min()), float(finite.max())) if finite.size else None


def _note_edges(axes: Axes, is_at_edge: NDArray[np.bool_]) -> None:
    """Says how many points stand at an edge because one of their probabilities is 0."""
    if is_at_edge.any():
        words = f"{int(is_at_edge.sum()):,} with a probability of 0 stand at the edge"
        axes.text(0.99, 0.01, words, transform=axes.transAxes, ha="right", va="bottom", fontsize=7, color=style.SOFT)


def prior_shares(counts: Mapping[str, Mapping[str, int]], *, is_by_prefix_length: bool) -> Drawing:
    """Bars of the share with P(s|p) > m, for every label; memorized filled, unsettled hatched above it, and a
    line at those that the published rule calls memorized."""
    figure, axes = style.new_figure(max(4.8, 1.1 * len(counts) + 1.4), 3.4)
    places = np.arange(len(counts))
    names = ("extractable", "memorized", "unsettled")
    extractable, memorized, unsettled = (
        np.array([each[name] / (each["suffixes"] or np.nan) for each in counts.values()]) for name in names
    )
    axes.bar(places, extractable, width=0.6, color="white", edgecolor=style.BLUE, linewidth=1.2, label="P(s|p) > m")
    axes.bar(places, memorized, width=0.6, color=style.VERMILLION, label="memorized")
    axes.bar(
        places, unsettled, bottom=memorized, width=0.6, color="white", edgecolor=style.ORANGE, hatch="///", linewidth=0,
        label="unsettled",
    )  # fmt: skip
    published = np.array([each["published_memorized"] / (each["suffixes"] or np.nan) for each in counts.values()])
    axes.plot(places, published, "_", color=style.INK, markersize=24, label="memorized by the published rule")
    for place, (each, top) in enumerate(zip(counts.values(), extractable, strict=True)):
        if each["extractable"]:
            words = f"{each['memorized']} of {each['extractable']}"
            style.label_point(axes, words, (place, top), offset=(0, 3), ha="center", fontsize=7.5)
    axes.set_xticks(places, list(counts))
    axes.set_ylabel("suffixes")
    axes.margins(y=0.15)
    axes.set_ylim(bottom=0)
    style.percent_axis(axes)
    axes.set_title("By prefix length" if is_by_prefix_length else "", pad=40)
    style.legend_above(axes, columns=2)
    kind, words = ("prefix_length", "by length of the prefix") if is_by_prefix_length else ("model", "model by model")
    caption = f"Share of suffixes with P(s|p) > m, and of those memorized, {words}."
    return Drawing(f"prior_by_{kind}", caption, figure)
