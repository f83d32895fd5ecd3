"""(n, p) of a run in tables: logarithms stay logarithms, and what the search did not look for is marked."""

import math

import numpy as np
import pytest

from byrote.report.analysis.queries import curves_of, query_cells, query_numbers, searched_down_to
from byrote.report.view import RunView
from byrote.report.words import integer, percent
from byrote.stats.curves import MassKind

QUERIES = (1.0, 692.0, 694.0, 1e6)
"""A mass of 0.001 needs 692.8 queries for an even chance."""


def test_shares_beyond_what_was_searched_for_are_marked_and_explained(view: RunView) -> None:
    target, control = query_cells(view, QUERIES, [0.5])
    for table, rows in ((target, ~view.population.is_control), (control, view.population.is_control)):
        assert view.population.is_cut_short is not None
        cut_short = int(view.population.is_cut_short[rows].sum())
        assert cut_short > 0
        verbatim, near = table.rows
        assert not any(cell.endswith("*") for cell in verbatim)
        assert [cell.endswith("*") for cell in near[2:]] == [False, False, True, True, True]
        assert f"* {integer(cut_short)} of {integer(int(rows.sum()))} windows were not searched" in table.note


def test_the_numbers_for_machines_are_those_of_the_tables(view: RunView) -> None:
    told = [
        (f"{percent(float(entry['rate']))} ", entry["searched_for"])  # type: ignore[arg-type]
        for entry in query_numbers(view, QUERIES, (0.5, 0.9))
    ]
    shown = [cell for table in query_cells(view, QUERIES, (0.5, 0.9)) for row in table.rows for cell in row[2:-1]]
    assert len(told) == len(shown) == 2 * 2 * 2 * len(QUERIES)
    for (share, is_searched), cell in zip(told, shown, strict=True):
        assert cell.startswith(share)
        assert is_searched != cell.endswith("*")


def test_windows_that_were_all_searched_out_need_no_mark(view: RunView) -> None:
    population = view.population
    assert population.is_cut_short is not None
    searched = population.select(~population.is_cut_short)
    assert searched_down_to(searched, 0.001) is None
    assert searched_down_to(population, 0.001) == 0.001


def test_a_probability_too_small_for_a_float_comes_out_for_some_number_of_queries(view: RunView) -> None:
    exact, near = curves_of(view.population, queries=[1.0])
    logs = view.results["log_p_verbatim"].to_numpy()
    assert (exact.mass_kind, near.mass_kind) == (MassKind.EXACT, MassKind.LOWER_BOUND)
    assert exact.worst_case.value == pytest.approx(np.mean(logs > -math.inf))
    assert exact.worst_case.value > np.mean(view.population.verbatim() > 0)
    mass = view.population.mass(view.population.edit_budget)
    assert near.worst_case.value == pytest.approx(np.mean((mass > 0) | (logs > -math.inf)))
