"""(n, p) of a run: the share of windows that come out within n queries with probability p, for any n and p.

Near-verbatim curves rest on lower bounds. Where a search stopped at τ, or was not run, nothing but p_z is in the bound;
which bounds no mass below τ, so beyond the queries that τ needs the curve may be far below the truth.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from byrote.report.content import Cells
from byrote.report.rates import places_of, split_rows, splits_of
from byrote.report.view import RunView
from byrote.report.words import integer, percent, probability, share_words
from byrote.stats.curves import PROBABILITIES, MassKind, RateCurves, queries_needed, rate_curves
from byrote.stats.population import Population
from byrote.types import Split


def curves_of(
    population: Population, *, queries: Sequence[float], probabilities: Sequence[float] = PROBABILITIES
) -> list[RateCurves]:
    """Of the exact target, and of the near-verbatim lower bound, where they were measured."""
    places, masses = places_of(population), []
    if population.p_verbatim is not None or population.mass_lower is not None:
        masses.append((population.log_verbatim(), MassKind.EXACT))
    if population.mass_lower is not None:
        masses.append((population.log_mass(population.edit_budget), MassKind.LOWER_BOUND))
    return [
        rate_curves(logs, places, queries=queries, probabilities=probabilities, mass_kind=kind) for logs, kind in masses
    ]


def searched_down_to(population: Population, threshold: float) -> float | None:
    """The mass below which some windows' near-verbatim bounds rest on p_z alone; None when all were searched out."""
    return threshold if population.is_cut_short is not None and population.is_cut_short.any() else None


def cut_short_words(population: Population, threshold: float) -> str:
    """What a reader must know of a near-verbatim curve beyond the queries that τ needs."""
    assert population.is_cut_short is not None
    return (
        f"{integer(int(population.is_cut_short.sum()))} of {integer(len(population))} windows were not searched for "
        f"masses below {probability(threshold)}: there they count by their exact probability alone, so the true share "
        "may be higher"
    )


def most_queries(floor: float | None, p: float) -> float:
    """Queries up to which only masses of `floor` and more count."""
    return np.inf if floor is None else float(queries_needed(floor, p, whole=False))


def query_numbers(view: RunView, queries: Sequence[float], probabilities: Sequence[float]) -> list[dict[str, object]]:
    """What `query_cells` shows, as numbers: one entry a split, mass, probability and number of queries.

    `searched_for` is false where smaller masses count than windows were searched for, the tables' star.
    """
    return [
        {
            "split": split.value,
            "mass": "verbatim" if curves.mass_kind is MassKind.EXACT else "near",
            "probability": curve.p,
            "queries": n,
            "rate": rate.value,
            "interval": [rate.interval.low, rate.interval.high],
            "searched_for": n <= most_queries(floor, curve.p),
        }
        for split, part in _parts(view)
        for curves, floor in _curves_with_floor(part, view.threshold, queries, probabilities)
        for curve in curves.curves
        for n, rate in zip(curve.queries, curve.rates, strict=True)
    ]


def query_cells(view: RunView, queries: Sequence[float], probabilities: Sequence[float]) -> list[Cells]:
    """One table for targets and one for controls: verbatim, and near-verbatim where it was measured."""
    tables = []
    for split, part in _parts(view):
        labels = {MassKind.EXACT: "verbatim", MassKind.LOWER_BOUND: f"within {part.edit_budget} edits, at least"}
        rows = []
        for curves, floor in _curves_with_floor(part, view.threshold, queries, probabilities):
            for curve in curves.curves:
                marks = ["*" if n > most_queries(floor, curve.p) else "" for n in curve.queries]
                shares = [share_words(rate) + mark for rate, mark in zip(curve.rates, marks, strict=True)]
                limit = percent(curves.worst_case.value) + ("" if floor is None else "*")
                rows.append((labels[curves.mass_kind], f"{curve.p:g}", *shares, limit))
        title = f"{split.value}: share of windows extractable within n queries with probability p"
        heads = ("", "p", *(f"n = {count:g}" for count in queries), "any n")
        is_marked = searched_down_to(part, view.threshold) is not None
        note = f"* {cut_short_words(part, view.threshold)}." if is_marked else ""
        tables.append(Cells(f"queries-{split.value}", title, heads, tuple(rows), note))
    return tables


def _parts(view: RunView) -> Iterator[tuple[Split, Population]]:
    for split in splits_of(view.population):
        yield split, view.population.select(split_rows(view.population, split))


def _curves_with_floor(
    part: Population, threshold: float, queries: Sequence[float], probabilities: Sequence[float]
) -> Iterator[tuple[RateCurves, float | None]]:
    """Each curve, and the mass below which not every window of it was searched."""
    for curves in curves_of(part, queries=queries, probabilities=probabilities):
        is_exact = curves.mass_kind is MassKind.EXACT
        yield curves, None if is_exact else searched_down_to(part, threshold)
