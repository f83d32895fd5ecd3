"""Models on the same windows: paired differences with intervals, and which windows each model adds."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np
import polars as pl

from rote.report.comparison import Comparison, common_budget, counted_mass, rated_targets
from rote.report.content import Cells
from rote.report.rates import Criterion, hits_of, places_of
from rote.report.words import integer
from rote.stats import compare as statistics
from rote.stats.compare import Outcomes, compare_means, compare_rates
from rote.stats.intervals import RateMethod
from rote.stats.multiplicity import holm
from rote.stats.population import Population

MEAN_MASS = "mean_mass"
NAMES = {"greedy": "greedy, exact", "verbatim": "verbatim", "near": "near-verbatim", MEAN_MASS: "mean mass from τ on"}


class Paired(NamedTuple):
    """Second minus first over the same target windows, for one criterion (a share) or the mean mass, of which windows
    below τ have none."""

    first: str
    second: str
    quantity: str
    edits: int | None
    found: statistics.Comparison
    p_adjusted: float
    """Holm's correction over all rows of the table; NaN where there is no test."""

    @property
    def name(self) -> str:
        return NAMES[self.quantity] + (f", ε ≤ {self.edits}" if self.quantity in ("near", MEAN_MASS) else "")


def paired_differences(comparison: Comparison, threshold: float) -> list[Paired]:
    """Every pair of models and everything both measured; empty when their windows differ."""
    aligned = comparison.aligned
    if aligned is None:
        return []
    rows = rated_targets(aligned)
    if not rows.any():
        return []
    parts = [(label, part.select(rows)) for label, part in zip(comparison.labels, aligned, strict=True)]
    found = [row for pair in combinations(parts, 2) for row in _pair(*pair, threshold)]
    adjusted = holm([row.found.p_value for row in found])
    return [row._replace(p_adjusted=float(value)) for row, value in zip(found, adjusted, strict=True)]


def _pair(first: tuple[str, Population], second: tuple[str, Population], threshold: float) -> Iterator[Paired]:
    populations = first[1], second[1]
    budget = common_budget(populations)
    places, ids = places_of(first[1]), tuple(map(str, first[1].window_id))

    def row(quantity: str, edits: int | None, found: statistics.Comparison) -> Paired:
        return Paired(first[0], second[0], quantity, edits, found, float("nan"))

    wanted = [(Criterion.GREEDY, 0), (Criterion.VERBATIM, 0), *((Criterion.NEAR, edits) for edits in range(budget + 1))]
    for criterion, edits in wanted:
        hits = [hits_of(population, criterion, edits=edits, threshold=threshold) for population in populations]
        outcomes = [Outcomes.of(ids, each.astype(np.float64)) for each in hits if each is not None]
        if len(outcomes) == 2:
            shown = None if criterion is Criterion.VERBATIM else edits
            yield row(criterion.value, shown, compare_rates(*outcomes, places=places))
    masses = [Outcomes.of(ids, counted_mass(population, budget, threshold)) for population in populations]
    yield row(MEAN_MASS, budget, compare_means(masses[0], masses[1], places=places))


def compare_table(rows: Sequence[Paired]) -> pl.DataFrame | None:
    """compare.csv: one row a pair of models and quantity."""
    table = [
        {
            "first": row.first,
            "second": row.second,
            "quantity": row.quantity,
            "edits": row.edits,
            "windows": row.found.n,
            "first_value": row.found.first,
            "second_value": row.found.second,
            "difference": row.found.difference,
            "interval_low": row.found.interval.low,
            "interval_high": row.found.interval.high,
            "p_value": row.found.p_value,
            "p_value_holm": row.p_adjusted,
            "both": None if row.found.crossed is None else row.found.crossed.both,
            "only_first": None if row.found.crossed is None else row.found.crossed.only_first,
            "only_second": None if row.found.crossed is None else row.found.crossed.only_second,
            "interval_method": row.found.method.value,
            "independent_units": row.found.units,
            "note": row.found.interval.reason,
        }
        for row in rows
    ]
    return pl.DataFrame(table, infer_schema_length=None) if table else None


def paired_cells(rows: Sequence[Paired]) -> list[Cells]:
    """The same in words, ε at its largest: small ones are in compare.csv."""
    largest = max((row.edits or 0 for row in rows), default=0)
    shown = [row for row in rows if row.quantity != "near" or row.edits == largest]
    heads = ("models", "quantity", "first", "second", "difference", "95 % interval", "only first", "only second")
    cells = tuple(
        (
            f"{row.first} → {row.second}",
            row.name,
            f"{100 * row.found.first:.1f} %",
            f"{100 * row.found.second:.1f} %",
            f"{100 * row.found.difference:+.1f}",
            _interval(row),
            *(_counts(row)),
        )
        for row in shown
    )
    note = (
        "Differences are in percentage points, second minus first, over the target windows; a mass below τ counts as "
        f"0. {_about(rows)} compare.csv has every ε, with p-values."
    )
    return [Cells("differences", "Paired differences", heads, cells, note)] if cells else []


def _about(rows: Sequence[Paired]) -> str:
    """What the intervals are about: texts like these where documents are the units, otherwise these texts."""
    if all(row.found.method is RateMethod.BY_DOCUMENT for row in rows):
        return "Intervals take documents as independent: they are about other texts like these."
    return "Intervals take long stretches of text as independent: they are about other passages of these texts."


def _interval(row: Paired) -> str:
    interval = row.found.interval
    return f"{100 * interval.low:+.1f} to {100 * interval.high:+.1f}" if interval.is_defined else "none"


def _counts(row: Paired) -> tuple[str, str]:
    found = row.found.crossed
    return ("–", "–") if found is None else (integer(found.only_first), integer(found.only_second))


class SharedWindows(NamedTuple):
    """Target windows extractable from exactly these models, and from no other."""

    members: tuple[bool, ...]
    windows: int


def shared_windows(comparison: Comparison, threshold: float) -> list[SharedWindows]:
    """Every combination that occurs, most windows first; windows that no model gives are left out."""
    if comparison.aligned is None:
        return []
    rows = rated_targets(comparison.aligned)
    edits = common_budget(comparison.aligned)
    reached = np.stack([each.mass(edits)[rows] >= threshold for each in comparison.aligned], axis=1)
    counts = Counter(tuple(bool(hit) for hit in row) for row in reached if row.any())
    return [SharedWindows(members, windows) for members, windows in counts.most_common()]
