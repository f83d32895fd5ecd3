"""Which metric finds what: the windows that the baseline search's continuations make extractable by each of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from byrote.report.content import Cells
from byrote.report.rates import split_rows, units_of
from byrote.report.view import RunView
from byrote.report.words import integer, interval_words, percent, probability
from byrote.stats.clusters import rate_over_units
from byrote.stats.intervals import Rate
from byrote.stats.population import Flags
from byrote.types import Split

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
    letters = {one.name: letter for one, letter in zip(found, "ABCDEFGHIJ", strict=False)}
    rates = [
        (
            f"{letters[one.name]}  {one.label}",
            integer(one.hits),
            percent(one.rate.value),
            interval_words(one.rate.interval),
            "–" if one.at_most is None else percent(one.at_most.value),
        )
        for one in found
    ]
    shared = [
        (
            f"{letters[one.name]}  {one.label}",
            integer(one.alone),
            *("–" if other is one else integer(one.found_too[other.name]) for other in found),
        )
        for one in found
    ]
    heads = ("metric", "windows", "share", "95 % interval", "at most")
    overlap_heads = ("metric", "it alone", *(f"and {letter}" for letter in letters.values()))
    note = text_space_words(view)
    return [
        Cells("posthoc-rates", "What each metric finds", heads, tuple(rates), RATES_NOTE),
        Cells("posthoc-overlap", "Windows that two metrics find", overlap_heads, tuple(shared), note),
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
            "windows": one.rate.n,
            "hits": one.hits,
            "rate": one.rate.value,
            "interval_low": one.rate.interval.low,
            "interval_high": one.rate.interval.high,
            "not_ruled_out": None if one.at_most is None else one.at_most.value,
            "alone": one.alone,
            **{f"and_{other}": count for other, count in one.found_too.items()},
        }
        for view in views
        for one in overlaps_of(view)
    ]
