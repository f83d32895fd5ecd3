"""Policy sweeps: what the figure draws is what a count over the stored log-probabilities gives."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from byrote.report.analysis.queries import policy_rates, sweep_cells, sweep_rows, sweep_series
from byrote.report.analysis.rates import split_rows
from byrote.report.view import RunView, load_view
from byrote.scan.report import sweep_drawings
from byrote.types import Split


@pytest.fixture
def swept(run_folder: Path) -> RunView:
    view = load_view(run_folder)
    generator = np.random.default_rng(3)
    log_p = generator.uniform(-14, 0, size=(len(view.population), 4))
    log_p[0, 0] = -math.inf
    manifest = {**view.manifest, "config": {**view.config, "sweep": ["k=40", "k=10", "t=0.7+k=40", "p=0.9"]}}
    names = ["log_p[k=40]", "log_p[k=10]", "log_p[t=0.7+k=40]", "log_p[p=0.9]"]
    results = view.results.with_columns(pl.Series(name, log_p[:, place]) for place, name in enumerate(names))
    return replace(view, manifest=manifest, results=results)


def test_rates_along_a_setting_are_counts_of_windows_at_the_threshold(swept: RunView) -> None:
    series = sweep_series(swept)
    assert list(series) == ["top-k"], "only a setting that varies alone, at least twice, makes a line"
    rows = swept.results.select("log_p[k=40]", "log_p[k=10]").rows()
    for one in series["top-k"]:
        assert [point.place for point in one.points] == [10.0, 40.0]
        is_control = one.label == "control"
        chosen = [row for row, control in zip(rows, swept.population.is_control, strict=True) if control == is_control]
        for point, column in zip(one.points, (1, 0), strict=True):
            hits = sum(math.exp(row[column]) >= swept.threshold for row in chosen)
            assert point.value == pytest.approx(hits / len(chosen))


def test_the_figure_names_its_setting_and_draws_one_line_a_split(swept: RunView) -> None:
    drawing, by_queries = sweep_drawings(swept)
    assert by_queries.name == "sweep-queries"
    axes = drawing.figure.axes[0]
    assert axes.get_xlabel() == "top-k"
    assert [line.get_label() for line in axes.get_lines()] == [one.label for one in sweep_series(swept)["top-k"]]


def test_a_run_without_a_sweep_has_no_such_figure(run_folder: Path) -> None:
    assert sweep_series(load_view(run_folder)) == {}


def test_every_policy_is_in_table_terminal_and_figure_with_its_interval(swept: RunView) -> None:
    policies = ["k=40 (searched)", "k=40", "k=10", "t=0.7+k=40", "p=0.9"]
    found = [one for one in policy_rates(swept) if one.split is Split.TARGET]
    assert [one.policy for one in found] == policies
    assert all(one.at_threshold.interval.is_defined for one in found)
    at_threshold = [row for row in sweep_rows([swept]) if row["threshold"] is not None and row["split"] == "target"]
    assert [row["policy"] for row in at_threshold] == policies
    assert all(row["interval_low"] <= row["rate"] for row in at_threshold)
    (cells,) = sweep_cells(swept)
    assert [row[0] for row in cells.rows if row[1] == "target"] == policies
    _, by_queries = sweep_drawings(swept)
    for axes in by_queries.figure.axes:
        assert [line.get_label() for line in axes.get_lines()] == policies


def test_queries_of_a_policy_follow_from_its_probabilities(swept: RunView) -> None:
    rows = split_rows(swept.population, Split.TARGET)
    masses = np.exp(swept.results["log_p[p=0.9]"].to_numpy()[rows])
    (one,) = [
        each for each in policy_rates(swept, queries=(100.0,)) if each.policy == "p=0.9" and each.split == "target"
    ]
    for curve in one.curves.curves:
        expected = np.mean(1 - (1 - masses) ** 100 >= curve.p)
        assert curve.rates[0].value == pytest.approx(expected)
