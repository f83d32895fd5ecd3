"""Tables of the report: per criterion, per document, per number of copies. Plain frames, written as CSV."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import polars as pl

from byrote.report.content import Cells
from byrote.report.rates import Criterion, hits_of, rate_fields, rates_at_budget, rates_by_criterion
from byrote.report.view import Document, RunView
from byrote.report.words import integer
from byrote.stats.intervals import Rate
from byrote.stats.population import Flags, Population, character_maxima, covered_share, rows_by_copies
from byrote.types import Split


def rates_table(views: Sequence[RunView]) -> pl.DataFrame:
    """One row per run, split, criterion and ε: counts, rate, interval and what the interval rests on."""
    rows = [
        {
            "run": view.label,
            "split": entry.split.value,
            "criterion": entry.criterion.value,
            "edits": entry.edits,
            "threshold": view.threshold,
            "windows": entry.rate.n,
            "hits": entry.hits,
            "rate": entry.rate.value,
            "interval_low": entry.rate.interval.low,
            "interval_high": entry.rate.interval.high,
            "interval_method": entry.rate.method.value,
            "independent_units": entry.rate.units,
            "note": entry.rate.interval.reason,
        }
        for view in views
        for entry in rates_by_criterion(view.population, view.threshold)
    ]
    return pl.DataFrame(rows, infer_schema_length=None)


def document_row(view: RunView, document: Document) -> dict[str, object]:
    """Rates of one document at the run's τ and budget; None for what was not measured."""
    every = view.population.select(view.rows_of(document))
    part = every.select(every.is_rated)
    budget = part.edit_budget
    near = hits_of(part, Criterion.NEAR, edits=budget, threshold=view.threshold)
    return {
        "document": document.name,
        "split": document.split,
        "copies": document.copies,
        "characters": document.characters,
        "windows": len(part),
        "short_windows": document.short_windows,
        "shared_windows": len(every) - len(part),
        "greedy": share(hits_of(part, Criterion.GREEDY, edits=0, threshold=view.threshold)),
        "verbatim": share(hits_of(part, Criterion.VERBATIM, edits=0, threshold=view.threshold)),
        "near": share(near),
        "covered": document_coverage(part, document, view.threshold),
    }


def documents_table(views: Sequence[RunView]) -> pl.DataFrame:
    """One row per run and document."""
    rows = [{"run": view.label, **document_row(view, document)} for view in views for document in view.documents]
    return pl.DataFrame(rows, infer_schema_length=None)


def books_by_model(views: Sequence[RunView]) -> Cells:
    """A line a document, a column a model: windows near-verbatim, or verbatim where nothing else was measured.

    Targets first, and of them those on which models differ most: with many texts only the first are read.
    """
    counts: dict[tuple[str, str], dict[str, str]] = {}
    shares: dict[tuple[str, str], list[float]] = {}
    for view in views:
        for document in view.documents:
            row, place = document_row(view, document), (document.split, document.name)
            value = row["verbatim"] if row["near"] is None else row["near"]
            counts.setdefault(place, {})[view.label] = count_of(value, row["windows"])
            shares.setdefault(place, []).append(float(str(value or 0)))
    labels = [view.label for view in views]
    order = sorted(
        counts,
        key=lambda place: (place[0] == Split.CONTROL, min(shares[place]) - max(shares[place]), -max(shares[place])),
    )
    rows = tuple(
        (f"{name}, {split}", *(counts[split, name].get(label, "–") for label in labels)) for split, name in order
    )
    return Cells("books-by-model", "Windows extractable, text by text", ("text", *labels), rows)


def count_of(share: object, windows: object) -> str:
    """`24 of 25`: a document has few windows, and a share of few would want its interval."""
    if share is None:
        return "–"
    return f"{integer(round(float(str(share)) * int(str(windows))))} of {integer(int(str(windows)))}"


def share(hits: Flags | None) -> float | None:
    return None if hits is None or len(hits) == 0 else float(hits.mean())


def document_coverage(part: Population, document: Document, threshold: float) -> float | None:
    """The share of the document's characters in an extractable target; None when its length is unknown."""
    if document.characters is None:
        return None
    heat = character_maxima(
        part.suffix_char_start, part.char_end, part.mass(part.edit_budget), length=document.characters
    )
    return covered_share(heat, threshold)


class CopiesRate(NamedTuple):
    """The rate of a criterion over the documents with the same number of copies in training."""

    copies: int
    is_other_edition: bool
    criterion: Criterion
    hits: int
    rate: Rate


def _rows_by_copies(view: RunView, *, is_other_edition: bool) -> dict[int, Flags]:
    """Records say their copies themselves, also where one document has records of several numbers; of a control without
    a number it is 0. Otherwise a document's number is that of all its windows."""
    if "copies" in view.results.columns and not is_other_edition:
        own = view.results["copies"].cast(pl.Int64).to_list()
        sides = zip(own, view.population.is_control.tolist(), strict=True)
        numbers = [0 if copies is None and is_control else copies for copies, is_control in sides]
        known = sorted({copies for copies in numbers if copies is not None})
        return {copies: np.array([each == copies for each in numbers], dtype=np.bool_) for copies in known}
    copies = view.other_edition_copies if is_other_edition else view.copies
    return rows_by_copies(view.population.document, copies)


def copies_rates(view: RunView) -> list[CopiesRate]:
    """Every measured criterion (greedy answers exact, near-verbatim at the whole budget) by copies and wording."""
    rates: list[CopiesRate] = []
    for is_other_edition in (False, True):
        for count, rows in _rows_by_copies(view, is_other_edition=is_other_edition).items():
            part = view.population.select(rows & view.population.is_rated)
            found = rates_at_budget(part, view.threshold, Criterion)
            rates += [CopiesRate(count, is_other_edition, *one) for one in found]
    return rates


def copies_table(views: Sequence[RunView]) -> pl.DataFrame | None:
    """One row per run, number of copies, wording and criterion; None unless some target's copies are known."""
    if not any(entry.copies for view in views for entry in copies_rates(view)):
        return None
    rows = [
        {
            "run": view.label,
            "copies": entry.copies,
            "wording": "other edition" if entry.is_other_edition else "same",
            "criterion": entry.criterion.value,
            **rate_fields(entry.rate, entry.hits),
        }
        for view in views
        for entry in copies_rates(view)
    ]
    return pl.DataFrame(rows, infer_schema_length=None)
