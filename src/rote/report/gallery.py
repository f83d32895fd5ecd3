"""Which figures a run or a set of runs gets, each with the sentence that tells a reader what it shows."""

from collections.abc import Sequence

import numpy as np

from rote.report.by_group import copies_drawings, group_drawings
from rote.report.compare_drawings import comparison_drawings
from rote.report.comparison import Comparison
from rote.report.drawing import Drawing
from rote.report.figures.book import HeatRow, book_heat_map
from rote.report.figures.curves import query_curves, token_ranks
from rote.report.figures.masses import gain_curves, mass_scatter
from rote.report.figures.rates import rates_by_edits, verdicts_by_edits
from rote.report.figures.shells import shell_heat_map, shell_violins
from rote.report.figures.sweeps import policy_queries, policy_sweep
from rote.report.membership_figures import membership_drawings
from rote.report.queries import curves_of, cut_short_words, searched_down_to
from rote.report.rates import Criterion, hits_of, rates_by_criterion, split_rows
from rote.report.risk_figures import risk_drawings
from rote.report.sweeps import policy_rates, sweep_series
from rote.report.view import Document, RunView
from rote.stats.curves import RateCurves, query_grid
from rote.stats.population import Floats, Population
from rote.stats.text_heat import character_maxima
from rote.types import Split

LARGEST_QUERIES = 1e6
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
