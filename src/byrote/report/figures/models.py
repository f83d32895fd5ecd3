"""Models over each other: rates, mean mass and queries as lines; paired differences; which windows each model adds."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
from matplotlib.figure import Figure

from byrote.report.analysis.comparison import (
    Paired,
    RunComparison,
    SharedWindows,
    counted_mass,
    paired_differences,
    shared_windows,
)
from byrote.report.analysis.queries import SHOWN_PROBABILITY, dashed_words, query_lines, query_panels
from byrote.report.analysis.rates import split_rows
from byrote.report.content import Drawing
from byrote.report.figures import style
from byrote.report.figures.overlays import Line, Panel, Point, Setting, overlay
from byrote.report.figures.scan import (
    NOTHING,
    draw_violins,
    extractable_shares,
    gain_curves,
    rates_by_edits,
    side_label,
)
from byrote.report.view import RunView
from byrote.stats.population import Floats, recovery
from byrote.types import Split

MOST_COMBINATIONS = 16


def comparison_drawings(views: Sequence[RunView], comparison: RunComparison) -> list[Drawing]:
    """All figures of several runs; differences and shared windows only of runs over the same windows."""
    drawings = [rates_by_edits(views), *_masses(views), _queries(views), *_beam_widths(views)]
    if comparison.aligned is None:
        return drawings
    threshold = views[0].threshold
    largest = min(view.population.edit_budget for view in views)
    every = paired_differences(comparison, threshold)
    rows = [row for row in every if row.quantity != "near" or row.edits == largest]
    shared = shared_windows(comparison, threshold)
    return [*drawings, difference_forest(rows), windows_by_models(comparison.labels, shared)]


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
        f"controls in grey.{dashed_words(lines)}"
    )
    figure = overlay(query_panels(lines), Setting("queries, n", is_log=True))
    return Drawing("queries-by-model", caption, figure, "queries", is_wide=True)


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


def difference_forest(rows: Sequence[Paired]) -> Drawing:
    """Paired differences in percentage points with 95 % intervals, a line a pair and quantity; 0 is no difference."""
    figure, axes = style.new_figure(style.WIDE, 1.1 + 0.26 * max(1, len(rows)))
    caption = (
        "Difference of the models on the same target windows, with 95 % intervals over documents or long stretches of "
        "text."
    )
    drawing = Drawing("differences", caption, figure, "interval", is_wide=True)
    if not rows:
        style.say_empty(axes, "No two models measured the same windows.")
        return drawing
    pairs = list(dict.fromkeys((row.first, row.second) for row in rows))
    for place, row in enumerate(rows):
        number = pairs.index((row.first, row.second))
        colour, marker = style.SERIES[number % len(style.SERIES)], style.MARKERS[number % len(style.MARKERS)]
        axes.plot(100 * row.found.difference, place, marker=marker, color=colour)
        if row.found.interval.is_defined:
            axes.hlines(place, 100 * row.found.interval.low, 100 * row.found.interval.high, color=colour, alpha=0.5)
    axes.axvline(0, color=style.INK, linewidth=0.8)
    axes.set_yticks(range(len(rows)), [f"{row.first} → {row.second}: {row.name}" for row in rows])
    axes.invert_yaxis()
    style.value_grid(axes)
    axes.set_xlabel("difference in percentage points, second minus first")
    return drawing


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
