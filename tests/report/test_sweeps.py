"""Policy sweeps: what the figure draws is what a count over the stored log-probabilities gives."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from rote.report.gallery import sweep_drawings
from rote.report.sweeps import sweep_series
from rote.report.view import RunView, load_view


@pytest.fixture
def swept(run_folder: Path) -> RunView:
    view = load_view(run_folder)
    generator = np.random.default_rng(3)
    log_p = generator.uniform(-14, 0, size=(len(view.population), 4))
    log_p[0, 0] = -math.inf
    manifest = {**view.manifest, "config": {**view.config, "sweep": ["k=40", "k=10", "t=0.7+k=40", "p=0.9"]}}
    results = view.results.with_columns(pl.Series("sweep_log_p", log_p.tolist()))
    return replace(view, manifest=manifest, results=results)


def test_rates_along_a_setting_are_counts_of_windows_at_the_threshold(swept: RunView) -> None:
    series = sweep_series(swept)
    assert list(series) == ["top-k"], "only a setting that varies alone, at least twice, makes a line"
    rows = swept.results["sweep_log_p"].to_list()
    for one in series["top-k"]:
        assert one.settings == (10.0, 40.0)
        is_control = one.label == "control"
        chosen = [row for row, control in zip(rows, swept.population.is_control, strict=True) if control == is_control]
        for rate, column in zip(one.rates, (1, 0), strict=True):
            hits = sum(math.exp(row[column]) >= swept.threshold for row in chosen)
            assert rate == pytest.approx(hits / len(chosen))


def test_the_figure_names_its_setting_and_draws_one_line_a_split(swept: RunView) -> None:
    (drawing,) = sweep_drawings(swept, suffix="", title="")
    axes = drawing.figure.axes[0]
    assert axes.get_xlabel() == "top-k"
    assert [line.get_label() for line in axes.get_lines()] == [one.label for one in sweep_series(swept)["top-k"]]


def test_a_run_without_a_sweep_has_no_such_figure(run_folder: Path) -> None:
    assert sweep_series(load_view(run_folder)) == {}
