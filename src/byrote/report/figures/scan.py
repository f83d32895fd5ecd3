"""Figures of scans, one or several: rates by ε, token ranks, masses, their shells, where in a text they lie."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import FuncFormatter

from byrote.report.analysis.comparison import RunComparison, SharedWindows, counted_mass, shared_windows
from byrote.report.analysis.queries import SHOWN_PROBABILITY, lines_drawing, query_lines
from byrote.report.analysis.rates import Criterion, CriterionRate, split_rows
from byrote.report.content import Drawing
from byrote.report.figures import style
from byrote.report.figures.overlays import Line, Panel, Point, Setting, overlay
from byrote.report.view import RunView
from byrote.stats.population import (
    Category,
    Flags,
    Floats,
    categories,
    mass_gain,
    recovery,
    shell_shares,
    stretch_maxima,
    tail_curve,
)
from byrote.types import Split

VERDICT_COLOURS = {
    Split.TARGET: {"extractable": style.VERMILLION, "neither": "#e3ded2", "ruled out": style.BLUE},
    Split.CONTROL: {"extractable": style.INK, "neither": "#ecebe8", "ruled out": "#b4b6bb"},
}
"""From the bottom of a bar to its top; the control is grey."""
CATEGORY_LOOKS = {
    Category.VERBATIM: (style.BLUE, "o", "word for word"),
    Category.UNLOCKED: (style.ORANGE, "^", "only nearly"),
    Category.UNLOCKED_FROM_ZERO: (style.VERMILLION, "D", "only nearly, exact impossible"),
}
CROWDED = 400
"""Extractable windows from which points are drawn small."""
RASTER_ABOVE = 2_000
"""More points than this are drawn as an image inside the vector file, or the file would not open."""
HEAT_ROWS = 400
MOST_COMBINATIONS = 16
NOTHING = "No window has near-verbatim mass at or above τ."
HEAT_COLUMNS = 1200
"""Characters are joined into this many columns, each showing its strongest character."""
HATCHED: dict[str, Any] = {"facecolor": "white", "edgecolor": style.UNMEASURED, "hatch": "//////", "linewidth": 0}


def rates_by_edits(views: Sequence[RunView]) -> Drawing:
    """Share of windows that are near-verbatim, and whose greedy answer is near, against ε: a line a side, of several
    runs a line a run and side."""
    panels: list[Panel] = []
    titles = {Criterion.NEAR: f"near-verbatim, mass ≥ {views[0].threshold:g}", Criterion.GREEDY: "the greedy answer"}
    for criterion, title in titles.items():
        lines = []
        for split in Split:  # controls last, so that a model has the same colour in every figure
            for view in views:
                own = [entry for entry in view.rates if (entry.criterion, entry.split) == (criterion, split)]
                if own:
                    points = tuple(Point.of(float(entry.edits or 0), entry.rate) for entry in own)
                    lines.append(Line(side_label(views, view, split), points, split is Split.CONTROL))
        if lines or not panels:
            panels.append(Panel(title, "windows", tuple(lines)))
    caption = "Share of windows by number of edits allowed, with 95 % intervals; controls in grey."
    name = "rates-by-edits" if len(views) == 1 else "rates-by-model"
    return Drawing(name, caption, overlay(panels, Setting("edits allowed, ε")), "near", is_wide=len(panels) > 1)


def side_label(views: Sequence[RunView], view: RunView, split: Split) -> str:
    """Of several runs the run's own label for its targets."""
    if len(views) == 1:
        return split.value
    return f"{view.label}, control" if split is Split.CONTROL else view.label


def verdicts_by_edits(rates: Sequence[CriterionRate], *, threshold: float) -> Drawing:
    """A bar per ε and split: windows whose lower bound reaches τ, whose upper bound stays below it, and the rest."""
    figure, axes = style.new_figure()
    caption = "What the certified bounds say at each ε: shown to be extractable, ruled out, or neither."
    drawing = Drawing("verdicts-by-edits", caption, figure, "bounds")
    shares = {(entry.criterion, entry.split, entry.edits): entry.rate.value for entry in rates}
    splits = [split for split in Split if (Criterion.NOT_RULED_OUT, split, 0) in shares]
    if not splits:
        style.say_empty(axes, "The run holds no upper bounds.")
        return drawing
    every_edits = sorted({edits or 0 for criterion, _, edits in shares if criterion is Criterion.NOT_RULED_OUT})
    width = 0.8 / len(splits)
    for index, split in enumerate(splits):
        places = np.array(every_edits) + (index - (len(splits) - 1) / 2) * width
        shown = np.array([shares[Criterion.NEAR, split, edits] for edits in every_edits])
        possible = np.array([shares[Criterion.NOT_RULED_OUT, split, edits] for edits in every_edits])
        bottoms, tops = (0 * shown, shown, possible), (shown, possible, 0 * shown + 1)
        for bottom, top, (name, colour) in zip(bottoms, tops, VERDICT_COLOURS[split].items(), strict=True):
            label = f"{name}, {split.value}"
            axes.bar(places, top - bottom, 0.92 * width, bottom=bottom, label=label, color=colour)
    axes.set(xlabel="edits allowed, ε", ylabel=f"windows, by mass ≥ {threshold:g}", xticks=every_edits, ylim=(0, 1))
    style.percent_axis(axes)
    style.legend_above(axes, columns=len(splits))
    return drawing


def token_ranks(ranks: Sequence[int], *, kept: int | None, window_id: str) -> Drawing:
    """The place (1 = first choice) of each target token of one window, log scale; those cut off by top-k are marked."""
    figure, axes = style.new_figure(style.WIDE, 2.4)
    values = np.array(ranks)
    positions = np.arange(1, len(values) + 1)
    outside = values > (np.inf if kept is None else kept)
    axes.vlines(positions, 0.8, values, color="#d9d6ce", linewidth=1.2)
    axes.scatter(positions[~outside], values[~outside], color=style.BLUE, s=14, zorder=3, label="kept by the policy")
    if outside.any():
        cut: dict[str, Any] = {"color": style.VERMILLION, "marker": "D", "s": 18, "label": "cut off: probability 0"}
        axes.scatter(positions[outside], values[outside], zorder=3, **cut)
    if kept is not None:
        axes.axhline(kept, color=style.INK, linewidth=0.9, linestyle="--")
        at_edge = {
            "xycoords": ("axes fraction", "data"),
            "ha": "right",
            "va": "bottom",
            "fontsize": 7,
            "color": style.INK,
        }
        style.label_point(axes, f"k = {kept}", (1, kept), offset=(0, 3), **at_edge)
    style.log_axis(axes, "y")
    axes.set(xlabel="target token", ylabel="rank under the model", ylim=(0.8, None))
    style.legend_above(axes)
    caption = f"Rank of each target token of window {window_id}, the one with the largest mass gain."
    return Drawing("ranks", caption, figure, "rank", is_wide=True)


def mass_scatter(p_verbatim: Floats, mass: Floats, *, is_impossible: Flags, threshold: float, edits: int) -> Drawing:
    """Each extractable window at (p_z, near-verbatim mass), log–log, by category; p_z = 0 on a rail at the left."""
    figure, axes = style.new_figure()
    category = categories(p_verbatim, mass, threshold, is_impossible=is_impossible)
    shown = category != Category.NOT_EXTRACTABLE
    smallest = min([threshold, *p_verbatim[shown & (p_verbatim > 0)]])
    floor = max(10.0 ** np.floor(np.log10(smallest) - 0.3), 1e-12)
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
    style.log_axis(axes, "both")
    axes.grid(visible=True, axis="both")
    axes.set(xlim=(rail / 2, 1.6), ylim=(threshold / 1.6, 1.6))
    axes.plot([floor, 1], [floor, 1], color=style.SOFT, linewidth=0.8, linestyle="--")
    axes.axvline(threshold, color=style.INK, linewidth=0.8, linestyle=":")
    axes.axvspan(rail / 2, rail * 2, color="#f4f2ec", zorder=0)
    ticks = [10.0**power for power in range(int(np.ceil(np.log10(floor))), 1)]
    ticks = ticks[:: max(1, len(ticks) // 6)]
    axes.set_xticks([rail, *ticks], ["0", *map(style.decade, ticks)])
    axes.annotate("τ ", (threshold, 0.98), xycoords=("data", "axes fraction"), ha="right", va="top", color=style.INK)
    axes.set_xlabel("verbatim probability, p_z (0 at the left edge)")
    axes.set_ylabel(f"near-verbatim mass within {edits} edits")
    style.legend_above(axes)
    caption = "Near-verbatim against verbatim probability of each extractable target window."
    return Drawing("mass", caption, figure, "category-unlocked")


def gain_curves(series: Sequence[tuple[str, Floats, Floats]], *, threshold: float) -> Drawing:
    """Share of windows whose mass gain Δ is at least x: all windows (dashed) and the extractable ones (solid).

    `series` holds (label, p_z, near-verbatim mass) for each model.
    """
    figure, axes = style.new_figure()
    for index, (label, p_verbatim, mass) in enumerate(series):
        gain = mass_gain(p_verbatim, mass)
        extractable = gain[mass >= threshold]
        for values, dashes, name in (extractable, "-", f"{label} ({len(extractable)})"), (gain, "--", None):
            gains, shares = tail_curve(values)
            axes.step(
                gains[gains > 0],
                shares[gains > 0],
                where="pre",
                color=style.SERIES[index % len(style.SERIES)],
                linestyle=dashes,
                label=name,
            )
    axes.plot([], [], color=style.INK, linestyle="-", label="extractable windows")
    axes.plot([], [], color=style.INK, linestyle="--", label="all windows")
    style.log_axis(axes, "x")
    axes.set(xlim=(1e-6, 1.2), ylim=(-0.02, 1.02))
    axes.axvspan(1e-6, threshold, color="#d9d6ce", alpha=0.4, linewidth=0, zorder=0)
    axes.set(xlabel="mass gain, Δ = near-verbatim mass − p_z", ylabel="windows with a gain of at least Δ")
    style.percent_axis(axes)
    style.legend_above(axes)
    caption = (
        "How much probability near-verbatim continuations add: share of windows with a gain of at least Δ. Shaded: "
        "below τ, where searches stop and the screen left windows out, shares are at least these."
    )
    return Drawing("mass-gain", caption, figure, "gain")


def shell_heat_map(mass_lower: Floats, *, threshold: float) -> Drawing:
    """One row per extractable window, sorted by verbatim share; one column per shell; colour is the share.

    More than 400 windows are averaged in groups of neighbours, so that the picture stays legible.
    """
    figure, axes = style.new_figure()
    caption = "Where the mass of each extractable window sits, by number of edits; windows sorted by verbatim share."
    drawing = Drawing("shells", caption, figure, "shell")
    shares = extractable_shares(mass_lower, threshold)
    if len(shares) == 0:
        style.say_empty(axes, NOTHING)
        return drawing
    ordered = shares[np.argsort(-shares[:, 0], kind="stable")]
    groups = np.array_split(ordered, min(HEAT_ROWS, len(ordered)))
    drawn = np.stack([group.mean(axis=0) for group in groups])
    extent = (-0.5, drawn.shape[1] - 0.5, len(ordered), 0)
    image = axes.imshow(drawn, aspect="auto", cmap=style.HEAT, vmin=0, vmax=1, interpolation="nearest", extent=extent)
    axes.grid(visible=False)
    _shell_ticks(axes, drawn.shape[1])
    axes.set_ylabel("extractable windows, by verbatim share")
    bar = figure.colorbar(image, ax=axes, shrink=0.7, pad=0.02)
    bar.set_label("share of the window's mass")
    bar.outline.set_visible(False)
    return drawing


def shell_violins(mass_lower: Floats, *, threshold: float) -> Drawing:
    """The distribution of each shell's share over the extractable windows, with quartiles and median."""
    figure, axes = style.new_figure()
    drawing = Drawing("shell-violins", "Distribution of the same shares, with median and quartiles.", figure, "shell")
    shares = extractable_shares(mass_lower, threshold)
    if len(shares) == 0:
        style.say_empty(axes, NOTHING)
        return drawing
    shells = shares.shape[1]
    draw_violins(axes, list(shares.T), [style.BLUE, *[style.SOFT] * (shells - 1)])
    _shell_ticks(axes, shells)
    axes.set_ylabel("share of the window's mass")
    return drawing


def extractable_shares(mass_lower: Floats, threshold: float) -> Floats:
    """Shell shares of the windows at or above τ."""
    return shell_shares(mass_lower[mass_lower[:, -1] >= threshold])


def _shell_ticks(axes: Axes, shells: int) -> None:
    axes.set_xticks(range(shells), ["0\n(exact)", *map(str, range(1, shells))])
    axes.set_xlabel("at exactly ε edits")


def draw_violins(axes: Axes, columns: Sequence[Floats], colours: Sequence[str]) -> None:
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
            axes.plot(position, middle, marker="o", color="white", markeredgecolor=style.INK, markersize=5)
    axes.set_ylim(-0.02, 1.02)
    style.percent_axis(axes)


def book_heat_map(rows: Sequence[tuple[str, Floats]], *, threshold: float, title: str, file: str) -> Drawing:
    """Strips under each other on one log colour scale from τ to 1; white below τ, hatched where nothing is known.

    A row is a label and per-character maxima, NaN where no window covers a character.
    """
    figure = Figure(figsize=(style.WIDE, 0.75 + 0.36 * len(rows) + 0.45), layout="constrained")
    grid = figure.subplots(len(rows), 1, sharex=True, squeeze=False)[:, 0]
    norm = LogNorm(vmin=min(threshold, 0.999), vmax=1)
    for axes, (label, heat) in zip(grid, rows, strict=True):
        strip = np.ma.masked_invalid(stretch_maxima(heat, HEAT_COLUMNS))
        # A log scale has no place for 0; anything below τ is drawn white all the same.
        strip = np.ma.maximum(strip, threshold * 1e-3)
        extent = (0, len(heat), 0, 1)
        image = axes.imshow(
            strip[None, :], aspect="auto", cmap=style.HEAT, norm=norm, interpolation="nearest", extent=extent
        )
        # A patch of its own: a transparent figure takes the colours of the axes' background away.
        axes.add_patch(Rectangle((0, 0), 1, 1, transform=axes.transAxes, zorder=-1, **HATCHED))
        axes.set_yticks([0.5], [label])
        axes.tick_params(axis="y", length=0)
        axes.grid(visible=False)
        axes.spines[:].set(visible=True, color=style.FAINT)
    grid[0].set_title(title)
    if any(np.isnan(heat).any() for _, heat in rows):
        hatching = Patch(**HATCHED, label="not measured")
        grid[0].legend(handles=[hatching], loc="lower right", bbox_to_anchor=(1, 1), borderaxespad=0.2)
    grid[-1].set_xlabel("position in the text (characters)")
    bar = figure.colorbar(image, ax=list(grid), pad=0.01, aspect=12)
    bar.set_label("probability", color=style.SOFT)
    bar.ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: style.decade(value)))
    bar.ax.minorticks_off()
    bar.outline.set_visible(False)
    caption = (
        f"{title}: the largest probability over the windows that cover each character; white below τ, hatched where "
        "no window measured it."
    )
    return Drawing(file, caption, figure, "covered", is_wide=True)


def comparison_drawings(views: Sequence[RunView], comparison: RunComparison) -> list[Drawing]:
    """All figures of several runs; shared windows only of runs over the same windows."""
    drawings = [rates_by_edits(views), *_masses(views), _queries(views), *_beam_widths(views)]
    if comparison.aligned is None:
        return drawings
    return [*drawings, windows_by_models(comparison.labels, shared_windows(comparison, views[0].threshold))]


def _masses(views: Sequence[RunView]) -> Iterator[Drawing]:
    threshold = views[0].threshold
    near = []
    for view in views:
        if view.population.mass_lower is not None:
            rows = split_rows(view.population, Split.TARGET)
            near.append((view, view.population.select(rows) if rows.any() else view.population))
    if not near:
        return
    lines = []
    for view, part in near:
        means = [float(counted_mass(part, edits, threshold).mean()) for edits in range(part.edit_budget + 1)]
        lines.append(Line(view.label, tuple(Point(edits, mean) for edits, mean in enumerate(means))))
    figure = overlay([Panel("", "mean mass, at least", tuple(lines))], Setting("edits allowed, ε"))
    caption = "Mean near-verbatim mass of the target windows by number of edits; a mass below τ counts as 0."
    yield Drawing("mean-mass-by-model", caption, figure, "near")
    shares = []
    for view, part in sorted(near, key=lambda pair: pair[0].manifest["model"].get("parameters") or 0):
        parameters = view.manifest["model"].get("parameters")
        label = f"{view.label}\n{parameters / 1e6:,.3g} M" if parameters else view.label
        shares.append((label, np.column_stack([part.mass(edits) for edits in range(part.edit_budget + 1)])))
    yield verbatim_share_by_model(shares, threshold=threshold)
    gains = [(view.label, part.verbatim(), part.mass(part.edit_budget)) for view, part in near]
    caption = (
        "How much probability near-verbatim continuations add, model over model; of all windows (dashed) at least "
        "this, because searches end where τ cannot be reached."
    )
    yield replace(gain_curves(gains, threshold=threshold), name="mass-gain-by-model", caption=caption)


def verbatim_share_by_model(series: Sequence[tuple[str, Floats]], *, threshold: float) -> Drawing:
    """The verbatim share p_z / p_{z,ε} of extractable windows, one violin per model; `series`: (label, mass_lower)."""
    figure, axes = style.new_figure()
    caption = "The verbatim share of the mass of extractable windows, smallest model first."
    drawing = Drawing("verbatim-share-by-model", caption, figure, "shell")
    columns = [extractable_shares(mass_lower, threshold)[:, 0] for _, mass_lower in series]
    if not any(len(column) for column in columns):
        style.say_empty(axes, NOTHING)
        return drawing
    draw_violins(axes, columns, [style.SERIES[index % len(style.SERIES)] for index in range(len(series))])
    names = [f"{label}\n(n = {len(column)})" for (label, _), column in zip(series, columns, strict=True)]
    axes.set_xticks(range(len(series)), names)
    axes.set(ylabel="verbatim share of the mass", xlim=(-0.7, len(series) - 0.3))
    return drawing


def _queries(views: Sequence[RunView]) -> Drawing:
    """Share of windows against the number of queries at one success probability, a line a model, a panel a mass."""
    lines = [
        query_lines(
            side_label(views, view, split),
            view.population.select(split_rows(view.population, split)),
            view.threshold,
            is_control=split is Split.CONTROL,
        )
        for view in views
        for split in Split
    ]
    caption = (
        f"Share of windows that come out at least once with probability {SHOWN_PROBABILITY:g} within n queries; "
        "controls in grey."
    )
    return lines_drawing("queries-by-model", caption, lines)


def _beam_widths(views: Sequence[RunView]) -> Iterator[Drawing]:
    """Runs of one model that differ in beam width: what a wider beam recovers, and what it costs."""
    groups: dict[tuple[str, str], list[tuple[int, float, float]]] = {}
    for view in views:
        population = view.population
        if population.search_verbatim is None or population.p_verbatim is None:
            continue
        name = f"{view.config['viability']} rule, {'pinned' if view.config['pin'] else 'not pinned'}"
        found = recovery(population.search_verbatim, population.p_verbatim, view.threshold)
        cost = view.results["token_evals"].to_numpy()[~np.isnan(population.search_verbatim)]
        if found.windows and len(cost):
            key = (str(view.manifest["model"].get("weights_hash")), name)
            groups.setdefault(key, []).append((int(view.config["beam_width"]), found.share, float(cost.mean())))
    swept = {name: sorted(points) for (_, name), points in groups.items() if len({point[0] for point in points}) > 1}
    if swept:
        yield beam_width_sweep(swept)


def beam_width_sweep(series: Mapping[str, Sequence[tuple[int, float, float]]]) -> Drawing:
    """Recovery and cost against beam width; `series` holds (beam width, share recovered, token evaluations per window)
    for each search variant."""
    recovered = tuple(Line(name, tuple(Point(one[0], one[1]) for one in own)) for name, own in series.items())
    costs = tuple(Line(name, tuple(Point(one[0], one[2]) for one in own)) for name, own in series.items())
    widths = sorted({one[0] for own in series.values() for one in own})
    panels = [
        Panel("", "recovered, relative to teacher forcing", recovered),
        Panel("", "token evaluations per window", costs, is_share=False),
    ]
    figure = overlay(panels, Setting("beam width, B", tuple((width, str(width)) for width in widths), is_log=True))
    caption = (
        "How many verbatim-extractable windows the search finds by itself, and its cost, by beam width "
        f"({'; '.join(series)})."
    )
    return Drawing("beam-widths", caption, figure, "recovery", is_wide=True)


def windows_by_models(labels: Sequence[str], combinations: Sequence[SharedWindows]) -> Drawing:
    """A bar for each combination of models that windows are extractable from, with dots below that name it."""
    figure = Figure(figsize=(style.WIDE, 2.5 + 0.28 * len(labels)), layout="constrained")
    caption = "Target windows by the models they are extractable from: from one alone, from some, from all."
    drawing = Drawing("windows-by-model", caption, figure, "near", is_wide=True)
    shown = combinations[:MOST_COMBINATIONS]
    if not shown:
        style.say_empty(figure.add_subplot(), "No target window is extractable from any of the models.")
        return drawing
    bars, dots = figure.subplots(2, 1, sharex=True, height_ratios=(2.2, 0.3 * len(labels) + 0.1))
    places = np.arange(len(shown))
    own_colours = [style.SERIES[row % len(style.SERIES)] for row in range(len(labels))]
    colours = [own_colours[one.members.index(True)] if sum(one.members) == 1 else style.SOFT for one in shown]
    bars.bar(places, [one.windows for one in shown], color=colours, width=0.6)
    for place, one in enumerate(shown):
        style.label_point(bars, f"{one.windows:,}", (place, one.windows), offset=(0, 2), ha="center", fontsize=8)
    bars.set_ylabel("target windows")
    bars.tick_params(axis="x", length=0)
    for row, colour in enumerate(own_colours):
        held = np.array([one.members[row] for one in shown])
        dots.scatter(places, np.full(len(shown), row), s=34, color=style.FAINT, linewidths=0)
        dots.scatter(places[held], np.full(int(held.sum()), row), s=34, color=colour, linewidths=0)
    dots.set_yticks(range(len(labels)), labels)
    dots.set_ylim(len(labels) - 0.5, -0.5)
    dots.set_xticks([])
    dots.grid(visible=False)
    dots.spines[["left", "bottom"]].set_visible(False)
    bars.margins(y=0.15)
    return drawing
