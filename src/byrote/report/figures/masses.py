"""Near-verbatim against verbatim mass, how much mass near-verbatim continuations add, and at which distance it sits."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes

from byrote.report.content import Drawing
from byrote.report.figures.style import (
    BLUE,
    HEAT,
    INK,
    ORANGE,
    SERIES,
    SOFT,
    VERMILLION,
    decade,
    house_style,
    legend_above,
    log_axis,
    new_figure,
    percent_axis,
    say_empty,
)
from byrote.stats.population import Category, Flags, Floats, categories, mass_gain, shell_shares, tail_curve

CATEGORY_LOOKS = {
    Category.VERBATIM: (BLUE, "o", "word for word"),
    Category.UNLOCKED: (ORANGE, "^", "only nearly"),
    Category.UNLOCKED_FROM_ZERO: (VERMILLION, "D", "only nearly, exact impossible"),
}
CROWDED = 400
"""Extractable windows from which points are drawn small."""
RASTER_ABOVE = 2_000
"""More points than this are drawn as an image inside the vector file, or the file would not open."""
HEAT_ROWS = 400
NOTHING = "No window has near-verbatim mass at or above τ."


@house_style()
def mass_scatter(p_verbatim: Floats, mass: Floats, *, is_impossible: Flags, threshold: float, edits: int) -> Drawing:
    """Each extractable window at (p_z, near-verbatim mass), log–log, by category; p_z = 0 on a rail at the left."""
    figure, axes = new_figure()
    category = categories(p_verbatim, mass, threshold, is_impossible=is_impossible)
    shown = category != Category.NOT_EXTRACTABLE
    positive = p_verbatim[shown & (p_verbatim > 0)]
    floor = 10.0 ** np.floor(np.log10(min(positive.min() if len(positive) else 1.0, threshold)) - 0.3)
    floor = max(floor, 1e-12)
    rail = floor / 10**0.6
    for kind, (colour, marker, label) in CATEGORY_LOOKS.items():
        rows = category == kind
        axes.scatter(
            np.where(is_impossible[rows], rail, np.maximum(p_verbatim[rows], floor)),
            mass[rows],
            s=11 if shown.sum() > CROWDED else 26,
            color=colour,
            marker=marker,
            alpha=0.55,
            linewidths=0,
            label=f"{label} ({int(rows.sum())})",
            rasterized=bool(shown.sum() > RASTER_ABOVE),
        )
    log_axis(axes, "both")
    axes.grid(visible=True, axis="both")
    axes.set_xlim(rail / 2, 1.6)
    axes.set_ylim(threshold / 1.6, 1.6)
    axes.plot([floor, 1], [floor, 1], color=SOFT, linewidth=0.8, linestyle="--")
    axes.axvline(threshold, color=INK, linewidth=0.8, linestyle=":")
    axes.axvspan(rail / 2, rail * 2, color="#f4f2ec", zorder=0)
    ticks = [10.0**power for power in range(int(np.ceil(np.log10(floor))), 1)]
    ticks = ticks[:: max(1, len(ticks) // 6)]
    axes.set_xticks([rail, *ticks], ["0", *[decade(tick) for tick in ticks]])
    axes.annotate("τ ", (threshold, 0.98), xycoords=("data", "axes fraction"), ha="right", va="top", color=INK)
    axes.set_xlabel("verbatim probability, p_z (0 at the left edge)")
    axes.set_ylabel(f"near-verbatim mass within {edits} edits")
    legend_above(axes)
    caption = "Near-verbatim against verbatim probability of each extractable target window."
    return Drawing("mass", caption, figure, "category-unlocked")


@house_style()
def gain_curves(
    series: Sequence[tuple[str, Floats, Floats]], *, threshold: float, is_comparison: bool = False
) -> Drawing:
    """Share of windows whose mass gain Δ is at least x: all windows (dashed) and the extractable ones (solid).

    `series` holds (label, p_z, near-verbatim mass) for each model.
    """
    figure, axes = new_figure()
    for index, (label, p_verbatim, mass) in enumerate(series):
        colour = SERIES[index % len(SERIES)]
        gain = mass_gain(p_verbatim, mass)
        for values, style in ((gain[mass >= threshold], "-"), (gain, "--")):
            curve = tail_curve(values)
            positive = curve.value > 0
            name = f"{label} ({len(values)})" if style == "-" else None
            shown = curve.value[positive], curve.share[positive]
            axes.step(*shown, where="pre", color=colour, linestyle=style, label=name)
    axes.plot([], [], color=INK, linestyle="-", label="extractable windows")
    axes.plot([], [], color=INK, linestyle="--", label="all windows")
    log_axis(axes, "x")
    axes.set_xlim(1e-6, 1.2)
    axes.set_ylim(-0.02, 1.02)
    axes.set_xlabel("mass gain, Δ = near-verbatim mass − p_z")
    axes.set_ylabel("windows with a gain of at least Δ")
    percent_axis(axes)
    legend_above(axes)
    if is_comparison:
        caption = (
            "How much probability near-verbatim continuations add, model over model; of all windows (dashed) at least "
            "this, because searches end where τ cannot be reached."
        )
        return Drawing("mass-gain-by-model", caption, figure, "gain")
    caption = "How much probability near-verbatim continuations add: share of windows with a gain of at least Δ."
    return Drawing("mass-gain", caption, figure, "gain")


@house_style()
def shell_heat_map(mass_lower: Floats, *, threshold: float) -> Drawing:
    """One row per extractable window, sorted by verbatim share; one column per shell; colour is the share.

    More than 400 windows are averaged in groups of neighbours, so that the picture stays legible.
    """
    figure, axes = new_figure()
    caption = "Where the mass of each extractable window sits, by number of edits; windows sorted by verbatim share."
    drawing = Drawing("shells", caption, figure, "shell")
    shares = _extractable_shares(mass_lower, threshold)
    if len(shares) == 0:
        say_empty(axes, NOTHING)
        return drawing
    ordered = shares[np.argsort(-shares[:, 0], kind="stable")]
    groups = np.array_split(ordered, min(HEAT_ROWS, len(ordered)))
    drawn = np.stack([group.mean(axis=0) for group in groups])
    extent = (-0.5, drawn.shape[1] - 0.5, len(ordered), 0)
    image = axes.imshow(drawn, aspect="auto", cmap=HEAT, vmin=0, vmax=1, interpolation="nearest", extent=extent)
    axes.grid(visible=False)
    _shell_ticks(axes, drawn.shape[1])
    axes.set_ylabel("extractable windows, by verbatim share")
    bar = figure.colorbar(image, ax=axes, shrink=0.7, pad=0.02)
    bar.set_label("share of the window's mass")
    bar.outline.set_visible(False)
    return drawing


@house_style()
def shell_violins(mass_lower: Floats, *, threshold: float) -> Drawing:
    """The distribution of each shell's share over the extractable windows, with quartiles and median."""
    figure, axes = new_figure()
    drawing = Drawing("shell-violins", "Distribution of the same shares, with median and quartiles.", figure, "shell")
    shares = _extractable_shares(mass_lower, threshold)
    if len(shares) == 0:
        say_empty(axes, NOTHING)
        return drawing
    shells = shares.shape[1]
    _draw_violins(axes, list(shares.T), [BLUE, *[SOFT] * (shells - 1)])
    _shell_ticks(axes, shells)
    axes.set_ylabel("share of the window's mass")
    return drawing


@house_style()
def verbatim_share_by_model(series: Sequence[tuple[str, Floats]], *, threshold: float) -> Drawing:
    """The verbatim share p_z / p_{z,ε} of extractable windows, one violin per model; `series`: (label, mass_lower)."""
    figure, axes = new_figure()
    caption = "The verbatim share of the mass of extractable windows, smallest model first."
    drawing = Drawing("verbatim-share-by-model", caption, figure, "shell")
    columns = [_extractable_shares(mass_lower, threshold)[:, 0] for _, mass_lower in series]
    if not any(len(column) for column in columns):
        say_empty(axes, NOTHING)
        return drawing
    _draw_violins(axes, columns, [SERIES[index % len(SERIES)] for index in range(len(series))])
    names = [f"{label}\n(n = {len(column)})" for (label, _), column in zip(series, columns, strict=True)]
    axes.set_xticks(range(len(series)), names)
    axes.set_ylabel("verbatim share of the mass")
    axes.set_xlim(-0.7, len(series) - 0.3)
    return drawing


def _extractable_shares(mass_lower: Floats, threshold: float) -> Floats:
    """Shell shares of the windows at or above τ."""
    return shell_shares(mass_lower[mass_lower[:, -1] >= threshold])


def _shell_ticks(axes: Axes, shells: int) -> None:
    axes.set_xticks(range(shells), ["0\n(exact)", *[str(edits) for edits in range(1, shells)]])
    axes.set_xlabel("at exactly ε edits")


def _draw_violins(axes: Axes, columns: Sequence[Floats], colours: Sequence[str]) -> None:
    """A violin of shares per column with its median; a column without spread is drawn as its median alone."""
    for position, (values, colour) in enumerate(zip(columns, colours, strict=True)):
        if len(values) > 1 and np.ptp(values) > 1e-9:
            parts = axes.violinplot(values, positions=[position], widths=0.8, showextrema=False, points=80)
            for body in parts["bodies"]:  # type: ignore[attr-defined]
                body.set(facecolor=colour, alpha=0.4, edgecolor=colour, linewidth=0.8)
                body.get_paths()[0].vertices[:, 1] = np.clip(body.get_paths()[0].vertices[:, 1], 0, 1)
        if len(values):
            low, middle, high = np.percentile(values, [25, 50, 75])
            axes.vlines(position, low, high, color=colour, linewidth=3)
            axes.plot(position, middle, marker="o", color="white", markeredgecolor=INK, markersize=5)
    axes.set_ylim(-0.02, 1.02)
    percent_axis(axes)
