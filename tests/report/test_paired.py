"""Models on the same windows: differences, their table, and which windows each adds, judged by plain counting."""

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from byrote.report.analysis.comparison import (
    RunComparison,
    compare_runs,
    paired_cells,
    paired_differences,
    shared_windows,
)
from byrote.report.figures.scan import comparison_drawings, windows_by_models
from byrote.report.page import write_page
from byrote.report.tables import books_by_model, document_rates
from byrote.report.view import RunView, at_one_threshold, load_view
from byrote.scan.report import read
from byrote.stats.population import population_of
from tests.report.pages import page_of
from tests.report.synthetic_run import Book, books, prose, write_run


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    place = tmp_path_factory.mktemp("models")
    return [
        write_run(place / name, books(4000), seed=seed, stride=60, model=name)
        for seed, name in enumerate(("small", "middle", "large"))
    ]


@pytest.fixture(scope="module")
def views(runs: list[Path]) -> list[RunView]:
    return [load_view(run) for run in runs]


@pytest.fixture(scope="module")
def comparison(views: list[RunView]) -> RunComparison:
    return compare_runs(views)


def hits(view: RunView) -> dict[str, bool]:
    rows = view.results.filter(pl.col("split") == "target").iter_rows(named=True)
    return {row["window_id"]: row["mass_lower"][5] >= 0.001 for row in rows}


def test_every_pair_is_compared_over_the_same_targets(views: list[RunView], comparison: RunComparison) -> None:
    found = {
        (row.first, row.second): row
        for row in paired_differences(comparison, 0.001)
        if (row.quantity, row.edits) == ("near", 5)
    }
    assert set(found) == {("small", "middle"), ("small", "large"), ("middle", "large")}
    first, last = hits(views[0]), hits(views[2])
    row = found["small", "large"].found
    assert row.difference == pytest.approx(np.mean(list(last.values())) - np.mean(list(first.values())))
    assert row.crossed is not None
    assert row.crossed.only_second == sum(last[name] and not first[name] for name in first)
    assert row.interval.low <= row.difference <= row.interval.high


def test_the_mean_mass_counts_what_reaches_the_threshold(views: list[RunView], comparison: RunComparison) -> None:
    row = next(row for row in paired_differences(comparison, 0.2) if row.quantity == "mean_mass")
    masses = [
        view.results.filter(pl.col("split") == "target")["mass_lower"].list.last().to_numpy() for view in views[:2]
    ]
    assert (row.found.first, row.found.second) == pytest.approx([float((m * (m >= 0.2)).mean()) for m in masses])


def cut_at(view: RunView, threshold: float) -> RunView:
    """The same model scanned with a larger τ: where it is out of reach the search stops, and p_z alone is known."""
    is_out_of_reach = pl.col("mass_lower").list.last() < threshold
    only_verbatim = pl.concat_list([pl.col("p_verbatim")] * 6)
    results = view.results.with_columns(
        mass_lower=pl.when(is_out_of_reach).then(only_verbatim).otherwise("mass_lower"),
        stop_reason=pl.when(is_out_of_reach)
        .then(pl.lit("below_threshold"))
        .otherwise(pl.col("stop_reason").cast(pl.String)),
    )
    config = {**view.config, "threshold": threshold}
    manifest = {**view.manifest, "config": config}
    return replace(view, label="again", results=results, population=population_of(results), manifest=manifest)


def test_one_model_differs_from_itself_nowhere_whatever_the_thresholds(views: list[RunView]) -> None:
    again = cut_at(views[0], 0.2)
    below = again.population.mass(5) < views[0].population.mass(5)
    assert below.sum() > 20, "the searches that stopped have smaller bounds"
    alike = at_one_threshold([views[0], again])
    rows = paired_differences(compare_runs(alike), alike[0].threshold)
    assert {row.quantity for row in rows} == {"greedy", "verbatim", "near", "mean_mass"}
    assert [row.found.difference for row in rows] == [0.0] * len(rows)
    assert all(np.isnan(row.found.p_value) and not row.found.interval.is_defined for row in rows)
    mean_mass = next(
        drawing for drawing in comparison_drawings(alike, compare_runs(alike)) if "mean-mass" in drawing.name
    )
    first, second = (line.get_ydata() for line in mean_mass.figure.axes[0].get_lines())
    assert list(first) == list(second)
    assert "no threshold" not in mean_mass.caption


def test_curves_of_models_are_dashed_where_windows_were_not_searched_for(views: list[RunView]) -> None:
    again = cut_at(views[0], 0.2)
    (queries,) = (one for one in comparison_drawings([again], compare_runs([again])) if one.name == "queries-by-model")
    exact, near = queries.figure.axes
    assert {line.get_linestyle() for line in exact.get_lines()} == {"-"}
    solid, dashed = near.get_lines()[:2]
    # At p = 0.5 a mass of 0.2 takes log 0.5 / log 0.8 = 3.1 queries.
    assert (solid.get_linestyle(), max(solid.get_xdata()) <= 3.1) == ("-", True)
    assert (dashed.get_linestyle(), max(dashed.get_xdata())) == ("--", 1e6)


def test_the_table_says_what_its_intervals_are_about(comparison: RunComparison) -> None:
    (cells,) = paired_cells(paired_differences(comparison, 0.001))
    assert "about other passages of these texts" in cells.note
    assert "resample" not in cells.note


def test_p_values_are_corrected_for_the_number_of_questions(comparison: RunComparison) -> None:
    rows = paired_differences(comparison, 0.001)
    tested = [row for row in rows if not np.isnan(row.found.p_value)]
    assert tested
    assert all(row.p_adjusted >= row.found.p_value for row in tested)
    smallest = min(tested, key=lambda row: row.found.p_value)
    assert smallest.p_adjusted == pytest.approx(min(1.0, len(tested) * smallest.found.p_value))


def test_windows_are_counted_by_exactly_the_models_that_give_them(
    views: list[RunView], comparison: RunComparison
) -> None:
    every = [hits(view) for view in views]
    combinations = {one.members: one.windows for one in shared_windows(comparison, 0.001)}
    for members in combinations:
        wanted = sum(tuple(each[name] for each in every) == members for name in every[0])
        assert combinations[members] == wanted
    assert sum(combinations.values()) == sum(any(each[name] for each in every) for name in every[0])
    bars, _ = windows_by_models(comparison.labels, shared_windows(comparison, 0.001)).figure.axes
    assert [bar.get_height() for bar in bars.patches] == sorted(combinations.values(), reverse=True)


def test_runs_over_other_windows_have_no_differences(views: list[RunView]) -> None:
    other = RunComparison(("a", "b"), None, "they differ")
    assert paired_differences(other, 0.001) == shared_windows(other, 0.001) == []
    assert paired_cells([]) == []


def test_the_report_of_several_models_lays_them_over_each_other(runs: list[Path], tmp_path: Path) -> None:
    paths = write_page([read(runs)], tmp_path / "page")
    drawn = {path.stem for path in paths.others}
    assert {"rates-by-model", "mean-mass-by-model", "queries-by-model", "windows-by-model"} <= drawn
    assert not any("run" in name for name in drawn), "no figure is there once for every model"
    table = pl.read_csv(tmp_path / "page" / "tables" / "compare.csv")
    assert set(table["quantity"]) == {"greedy", "verbatim", "near", "mean_mass"}
    assert table.filter(quantity="near").height == 3 * 6
    page = paths.page.read_text(encoding="utf-8")
    assert page.count('<article class="card ') == 3, "one card a criterion, all models on it"
    assert "Windows extractable, text by text" in page


def test_texts_on_which_models_differ_come_first_and_controls_last(tmp_path: Path) -> None:
    """A page of many texts shows the first of them, and says how many there are beyond."""
    names = [f"text-{number:02d}.txt" for number in range(40)]
    many = [Book(name, prose(number, 700)) for number, name in enumerate(names)]
    views = [
        load_view(write_run(tmp_path / f"m{seed}", many, stride=150, seed=seed, model=f"m{seed}")) for seed in (1, 2)
    ]
    rows = books_by_model({view.label: document_rates(view) for view in views}).rows
    assert len(rows) == 40
    shares = [[Fraction(cell.replace(" of ", "/")) for cell in row[1:]] for row in rows]
    spreads = [max(both) - min(both) for both in shares]
    assert spreads == sorted(spreads, reverse=True)
    assert spreads[0] > spreads[-1]
    page = page_of(*views)
    assert page.count(" more are in tables/documents.csv") == 2, "on the screen and, with fewer rows, on paper"
