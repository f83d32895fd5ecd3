"""Rates of a run by criterion and by document, as numbers at full precision and in words."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from byrote.report.content import Cells
from byrote.report.limits import bracket_of
from byrote.report.rates import Criterion, CriterionRate, hits_of
from byrote.report.view import RunView, ViewedDocument
from byrote.report.words import integer, interval_words, percent, probability, share_words
from byrote.stats.population import Flags, Population, character_maxima, covered_share
from byrote.types import Split

CRITERION_NAMES = {
    Criterion.GREEDY: "greedy, exact",
    Criterion.VERBATIM: "verbatim",
    Criterion.NEAR: "near-verbatim, ε ≤ {}, certified",
    Criterion.NOT_RULED_OUT: "not ruled out, ε ≤ {}",
}


def rates_rows(views: Sequence[RunView]) -> list[dict[str, Any]]:
    """One row per run, split, criterion and ε: counts, rate, interval and what the interval rests on."""
    return [
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
        for entry in view.rates
    ]


def rates_cells(views: Sequence[RunView]) -> Cells:
    """Greedy answers exact, as in every other table, ε at its largest elsewhere: of one run target beside control, of
    several a row for each run, split and criterion."""
    if len(views) == 1:
        return _target_beside_control(views[0])
    rows = [
        (
            f"{view.label}, {entry.split.value}",
            CRITERION_NAMES[entry.criterion].format(entry.edits),
            f"{integer(entry.hits)} of {integer(entry.rate.n)}",
            percent(entry.rate.value),
            interval_words(entry.rate.interval),
        )
        for view in views
        for entry in view.rates
        if entry.edits in (None, 0 if entry.criterion is Criterion.GREEDY else view.population.edit_budget)
    ]
    return Cells("rates", "Shares of windows", ("run", "criterion", "windows", "share", "95 % interval"), tuple(rows))


def _target_beside_control(view: RunView) -> Cells:
    rows = []
    for criterion in (Criterion.GREEDY, Criterion.VERBATIM, Criterion.NEAR):
        found = [view.rate(criterion, split) for split in Split]
        if any(found):
            name = CRITERION_NAMES[criterion].format(view.population.edit_budget)
            name += f", p ≥ {probability(view.threshold)}" if criterion is Criterion.VERBATIM else ""
            rows.append((name, *("–" if entry is None else share_words(entry.rate) for entry in found)))
    limits = [bracket_of(view, split=split) for split in Split]
    if any(limits):
        how = [f"at {100 * one.level:g} % confidence" if one and one.is_sampled else "certified" for one in limits]
        most = ["–" if one is None else f"{percent(one.high)} ({how})" for one, how in zip(limits, how, strict=True)]
        rows.append(("  at most", *most))
    return Cells("rates", "Shares of windows, with 95 % intervals", ("", *Split), tuple(rows))


def rates_numbers(view: RunView) -> dict[str, Any]:
    """For JSON: every rate with its interval, and the bracket of the near-verbatim one."""
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
            for entry in view.rates
        ],
    }


def models_cells(views: Sequence[RunView]) -> Cells:
    """A row a run: target rates at the whole budget, and the options in which it differs from another of the runs."""
    names = sorted({name for view in views for name in view.config} - {"model", "out"})
    differing = [name for name in names if len({repr(view.config.get(name)) for view in views}) > 1]

    def target_rate(entry: CriterionRate | None) -> str:
        return "–" if entry is None else f"{percent(entry.rate.value)} ({integer(entry.hits)})"

    rows = tuple(
        (
            view.label,
            integer(len(view.population)),
            f"{view.threshold:g}",
            *(
                target_rate(view.rate(criterion, Split.TARGET))
                for criterion in (Criterion.GREEDY, Criterion.VERBATIM, Criterion.NEAR)
            ),
            ", ".join(f"{name} {view.config.get(name)}" for name in differing) or "none",
        )
        for view in views
    )
    heads = ("model", "windows", "τ", "greedy", "verbatim", "near-verbatim", "settings that differ")
    return Cells("models", "Target rates and settings", heads, rows)


class DocumentRates(NamedTuple):
    """Shares of one document's windows at the run's τ and budget; None for what was not measured."""

    document: str
    split: str
    copies: int | None
    characters: int | None
    windows: int
    short_windows: int
    shared_windows: int
    greedy: float | None
    verbatim: float | None
    near: float | None
    covered: float | None
    """Of its characters, those in an extractable target."""


def document_rates(view: RunView) -> list[DocumentRates]:
    return [_document_rates(view, document) for document in view.documents]


def _document_rates(view: RunView, document: ViewedDocument) -> DocumentRates:
    every = view.population.select(view.rows_of(document))
    part = every.select(every.is_rated)

    def share(criterion: Criterion, edits: int = 0) -> float | None:
        hits: Flags | None = hits_of(part, criterion, edits=edits, threshold=view.threshold)
        return None if hits is None or len(hits) == 0 else float(hits.mean())

    return DocumentRates(
        document=document.name,
        split=document.split,
        copies=document.copies,
        characters=document.characters,
        windows=len(part),
        short_windows=document.short_windows,
        shared_windows=len(every) - len(part),
        greedy=share(Criterion.GREEDY),
        verbatim=share(Criterion.VERBATIM),
        near=share(Criterion.NEAR, part.edit_budget),
        covered=document_coverage(part, document, view.threshold),
    )


def document_coverage(part: Population, document: ViewedDocument, threshold: float) -> float | None:
    """The share of the document's characters in an extractable target; None when its length is unknown."""
    if document.characters is None:
        return None
    heat = character_maxima(
        part.suffix_char_start, part.char_end, part.mass(part.edit_budget), length=document.characters
    )
    return covered_share(heat, threshold)


def documents_rows(documents: Mapping[str, Sequence[DocumentRates]]) -> list[dict[str, Any]]:
    """One row per run, by its label, and document."""
    return [{"run": label, **row._asdict()} for label, own in documents.items() for row in own]


def books_by_model(documents: Mapping[str, Sequence[DocumentRates]]) -> Cells:
    """A line a document, a column a model: windows near-verbatim, or verbatim where nothing else was measured.

    Targets first, and of them those on which models differ most: with many texts only the first are read.
    """
    counts: dict[tuple[str, str], dict[str, str]] = {}
    shares: dict[tuple[str, str], list[float]] = {}
    for label, rows in documents.items():
        for row in rows:
            place, value = (row.split, row.document), row.verbatim if row.near is None else row.near
            counts.setdefault(place, {})[label] = count_of(value, row.windows)
            shares.setdefault(place, []).append(value or 0.0)
    order = sorted(
        counts,
        key=lambda place: (place[0] == Split.CONTROL, min(shares[place]) - max(shares[place]), -max(shares[place])),
    )
    lines = tuple(
        (f"{name}, {split}", *(counts[split, name].get(label, "–") for label in documents)) for split, name in order
    )
    return Cells("books-by-model", "Windows extractable, text by text", ("text", *documents), lines)


def count_of(share: float | None, windows: int) -> str:
    """`24 of 25`: a document has few windows, and a share of few would need its interval."""
    return "–" if share is None else f"{integer(round(share * windows))} of {integer(windows)}"
