"""Rates of a run by criterion and by document, as numbers at full precision and in words.

Also which metric finds what: the windows that the baseline search's continuations make extractable by each of them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from byrote.report.analysis.limits import at_most_percent, limit_of
from byrote.report.analysis.rates import (
    HEADLINE_CRITERIA,
    Criterion,
    rate_fields,
    rates_at_budget,
    split_rows,
    units_of,
)
from byrote.report.content import Cells
from byrote.report.view import RunView, ViewedDocument
from byrote.report.words import count_of, integer, interval_words, percent, probability, share_words
from byrote.stats.clusters import rate_over_units
from byrote.stats.intervals import Rate
from byrote.stats.population import Flags, character_maxima, covered_share
from byrote.types import Split

CRITERION_NAMES = {
    Criterion.GREEDY: "greedy, exact",
    Criterion.VERBATIM: "verbatim",
    Criterion.NEAR: "near, ε ≤ {}, certified",
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
            **rate_fields(entry.rate, entry.hits),
            "interval_method": entry.rate.method.value,
            "independent_units": entry.rate.units,
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
    for criterion in HEADLINE_CRITERIA:
        found = [view.rate(criterion, split) for split in Split]
        if any(found):
            name = CRITERION_NAMES[criterion].format(view.population.edit_budget)
            name += f", p ≥ {probability(view.threshold)}" if criterion is Criterion.VERBATIM else ""
            rows.append((name, *("–" if entry is None else share_words(entry.rate) for entry in found)))
    limits = [limit_of(view, split=split) for split in Split]
    if any(one is not None and one.says_something for one in limits):
        most = [f"{percent(one.high)} (95 %)" if one and one.says_something else "–" for one in limits]
        rows.append(("  at most", *most))
    if any(one is not None and one.rest.answers for one in limits):
        means = [one.rest.mean_mass if one is not None and one.rest.answers else None for one in limits]
        queries = ["–" if mean is None else f"at most {at_most_percent(mean)} (95 %)" for mean in means]
        rows.append(("queries to the others", *queries))
    return Cells("rates", "Shares of windows, with 95 % intervals", ("", *Split), tuple(rows))


def rates_numbers(view: RunView) -> dict[str, Any]:
    """For JSON: every rate with its interval, and what answers to the windows that are not certified limit."""
    limits = {split.value: limit_of(view, split=split) for split in Split}
    return {
        "threshold": view.threshold,
        "edit_budget": view.population.edit_budget,
        "windows": len(view.population),
        "is_complete": view.is_complete,
        "limits": {name: found.as_dict() for name, found in limits.items() if found is not None},
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

    rows = []
    for view in views:
        entries = (view.rate(criterion, Split.TARGET) for criterion in HEADLINE_CRITERIA)
        rates = ("–" if one is None else f"{percent(one.rate.value)} ({integer(one.hits)})" for one in entries)
        values = {name: view.config.get(name) for name in differing}
        written = {
            name: "+".join(map(str, value)) if isinstance(value, list) else value for name, value in values.items()
        }
        settings = ", ".join(f"{name} {value}" for name, value in written.items()) or "none"
        rows.append((view.label, integer(len(view.population)), f"{view.threshold:g}", *rates, settings))
    heads = ("model", "windows", "τ", "greedy", "verbatim", "near-verbatim", "settings that differ")
    return Cells("models", "Target rates and settings", heads, tuple(rows))


class DocumentRates(NamedTuple):
    """Shares of one document's windows at the run's τ and budget; None for what was not measured."""

    document: str
    split: str
    copies: int | None
    characters: int | None
    windows: int
    short_windows: int
    shared_windows: int
    covered: float | None
    """Of its characters, those in an extractable target; None when its length is unknown."""
    greedy: float | None = None
    verbatim: float | None = None
    near: float | None = None
    greedy_low: float | None = None
    greedy_high: float | None = None
    """Ends of the 95 % interval, as for the shares below; NaN where there are too few independent windows."""
    verbatim_low: float | None = None
    verbatim_high: float | None = None
    near_low: float | None = None
    near_high: float | None = None


def document_rates(view: RunView) -> list[DocumentRates]:
    return [_document_rates(view, document) for document in view.documents]


def _document_rates(view: RunView, document: ViewedDocument) -> DocumentRates:
    every = view.population.select(view.rows_of(document))
    part = every.select(every.is_rated)
    shares: dict[str, float] = {}
    for name, _, rate in rates_at_budget(part, view.threshold, HEADLINE_CRITERIA):
        shares |= {name: rate.value, f"{name}_low": rate.interval.low, f"{name}_high": rate.interval.high}
    covered = None
    if document.characters is not None:
        spans = part.suffix_char_start, part.char_end
        heat = character_maxima(*spans, part.mass(part.edit_budget), length=document.characters)
        covered = covered_share(heat, view.threshold)
    return DocumentRates(
        document=document.name,
        split=document.split,
        copies=document.copies,
        characters=document.characters,
        windows=len(part),
        short_windows=document.short_windows,
        shared_windows=len(every) - len(part),
        covered=covered,
        **shares,
    )


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

    def rank(place: tuple[str, str]) -> tuple[bool, float, float]:
        return place[0] == Split.CONTROL, min(shares[place]) - max(shares[place]), -max(shares[place])

    lines = tuple(
        (f"{name}, {split}", *(counts[split, name].get(label, "–") for label in documents))
        for split, name in sorted(counts, key=rank)
    )
    return Cells("books-by-model", "Windows extractable, text by text", ("text", *documents), lines)


RATES_NOTE = (
    "Target windows whose continuations within each metric weigh at least τ; at most: those that the upper bound does "
    "not rule out. ε/T: as large a share of the text's characters or words as ε is of the target's tokens."
)


@dataclass(frozen=True, slots=True)
class Overlap:
    """The target windows that one metric shows to be extractable, and how many of them the others show too."""

    name: str
    label: str
    hits: int
    rate: Rate
    at_most: Rate | None
    """Windows that its upper bound does not rule out; None for the exact probability, which has no bounds."""
    alone: int
    """Windows that no other metric finds."""
    found_too: Mapping[str, int]


def overlaps_of(view: RunView) -> list[Overlap]:
    """Every metric of the run beside the exact probability, over the target windows that enter rates."""
    rows = split_rows(view.population, Split.TARGET)
    metrics = ("text", *map(str, view.config.get("posthoc") or ()))
    if metrics == ("text",) or not rows.any():
        return []

    def reached(side: str) -> dict[str, Flags]:
        masses = {name: view.results[f"posthoc_{name}_{side}"].to_numpy() for name in metrics}
        return {name: mass[rows] >= view.threshold for name, mass in masses.items()}

    edits = view.config.get("edit_budget")
    labels = {
        "verbatim": "exact tokens",
        "text": "same text, any tokens",
        "levenshtein": f"Levenshtein ≤ {edits} tokens",
        "hamming": f"Hamming ≤ {edits} tokens",
        "bleu": f"BLEU ≥ {view.config.get('bleu_threshold', 0.75):g}",
        "characters": "character edits ≤ ε/T",
        "words": "normalised-word edits ≤ ε/T",
    }
    units = units_of(view.population.select(rows))
    hits = {"verbatim": view.population.verbatim()[rows] >= view.threshold} | reached("lower")
    most = reached("upper")
    return [
        Overlap(
            name=name,
            label=labels[name],
            hits=int(own.sum()),
            rate=rate_over_units(own, units),
            at_most=rate_over_units(most[name], units) if name in most else None,
            alone=int((own & ~np.any([hits[other] for other in hits if other != name], axis=0)).sum()),
            found_too={other: int((own & hits[other]).sum()) for other in hits if other != name},
        )
        for name, own in hits.items()
    ]


def posthoc_cells(view: RunView) -> list[Cells]:
    """Rates and overlaps for terminal and page; empty when nothing was judged afterwards."""
    found = overlaps_of(view)
    if not found:
        return []
    letters = "ABCDEFGHIJ"[: len(found)]
    rates, shared = [], []
    for letter, one in zip(letters, found, strict=True):
        name = f"{letter}  {one.label}"
        most = "–" if one.at_most is None else percent(one.at_most.value)
        rates.append((name, integer(one.hits), percent(one.rate.value), interval_words(one.rate.interval), most))
        both = ("–" if other is one else integer(one.found_too[other.name]) for other in found)
        shared.append((name, integer(one.alone), *both))
    heads = ("metric", "windows", "share", "95 % interval", "at most")
    overlap_heads = ("metric", "it alone", *(f"and {letter}" for letter in letters))
    return [
        Cells("posthoc-rates", "What each metric finds", heads, tuple(rates), RATES_NOTE),
        Cells("posthoc-overlap", "Windows that two metrics find", overlap_heads, tuple(shared), text_space_words(view)),
    ]


def text_space_words(view: RunView) -> str:
    """How many texts the continuations are, and what spellings of one text weigh together."""
    searched = view.results.filter(pl.col("posthoc_continuations").is_not_null())
    continuations, texts = (int(searched[f"posthoc_{name}"].sum()) for name in ("continuations", "texts"))
    merged = searched["posthoc_merged_mass"].to_numpy()
    largest = probability(float(merged.max())) if len(merged) else "–"
    mean = probability(float(merged.mean())) if len(merged) else "–"
    return (
        f"{integer(continuations)} continuations of {integer(searched.height)} searched windows are {integer(texts)} "
        f"different texts; further spellings of a text found already weigh {mean} of a window on average, at most "
        f"{largest}."
    )


def posthoc_rows(views: Sequence[RunView]) -> list[dict[str, Any]]:
    """One row per run and metric."""
    return [
        {
            "run": view.label,
            "metric": one.name,
            **rate_fields(one.rate, one.hits),
            "not_ruled_out": None if one.at_most is None else one.at_most.value,
            "alone": one.alone,
            **{f"and_{other}": count for other, count in one.found_too.items()},
        }
        for view in views
        for one in overlaps_of(view)
    ]
