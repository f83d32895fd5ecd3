"""Scans as content: one in a few lines, several compared; the shaded text is on their own page."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from byrote.report.comparison import Comparison, compare_runs, comparison_sentences, paired_cells, paired_differences
from byrote.report.content import Cells, Content
from byrote.report.limits import bracket_of
from byrote.report.membership import content_without_masses, separation_cells, separation_row, separations
from byrote.report.rates import Criterion, CriterionRate, rates_by_criterion
from byrote.report.summary import certainty, facts, summarise
from byrote.report.tables import books_by_model
from byrote.report.view import RunView, at_one_threshold, manifest_text, told_apart
from byrote.report.words import integer, interval_words, listed, percent
from byrote.types import Split

if TYPE_CHECKING:  # a terminal does not wait for drawing
    from byrote.report.content import Drawing

CRITERIA = {
    Criterion.GREEDY: "greedy, exact",
    Criterion.VERBATIM: "verbatim",
    Criterion.NEAR: "near-verbatim, ε ≤ {}, certified",
    Criterion.NOT_RULED_OUT: "not ruled out, ε ≤ {}",
}
LISTED_IN_MANIFEST = 50


def scan_content(given: Sequence[RunView]) -> Content:
    views = at_one_threshold(told_apart(given))
    if not all(view.population.has_masses for view in views):
        return content_without_masses(views)
    comparison = compare_runs(views) if len(views) > 1 else None
    summary = summarise(views)
    rates = [(view, rates_by_criterion(view.population, view.threshold)) for view in views]
    sentences = [sentence.text for sentence in certainty(*rates[0])] if comparison is None else []
    if comparison is not None:
        sentences = comparison_sentences(comparison, views[0].threshold)
    return Content(
        kind="scan",
        label=listed([view.label for view in views]),
        headline=summary.headline,
        date=summary.date,
        facts=tuple((fact.name, fact.value) for fact in facts(views[0])),
        notices=summary.warnings,
        tables=(_rates(rates), *_compared(views, comparison), *separation_cells(views)),
        sentences=tuple(sentences),
        draw=lambda: _drawings(views, comparison),
        manifests=tuple((view.path.name, manifest_text(view, LISTED_IN_MANIFEST)) for view in views),
        numbers={view.label: _numbers(view, found) for view, found in rates},
    )


def _numbers(view: RunView, rates: Sequence[CriterionRate]) -> dict[str, Any]:
    """Every rate with its interval, and the bracket of the near-verbatim one."""
    brackets = {split.value: bracket_of(view, split=split) for split in Split}
    return {
        "threshold": view.threshold,
        "edit_budget": view.population.edit_budget,
        "windows": len(view.population),
        "is_complete": view.is_complete,
        "brackets": {
            name: {**found._asdict(), "low": found.low, "high": found.high}
            for name, found in brackets.items()
            if found is not None
        },
        "rates": [
            {
                "split": entry.split.value,
                "criterion": entry.criterion.value,
                "edits": entry.edits,
                "hits": entry.hits,
                "windows": entry.rate.n,
                "rate": entry.rate.value,
                "interval": [entry.rate.interval.low, entry.rate.interval.high],
            }
            for entry in rates
        ],
        "membership": [separation_row(view, entry) for entry in separations(view)],
    }


def _rates(rates: Sequence[tuple[RunView, list[CriterionRate]]]) -> Cells:
    """Every model, split and criterion: greedy answers exact, as in every other table, ε at its largest elsewhere."""
    rows = [
        (
            f"{view.label}, {entry.split.value}",
            CRITERIA[entry.criterion].format(entry.edits),
            f"{integer(entry.hits)} of {integer(entry.rate.n)}",
            percent(entry.rate.value),
            interval_words(entry.rate.interval),
        )
        for view, found in rates
        for entry in found
        if entry.edits in (None, 0 if entry.criterion is Criterion.GREEDY else view.population.edit_budget)
    ]
    return Cells("rates", "Shares of windows", ("run", "criterion", "windows", "share", "95 % interval"), tuple(rows))


def _compared(views: Sequence[RunView], comparison: Comparison | None) -> list[Cells]:
    if comparison is None:
        return []
    return [*paired_cells(paired_differences(comparison, views[0].threshold)), books_by_model(views)]


def _drawings(views: Sequence[RunView], comparison: Comparison | None) -> Iterable["Drawing"]:
    from byrote.report.figures.models import comparison_drawings
    from byrote.report.gallery import rate_drawing

    return [rate_drawing(views[0])] if comparison is None else comparison_drawings(views, comparison)
