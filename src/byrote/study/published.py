"""Published numbers beside one's own: the same measure of the cells they are about, with an interval."""

from typing import NamedTuple

import numpy as np

from byrote.report.content import Cells
from byrote.report.rates import Criterion, rate_for, split_rows, units_of
from byrote.report.words import integer, interval_words, percent
from byrote.stats.clusters import rate_over_units
from byrote.stats.intervals import Rate
from byrote.stats.population import Flags
from byrote.study.folder import MeasuredCell, StudyView
from byrote.study.options import Published
from byrote.types import Split

WORDS = {
    "greedy": "greedy, exact",
    "verbatim": "word for word, p ≥ τ",
    "near": "nearly, mass ≥ τ",
    "search": "word for word, by the search alone",
    "bleu": "BLEU ≥ 0.75, mass ≥ τ",
    "possible": "word for word at all, p > 0",
    "near_count": "windows, nearly",
    "search_count": "windows, word for word, by the search alone",
    "bleu_count": "windows, BLEU ≥ 0.75",
}
CRITERIA = {"greedy": Criterion.GREEDY, "verbatim": Criterion.VERBATIM, "near": Criterion.NEAR}


class Own(NamedTuple):
    """What was measured here: a rate, and the windows that make it."""

    rate: Rate
    hits: int


def published_cells(study: StudyView) -> list[Cells]:
    """One row a published number; empty cells where nothing here measures it."""
    if not study.config.published:
        return []
    rows = []
    for one in study.config.published:
        own = [own_number(cell, one) for cell in study.cells if is_about(one, cell)]
        found = own[0] if len(own) == 1 else None
        is_count = one.measure.endswith("_count")
        words = WORDS[one.measure] + (f", ε ≤ {one.edits}" if one.edits is not None else "")
        rows.append(
            (
                f"{one.where or 'all'}, {one.split}",
                words,
                published_words(one),
                "" if found is None else integer(found.hits) if is_count else exact_percent(found.rate.value),
                "" if found is None else interval_words(found.rate.interval),
                one.source,
            )
        )
    heads = ("what", "measure", "published", "here", "95 % interval of the rate", "source")
    return [Cells("published", "Published numbers and these", heads, tuple(rows), NOTE)]


NOTE = "An empty cell: no cell of this study, or more than one, measures that number."


def exact_percent(share: float) -> str:
    """Two decimals, as papers print rates; the page's usual rounding hides the smallest."""
    return f"{100 * share:.2f} %" if share == share else percent(share)


def published_words(one: Published) -> str:
    """The number as a paper prints it."""
    return f"{int(one.value):,}" if one.measure.endswith("_count") else exact_percent(one.value)


def is_about(one: Published, cell: MeasuredCell) -> bool:
    return all(cell.cell.settings.get(axis) == value for axis, value in one.settings.items())


def own_number(cell: MeasuredCell, one: Published) -> Own | None:
    """The cell's own number of this kind; None where it was not measured."""
    split, measure = Split(one.split), one.measure.removesuffix("_count")
    population = cell.view.population
    if measure in CRITERIA:
        budget = population.edit_budget if one.edits is None else one.edits
        edits = {"greedy": one.edits or 0, "verbatim": None, "near": budget}[measure]
        entry = rate_for(cell.rates, CRITERIA[measure], split=split, edits=edits)
        return None if entry is None else Own(entry.rate, entry.hits)
    rows = split_rows(population, split)
    flags = _flags(cell, measure)
    if flags is None or not rows.any():
        return None
    hits = flags[rows]
    return Own(rate_over_units(hits, units_of(population.select(rows))), int(hits.sum()))


def _flags(cell: MeasuredCell, measure: str) -> Flags | None:
    """Which windows have it; None where it was not measured."""
    population, results = cell.view.population, cell.view.results
    if measure == "possible":
        return ~population.is_impossible()
    if measure == "bleu":
        column = "posthoc_bleu_lower"
        return results[column].to_numpy() >= cell.view.threshold if column in results.columns else None
    found = population.search_verbatim
    return None if found is None else np.nan_to_num(found) >= cell.view.threshold
