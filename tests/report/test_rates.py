"""Rates and intervals of a run, against counting and against the statistics room."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from byrote.report.analysis.rates import (
    Criterion,
    hits_of,
    interval_grid,
    parts_of,
    rate_for,
    rates_by_criterion,
    split_rows,
    threshold_grid,
    units_of,
)
from byrote.report.tables import document_rates
from byrote.report.view import RunView, load_view
from byrote.stats.clusters import rate_over_units
from byrote.stats.population import population_of
from byrote.types import Split
from tests.report.synthetic_run import Book, prose, write_run


def test_counts_are_those_of_the_results_table(view: RunView) -> None:
    rates = rates_by_criterion(view.population, 0.001)
    for split in Split:
        rows = [row for row in view.results.iter_rows(named=True) if row["split"] == split]
        for edits in range(6):
            near = rate_for(rates, Criterion.NEAR, split=split, edits=edits)
            assert near is not None
            assert near.hits == sum(row["mass_lower"][edits] >= 0.001 for row in rows)
            possible = rate_for(rates, Criterion.NOT_RULED_OUT, split=split, edits=edits)
            assert possible is not None
            assert possible.hits == sum(row["mass_upper"][edits] >= 0.001 for row in rows) >= near.hits
            greedy = rate_for(rates, Criterion.GREEDY, split=split, edits=edits)
            assert greedy is not None
            assert greedy.hits == sum(row["greedy_levenshtein"] <= edits for row in rows)
        verbatim = rate_for(rates, Criterion.VERBATIM, split=split, edits=None)
        assert verbatim is not None
        assert (verbatim.hits, verbatim.rate.n) == (sum(row["p_verbatim"] >= 0.001 for row in rows), len(rows))
        assert verbatim.rate.value == verbatim.hits / verbatim.rate.n


def test_interval_grid_equals_asking_for_each_stop(view: RunView) -> None:
    thresholds = threshold_grid(0.0007)
    grid = interval_grid(view.population, thresholds)
    assert grid.shape == (2, 6, len(thresholds), 2)
    for row, split in enumerate(Split):
        part = view.population.select(split_rows(view.population, split))
        units = units_of(part)
        for edits, column in [(0, 0), (3, 20), (5, thresholds.index(0.0007)), (5, len(thresholds) - 1)]:
            interval = rate_over_units(part.mass(edits) >= thresholds[column], units).interval
            assert grid[row, edits, column].tolist() == [interval.low, interval.high]


def test_a_split_without_windows_has_no_rates_and_nan_intervals(view: RunView) -> None:
    targets = view.population.select(~view.population.is_control)
    assert list(parts_of(targets)) == [Split.TARGET]
    assert {entry.split for entry in rates_by_criterion(targets, 0.001)} == {Split.TARGET}
    grid = interval_grid(targets, (0.001, 0.01))
    assert np.isnan(grid[1]).all()
    assert not np.isnan(grid[0]).any()


def test_control_windows_that_a_target_holds_enter_no_rate(tmp_path: Path, view: RunView) -> None:
    shared = load_view(write_run(tmp_path / "shared", stride=40, shared_every=3))
    every = view.population.select(view.population.is_control)
    left = shared.population.select(split_rows(shared.population, Split.CONTROL))
    is_shared = shared.results["shared_with"].is_not_null().to_numpy()
    assert is_shared.any()
    assert len(left) == len(every) - is_shared.sum()
    assert not set(left.window_id) & set(shared.population.window_id[is_shared])
    rates = rates_by_criterion(shared.population, 0.001)
    assert {entry.rate.n for entry in rates if entry.split is Split.CONTROL} == {len(left)}
    assert {entry.rate.n for entry in rates if entry.split is Split.TARGET} == {
        int((~view.population.is_control).sum())
    }
    rows = [row for row in document_rates(shared) if row.split == "control"]
    assert sum(row.windows for row in rows) == len(left)
    assert sum(row.shared_windows for row in rows) == is_shared.sum()


@pytest.mark.parametrize("copies", [2, 3])
def test_copies_of_a_text_are_one_unit(tmp_path: Path, copies: int) -> None:
    """A text given twice is no further evidence: rate and interval are those of the texts given once."""
    once = [Book(f"book{place}.txt", prose(place, 3000), strength=place / 12) for place in range(12)]
    alone = load_view(write_run(tmp_path / "once", once, stride=100)).results
    again = [alone.with_columns(pl.col("document", "window_id") + f"~{copy}") for copy in range(1, copies)]
    for threshold in (0.001, 0.1):
        first, repeated = (
            next(
                entry.rate
                for entry in rates_by_criterion(population_of(rows), threshold)
                if entry.criterion is Criterion.NEAR and entry.edits == 5
            )
            for rows in (alone, pl.concat([alone, *again]))
        )
        assert repeated.n == copies * first.n
        assert repeated.units == first.units == 12
        assert repeated.value == first.value
        assert repeated.interval.low == pytest.approx(first.interval.low, abs=1e-12)
        assert repeated.interval.high == pytest.approx(first.interval.high, abs=1e-12)


@pytest.mark.parametrize("criterion", list(Criterion))
def test_what_was_not_measured_is_none_not_zero(view: RunView, criterion: Criterion) -> None:
    from dataclasses import replace

    bare = replace(view.population, p_verbatim=None, mass_lower=None, mass_upper=None, greedy_distance=None)
    assert hits_of(bare, criterion, edits=0, threshold=0.1) is None
