"""Figures of several scans: models over each other, never one figure a model."""

from collections.abc import Iterator, Sequence

import numpy as np

from byrote.report.comparison import Comparison, counted_mass, paired_differences, shared_windows
from byrote.report.content import Drawing
from byrote.report.figures.book import HeatRow, book_heat_map
from byrote.report.figures.curves import query_curves, token_ranks
from byrote.report.figures.masses import (
    gain_curves,
    mass_scatter,
    shell_heat_map,
    shell_violins,
    verbatim_share_by_model,
)
from byrote.report.figures.models import (
    difference_forest,
    mean_mass_by_model,
    queries_by_model,
    rate_line,
    rates_by_model,
    windows_by_models,
)
from byrote.report.figures.overlays import Line, Point
from byrote.report.figures.rates import rates_by_edits, verdicts_by_edits
from byrote.report.figures.search import BeamWidthSeries, beam_width_sweep
from byrote.report.groups import copies_drawings, group_drawings
from byrote.report.membership import membership_drawings
from byrote.report.queries import curves_of, cut_short_words, most_queries, searched_down_to
from byrote.report.rates import Criterion, hits_of, rates_by_criterion, split_rows
from byrote.report.risk import risk_drawings
from byrote.report.sweeps import policy_queries, policy_rates, policy_sweep, sweep_series
from byrote.report.view import Document, RunView
from byrote.stats.curves import MassKind, RateCurves, query_grid
from byrote.stats.population import Floats, Population, character_maxima, recovery
from byrote.types import Split

LARGEST_QUERIES = 1e6
SHOWN_PROBABILITY = 0.5
PANEL_NAMES = {MassKind.EXACT: "verbatim", MassKind.LOWER_BOUND: "near-verbatim, at least"}


def comparison_drawings(views: Sequence[RunView], comparison: Comparison) -> list[Drawing]:
    """What may be drawn of any models, and what only of models on the same windows."""
    drawings = [_rates(views), *_masses(views), _queries(views), *_beam_widths(views)]
    if comparison.aligned is None:
        return drawings
    threshold = views[0].threshold
    largest = min(view.population.edit_budget for view in views)
    every = paired_differences(comparison, threshold)
    rows = [row for row in every if row.quantity != "near" or row.edits == largest]
    caption = (
        "Difference of the models on the same target windows, with 95 % intervals over documents or long stretches of "
        "text."
    )
    forest = Drawing("differences", caption, difference_forest(rows), "interval", is_wide=True)
    caption = "Target windows by the models they are extractable from: from one alone, from some, from all."
    shared = windows_by_models(comparison.labels, shared_windows(comparison, threshold))
    return [*drawings, forest, Drawing("windows-by-model", caption, shared, "near", is_wide=True)]


def _targets(view: RunView) -> Population:
    rows = split_rows(view.population, Split.TARGET)
    return view.population.select(rows) if rows.any() else view.population


def _rates(views: Sequence[RunView]) -> Drawing:
    lines: dict[Criterion, list[Line]] = {Criterion.NEAR: [], Criterion.GREEDY: []}
    for view in views:
        rates = rates_by_criterion(view.population, view.threshold)
        for criterion, own in lines.items():
            for split in Split:
                found = [entry for entry in rates if (entry.criterion, entry.split) == (criterion, split)]
                points = [Point.of(float(entry.edits or 0), entry.rate) for entry in found]
                if points:
                    own.append(rate_line(view.label, points, is_control=split is Split.CONTROL))
    caption = "Share of windows by number of edits allowed, model over model, with 95 % intervals; controls in grey."
    figure = rates_by_model(*(_controls_last(lines[criterion]) for criterion in (Criterion.NEAR, Criterion.GREEDY)))
    return Drawing("rates-by-model", caption, figure, "near", is_wide=True)


def _controls_last(lines: Sequence[Line]) -> list[Line]:
    """So that a model has the same colour in every figure, with controls or without."""
    return sorted(lines, key=lambda line: line.is_control)


def _masses(views: Sequence[RunView]) -> Iterator[Drawing]:
    near = [(view, _targets(view)) for view in views if view.population.mass_lower is not None]
    if not near:
        return
    threshold = views[0].threshold
    lines = [
        Line(
            view.label,
            tuple(
                Point(edits, float(counted_mass(part, edits, threshold).mean()))
                for edits in range(part.edit_budget + 1)
            ),
        )
        for view, part in near
    ]
    caption = "Mean near-verbatim mass of the target windows by number of edits; a mass below τ counts as 0."
    yield Drawing("mean-mass-by-model", caption, mean_mass_by_model(lines), "near")
    sized = sorted(near, key=lambda pair: pair[0].manifest["model"].get("parameters") or 0)
    shares = [
        (_sized(view), np.column_stack([part.mass(edits) for edits in range(part.edit_budget + 1)]))
        for view, part in sized
    ]
    caption = "The verbatim share of the mass of extractable windows, smallest model first."
    yield Drawing("verbatim-share-by-model", caption, verbatim_share_by_model(shares, threshold=threshold), "shell")
    gains = [(view.label, part.verbatim(), part.mass(part.edit_budget)) for view, part in near]
    caption = (
        "How much probability near-verbatim continuations add, model over model; of all windows (dashed) at least "
        "this, because searches end where τ cannot be reached."
    )
    yield Drawing("mass-gain-by-model", caption, gain_curves(gains, threshold=threshold), "gain")


def _sized(view: RunView) -> str:
    parameters = view.manifest["model"].get("parameters")
    return view.label if not parameters else f"{view.label}\n{parameters / 1e6:,.3g} M"


def _queries(views: Sequence[RunView]) -> Drawing:
    panels: dict[MassKind, list[Line]] = {}
    grid = query_grid(LARGEST_QUERIES, per_decade=20)
    for view in views:
        for split in Split:
            part = view.population.select(split_rows(view.population, split))
            for curves in curves_of(part, queries=grid, probabilities=[SHOWN_PROBABILITY]) if len(part) else ():
                points = [Point(n, rate.value) for n, rate in zip(grid, curves.curves[0].rates, strict=True)]
                line = rate_line(view.label, points, is_control=split is Split.CONTROL)
                if curves.mass_kind is MassKind.LOWER_BOUND:
                    line = line._replace(
                        solid_to=most_queries(searched_down_to(part, view.threshold), SHOWN_PROBABILITY)
                    )
                panels.setdefault(curves.mass_kind, []).append(line)
    caption = (
        f"Share of windows that come out at least once with probability {SHOWN_PROBABILITY:g} within n queries; "
        "controls in grey. Dashed: masses below τ count there, for which not every window was searched."
    )
    figure = queries_by_model([(PANEL_NAMES[kind], _controls_last(lines)) for kind, lines in panels.items()])
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
        searched = ~np.isnan(population.search_verbatim)
        cost = view.results["token_evals"].to_numpy()[searched]
        if found.windows and len(cost):
            key = (str(view.manifest["model"].get("weights_hash")), name)
            groups.setdefault(key, []).append((int(view.config["beam_width"]), found.share, float(cost.mean())))
    swept = {name: sorted(points) for (_, name), points in groups.items() if len({point[0] for point in points}) > 1}
    if swept:
        series = [
            BeamWidthSeries(name, *(tuple(column) for column in zip(*points, strict=True)))
            for name, points in swept.items()
        ]
        caption = "How many verbatim-extractable windows the search finds by itself, and its cost, by beam width."
        yield Drawing("beam-widths", caption, beam_width_sweep(series), "recovery", is_wide=True)


POINTS_PER_DECADE = 30
"""So close together that a curve looks like one."""
BOOKS_DRAWN = 3
SHORT_DOCUMENT = 4_000
"""Characters below which documents are drawn end to end; the page reads them together by the same rule."""
FEWEST_TOGETHER = 4


def draw_all(views: Sequence[RunView], comparison: Comparison | None) -> list[Drawing]:
    """Every figure the runs have data for: of one run all of its own, of several the models over each other."""
    together = [*book_drawings(views), *copies_drawings(views), *group_drawings(views)]
    if comparison is not None:
        return [*comparison_drawings(views, comparison), *together]
    return [*run_drawings(views[0]), *together, *membership_drawings(views), *risk_drawings(views)]


def targets_of(view: RunView) -> Population:
    """The target windows; all windows of a run that has only controls."""
    population = view.population
    return population if population.is_control.all() else population.select(~population.is_control)


def run_drawings(view: RunView) -> list[Drawing]:
    targets, threshold = targets_of(view), view.threshold
    drawings = [
        rate_drawing(view),
        *verdict_drawings(view),
        Drawing(
            "queries",
            query_caption(targets, threshold),
            query_curves(
                curves_of(targets, queries=query_grid(LARGEST_QUERIES, per_decade=POINTS_PER_DECADE)),
                control=control_curves(view),
                greedy_rate=greedy_rate(targets),
                searched_down_to=searched_down_to(targets, threshold),
            ),
            "queries",
            is_wide=True,
        ),
    ]
    if targets.mass_lower is not None:
        drawings += mass_drawings(targets, threshold, label=view.label)
    return drawings + sweep_drawings(view) + rank_drawings(view)


def rate_drawing(view: RunView) -> Drawing:
    rates = rates_by_criterion(view.population, view.threshold)
    return Drawing(
        "rates-by-edits",
        "Share of windows by number of edits allowed, with 95 % intervals; target beside control.",
        rates_by_edits(rates, threshold=view.threshold),
        "near",
    )


def control_curves(view: RunView) -> list[RateCurves]:
    """Those of a run that has controls beside its targets."""
    controls = view.population.select(split_rows(view.population, Split.CONTROL))
    if not len(controls) or view.population.is_control.all():
        return []
    return curves_of(controls, queries=query_grid(LARGEST_QUERIES, per_decade=POINTS_PER_DECADE))


def verdict_drawings(view: RunView) -> list[Drawing]:
    if view.population.mass_upper is None:
        return []
    rates = rates_by_criterion(view.population, view.threshold)
    caption = "What the certified bounds say at each ε: shown to be extractable, ruled out, or neither."
    return [
        Drawing(
            "verdicts-by-edits",
            caption,
            verdicts_by_edits(rates, threshold=view.threshold),
            "bounds",
        )
    ]


def sweep_drawings(view: RunView) -> list[Drawing]:
    """A figure per setting that the sweep varies alone, and one with the (n, p) curves of every policy."""
    swept = [one for one in policy_rates(view) if one.split is Split.TARGET]
    by_queries = Drawing(
        "sweep-queries",
        "Share of target windows that come out word for word within n queries with probability p, for every policy of "
        "the sweep, with 95 % intervals.",
        policy_queries(swept),
        "queries",
        is_wide=True,
    )
    along = [
        Drawing(
            f"sweep-{setting.split()[0]}",
            f"Share of windows with verbatim probability at least τ, by {setting}, with 95 % intervals; all policies "
            "from one pass.",
            policy_sweep(series, setting=setting, is_log=setting == "top-k"),
            "verbatim",
        )
        for setting, series in sweep_series(view).items()
    ]
    return [*along, by_queries] if swept else along


def mass_drawings(targets: Population, threshold: float, *, label: str) -> list[Drawing]:
    assert targets.mass_lower is not None
    budget = targets.edit_budget
    verbatim, mass = targets.verbatim(), targets.mass(budget)
    return [
        Drawing(
            "mass",
            "Near-verbatim against verbatim probability of each extractable target window.",
            mass_scatter(
                verbatim,
                mass,
                is_impossible=targets.is_impossible(),
                threshold=threshold,
                edits=budget,
            ),
            "category-unlocked",
        ),
        Drawing(
            "mass-gain",
            "How much probability near-verbatim continuations add: share of windows with a gain of at least Δ.",
            gain_curves([(label, verbatim, mass)], threshold=threshold),
            "gain",
        ),
        Drawing(
            "shells",
            "Where the mass of each extractable window sits, by number of edits; windows sorted by verbatim share.",
            shell_heat_map(targets.mass_lower, threshold=threshold),
            "shell",
        ),
        Drawing(
            "shell-violins",
            "Distribution of the same shares, with median and quartiles.",
            shell_violins(targets.mass_lower, threshold=threshold),
            "shell",
        ),
    ]


def greedy_rate(targets: Population) -> float | None:
    hits = hits_of(targets, Criterion.GREEDY, edits=0, threshold=1.0)
    return None if hits is None else float(hits.mean())


def query_caption(targets: Population, threshold: float) -> str:
    caption = "Share of target windows that come out at least once with probability p within n queries."
    if searched_down_to(targets, threshold) is None:
        return caption
    return f"{caption} Dashed: {cut_short_words(targets, threshold)}."


def rank_drawings(view: RunView) -> list[Drawing]:
    """Token ranks of the target window with the largest gain: where the exact words fail and near ones do not."""
    if "suffix_ranks" not in view.results.columns:
        return []
    population = view.population
    gain = population.mass(population.edit_budget) - population.verbatim()
    row = int(np.argmax(np.where(population.is_control, -1.0, gain)))
    kept = view.config.get("top_k")
    ranks = view.results["suffix_ranks"][row].to_list()
    return [
        Drawing(
            "ranks",
            f"Rank of each target token of window {population.window_id[row]}, the one with the largest mass gain.",
            token_ranks(ranks, kept=kept if isinstance(kept, int) else None),
            "rank",
            is_wide=True,
        )
    ]


def book_drawings(views: Sequence[RunView]) -> list[Drawing]:
    """Heat maps of the strongest target documents, every run's strips under each other; short ones as one text."""
    first = views[0]
    targets = [document for document in first.documents if document.split == Split.TARGET and document.characters]
    if len(targets) >= FEWEST_TOGETHER and np.mean([document.characters for document in targets]) < SHORT_DOCUMENT:
        by_copies = ", most copies in training first" if first.copies else ""
        return [heat_drawing(views, targets, file="texts", name=f"All {len(targets)} target texts{by_copies}")]

    def strength(document: Document) -> float:
        part = first.population.select(first.rows_of(document))
        return float(np.mean(part.mass(part.edit_budget) >= first.threshold))

    strongest = sorted(targets, key=strength, reverse=True)[:BOOKS_DRAWN]
    return [
        heat_drawing(views, [document], file=f"book-{index + 1}", name=document.name)
        for index, document in enumerate(strongest)
    ]


def heat_drawing(views: Sequence[RunView], documents: Sequence[Document], *, file: str, name: str) -> Drawing:
    """One heat map of `documents`, end to end; a run that lacks one of them leaves it uncovered."""
    rows = [row for view in views for row in heat_rows(view, documents, with_label=len(views) > 1)]
    caption = (
        f"{name}: the largest probability over the windows that cover each character; white below τ, hatched where "
        "no window measured it."
    )
    figure = book_heat_map(rows, threshold=views[0].threshold, title=name)
    return Drawing(file, caption, figure, "covered", is_wide=True)


def heat_rows(view: RunView, documents: Sequence[Document], *, with_label: bool) -> list[HeatRow]:
    prefix = f"{view.label}: " if with_label else ""
    own = {(document.split, document.name): document for document in view.documents}
    near_label = f"ε ≤ {view.population.edit_budget}"
    strips: dict[str, list[Floats]] = {}
    for document in documents:
        length = document.characters or 0
        same = own.get((document.split, document.name))
        nothing = np.zeros(len(view.population), dtype=np.bool_)
        part = view.population.select(view.rows_of(same) if same else nothing)
        spans = part.suffix_char_start, part.char_end
        strips.setdefault("exact", []).append(character_maxima(*spans, part.verbatim(), length=length))
        if part.mass_lower is not None:
            near = part.mass(part.edit_budget)
            strips.setdefault(near_label, []).append(character_maxima(*spans, near, length=length))
    return [HeatRow(prefix + name, np.concatenate(parts)) for name, parts in strips.items()]
