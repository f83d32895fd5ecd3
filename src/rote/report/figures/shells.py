"""Where near-verbatim mass sits: shares per shell, as a heat map and as violins; verbatim share across models."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rote.report.figures.style import BLUE, HEAT, INK, SERIES, SOFT, house_style, new_figure, percent_axis, say_empty
from rote.stats.population import Floats, shell_shares

HEAT_ROWS = 400
NOTHING = "No window has near-verbatim mass at or above τ."


def extractable_shares(mass_lower: Floats, threshold: float) -> Floats:
    """Shell shares of the windows at or above τ."""
    return shell_shares(mass_lower[mass_lower[:, -1] >= threshold])


def shell_heat_map(mass_lower: Floats, *, threshold: float) -> Figure:
    """One row per extractable window, sorted by verbatim share; one column per shell; colour is the share.

    More than 400 windows are averaged in groups of neighbours, so that the picture stays legible.
    """
    figure, axes = new_figure()
    with house_style():
        shares = extractable_shares(mass_lower, threshold)
        if len(shares) == 0:
            say_empty(axes, NOTHING)
            return figure
        ordered = shares[np.argsort(-shares[:, 0], kind="stable")]
        groups = np.array_split(ordered, min(HEAT_ROWS, len(ordered)))
        drawn = np.stack([group.mean(axis=0) for group in groups])
        image = axes.imshow(
            drawn,
            aspect="auto",
            cmap=HEAT,
            vmin=0,
            vmax=1,
            interpolation="nearest",
            extent=(-0.5, drawn.shape[1] - 0.5, len(ordered), 0),
        )
        axes.grid(visible=False)
        axes.set_xticks(range(drawn.shape[1]), ["0\n(exact)", *[str(edits) for edits in range(1, drawn.shape[1])]])
        axes.set_xlabel("at exactly ε edits")
        axes.set_ylabel("extractable windows, by verbatim share")
        bar = figure.colorbar(image, ax=axes, shrink=0.7, pad=0.02)
        bar.set_label("share of the window's mass")
        bar.outline.set_visible(False)
    return figure


def draw_violins(axes: Axes, columns: Sequence[Floats], colours: Sequence[str]) -> None:
    """A violin per column with its median; a column without spread is drawn as its median alone."""
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


def shell_violins(mass_lower: Floats, *, threshold: float) -> Figure:
    """The distribution of each shell's share over the extractable windows, with quartiles and median."""
    figure, axes = new_figure()
    with house_style():
        shares = extractable_shares(mass_lower, threshold)
        if len(shares) == 0:
            say_empty(axes, NOTHING)
            return figure
        shells = shares.shape[1]
        draw_violins(axes, [shares[:, edits] for edits in range(shells)], [BLUE, *[SOFT] * (shells - 1)])
        axes.set_xticks(range(shells), ["0\n(exact)", *[str(edits) for edits in range(1, shells)]])
        axes.set_xlabel("at exactly ε edits")
        axes.set_ylabel("share of the window's mass")
        axes.set_ylim(-0.02, 1.02)
        percent_axis(axes)
    return figure


def verbatim_share_by_model(series: Sequence[tuple[str, Floats]], *, threshold: float) -> Figure:
    """The verbatim share p_z / p_{z,ε} of extractable windows, one violin per model; `series`: (label, mass_lower)."""
    figure, axes = new_figure()
    with house_style():
        columns = [extractable_shares(mass_lower, threshold)[:, 0] for _, mass_lower in series]
        if not any(len(column) for column in columns):
            say_empty(axes, NOTHING)
            return figure
        draw_violins(axes, columns, [SERIES[index % len(SERIES)] for index in range(len(series))])
        names = [f"{label}\n(n = {len(column)})" for (label, _), column in zip(series, columns, strict=True)]
        axes.set_xticks(range(len(series)), names)
        axes.set_ylabel("verbatim share of the mass")
        axes.set_ylim(-0.02, 1.02)
        axes.set_xlim(-0.7, len(series) - 0.3)
        percent_axis(axes)
    return figure
