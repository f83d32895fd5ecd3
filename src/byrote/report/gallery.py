"""Which figures a report of scans has: of one run all of its own, of several the models over each other."""

from collections.abc import Iterator, Sequence

import numpy as np

from byrote.report.comparison import RunComparison
from byrote.report.content import Drawing
from byrote.report.figures.book import HeatRow, book_heat_map
from byrote.report.figures.curves import query_curves, token_ranks
from byrote.report.figures.masses import gain_curves, mass_scatter, shell_heat_map, shell_violins
from byrote.report.figures.models import comparison_drawings
from byrote.report.figures.rates import rates_by_edits, verdicts_by_edits
from byrote.report.groups import copies_drawings, group_drawings
from byrote.report.membership import membership_drawings
from byrote.report.queries import curves_of, cut_short_words, searched_down_to
from byrote.report.rates import Criterion, hits_of, rates_by_criterion, split_rows
from byrote.report.risk import risk_drawings
from byrote.report.sweeps import LARGEST_QUERIES, policy_queries, policy_rates, policy_sweep, sweep_series
from byrote.report.view import RunView, ViewedDocument
from byrote.stats.curves import query_grid
from byrote.stats.population import Floats, Population, character_maxima
from byrote.types import Split

POINTS_PER_DECADE = 30
"""So close together that a curve looks like one."""
BOOKS_DRAWN = 3
SHORT_DOCUMENT = 4_000
"""Characters below which documents are drawn end to end; the page reads them together by the same rule."""
FEWEST_TOGETHER = 4


def draw_all(views: Sequence[RunView], comparison: RunComparison | None) -> list[Drawing]:
    """Every figure the runs have data for."""
    together = [*book_drawings(views), *copies_drawings(views), *group_drawings(views)]
    if comparison is not None:
        return [*comparison_drawings(views, comparison), *together]
    return [*run_drawings(views[0]), *together, *membership_drawings(views), *risk_drawings(views)]


def run_drawings(view: RunView) -> Iterator[Drawing]:
    population, threshold = view.population, view.threshold
    # Of a run that has only controls, these are drawn.
    targets = population if population.is_control.all() else population.select(~population.is_control)
    yield rate_drawing(view)
    if population.mass_upper is not None:
        yield verdicts_by_edits(rates_by_criterion(population, threshold), threshold=threshold)
    yield _query_drawing(view, targets)
    if targets.mass_lower is not None:
        budget = targets.edit_budget
        verbatim, mass, is_impossible = targets.verbatim(), targets.mass(budget), targets.is_impossible()
        yield mass_scatter(verbatim, mass, is_impossible=is_impossible, threshold=threshold, edits=budget)
        yield gain_curves([(view.label, verbatim, mass)], threshold=threshold)
        yield shell_heat_map(targets.mass_lower, threshold=threshold)
        yield shell_violins(targets.mass_lower, threshold=threshold)
    yield from sweep_drawings(view)
    if "suffix_ranks" in view.results.columns:
        # Of the target window with the largest gain: where the exact words fail and near ones do not.
        gain = population.mass(population.edit_budget) - population.verbatim()
        row = int(np.argmax(np.where(population.is_control, -1.0, gain)))
        top_k = view.config.get("top_k")
        ranks = view.results["suffix_ranks"][row].to_list()
        yield token_ranks(ranks, kept=top_k if isinstance(top_k, int) else None, window_id=population.window_id[row])


def rate_drawing(view: RunView) -> Drawing:
    return rates_by_edits(rates_by_criterion(view.population, view.threshold), threshold=view.threshold)


def _query_drawing(view: RunView, targets: Population) -> Drawing:
    queries = query_grid(LARGEST_QUERIES, per_decade=POINTS_PER_DECADE)
    controls = view.population.select(split_rows(view.population, Split.CONTROL))
    has_control = len(controls) and not view.population.is_control.all()
    greedy = hits_of(targets, Criterion.GREEDY, edits=0, threshold=1.0)
    floor = searched_down_to(targets, view.threshold)
    return query_curves(
        curves_of(targets, queries=queries),
        control=curves_of(controls, queries=queries) if has_control else (),
        greedy_rate=None if greedy is None else float(greedy.mean()),
        searched_down_to=floor,
        dashed="" if floor is None else cut_short_words(targets, view.threshold),
    )


def sweep_drawings(view: RunView) -> Iterator[Drawing]:
    """A figure per setting that the sweep varies alone, and one with the (n, p) curves of every policy."""
    for setting, series in sweep_series(view).items():
        caption = (
            f"Share of windows with verbatim probability at least τ, by {setting}, with 95 % intervals; all policies "
            "from one pass."
        )
        figure = policy_sweep(series, setting=setting, is_log=setting == "top-k")
        yield Drawing(f"sweep-{setting.split()[0]}", caption, figure, "verbatim")
    swept = [one for one in policy_rates(view) if one.split is Split.TARGET]
    if swept:
        caption = (
            "Share of target windows that come out word for word within n queries with probability p, for every "
            "policy of the sweep, with 95 % intervals."
        )
        yield Drawing("sweep-queries", caption, policy_queries(swept), "queries", is_wide=True)


def book_drawings(views: Sequence[RunView]) -> Iterator[Drawing]:
    """Heat maps of the strongest target documents, every run's strips under each other; short ones as one text."""
    first = views[0]
    targets = [document for document in first.documents if document.split == Split.TARGET and document.characters]
    if len(targets) >= FEWEST_TOGETHER and np.mean([document.characters for document in targets]) < SHORT_DOCUMENT:
        by_copies = ", most copies in training first" if first.copies else ""
        yield _heat_map(views, targets, title=f"All {len(targets)} target texts{by_copies}", file="texts")
        return

    def strength(document: ViewedDocument) -> float:
        part = first.population.select(first.rows_of(document))
        return float(np.mean(part.mass(part.edit_budget) >= first.threshold))

    strongest = sorted(targets, key=strength, reverse=True)[:BOOKS_DRAWN]
    for number, document in enumerate(strongest, start=1):
        yield _heat_map(views, [document], title=document.name, file=f"book-{number}")


def _heat_map(views: Sequence[RunView], documents: Sequence[ViewedDocument], *, title: str, file: str) -> Drawing:
    """One heat map of `documents`, end to end; a run that lacks one of them leaves it uncovered."""
    rows = [row for view in views for row in _heat_rows(view, documents, f"{view.label}: " if len(views) > 1 else "")]
    return book_heat_map(rows, threshold=views[0].threshold, title=title, file=file)


def _heat_rows(view: RunView, documents: Sequence[ViewedDocument], prefix: str) -> list[HeatRow]:
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
