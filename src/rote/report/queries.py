"""(n, p) tables of a run: the share of windows that come out within n queries with probability p, for any n and p."""

from collections.abc import Sequence

import numpy as np
from rich.table import Table

from rote.report.view import RunView
from rote.report.words import interval_words, percent
from rote.stats.curves import MassKind, RateCurves, rate_curves
from rote.stats.population import Population
from rote.stats.units import Places


def query_tables(view: RunView, *, queries: Sequence[float], probabilities: Sequence[float]) -> list[Table]:
    """One table for targets and one for controls: verbatim, and near-verbatim where it was measured."""
    tables = []
    for name, wanted in (("target", ~view.population.is_control), ("control", view.population.is_control)):
        if wanted.any():
            tables.append(_table(view.population, wanted, name, queries, probabilities))
    return tables


def _table(
    population: Population,
    wanted: np.ndarray,
    name: str,
    queries: Sequence[float],
    probabilities: Sequence[float],
) -> Table:
    table = Table(
        title=f"{name}: share of windows extractable within n queries with probability p", title_justify="left"
    )
    for heading in ("", "p"):
        table.add_column(heading)
    for count in queries:
        table.add_column(f"n = {count:g}", justify="right")
    table.add_column("any n", justify="right")
    for label, curves in _curves(population, wanted, queries, probabilities):
        for curve in curves.curves:
            shares = [f"{percent(rate.value)} ({interval_words(rate.interval)})" for rate in curve.rates]
            table.add_row(label, f"{curve.p:g}", *shares, percent(curves.worst_case.value))
    return table


def _curves(
    population: Population,
    wanted: np.ndarray,
    queries: Sequence[float],
    probabilities: Sequence[float],
) -> list[tuple[str, RateCurves]]:
    lengths = population.char_end - population.char_start
    places = Places.of(
        population.document[wanted].tolist(), population.char_start[wanted], window_chars=int(lengths.max())
    )
    masses: list[tuple[str, np.ndarray, MassKind]] = []
    if population.p_verbatim is not None:
        masses.append(("verbatim", population.p_verbatim, MassKind.EXACT))
    if population.mass_lower is not None:
        budget = population.edit_budget
        masses.append((f"within {budget} edits, at least", population.mass(budget), MassKind.LOWER_BOUND))
    with np.errstate(divide="ignore"):
        return [
            (
                label,
                rate_curves(np.log(mass[wanted]), places, queries=queries, probabilities=probabilities, mass_kind=kind),
            )
            for label, mass, kind in masses
        ]
