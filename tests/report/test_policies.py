"""Rates by decoding setting: the table and the figure count the stored bounds under every policy."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from byrote.report.analysis.policies import bounds_of, policy_cells, policy_drawings, policy_rows, setting_rates
from byrote.report.analysis.rates import split_rows
from byrote.report.view import RunView, load_view
from byrote.types import Split

SETTINGS = ("k=40 (searched)", "k=10", "t=0.7+k=40")


@pytest.fixture
def family(run_folder: Path) -> RunView:
    """Bounds under two further policies, the second of which reaches τ for every target."""
    view = load_view(run_folder)
    generator, results = np.random.default_rng(4), view.results
    shape = len(results), view.population.edit_budget + 1
    for text, least in (("k=10", 0.0), ("t=0.7+k=40", 2 * view.threshold)):
        lower = np.minimum(1.0, least + np.cumsum(generator.exponential(view.threshold / 9, shape), 1))
        upper = np.minimum(1.0, lower + generator.exponential(view.threshold, shape))
        for side, values in (("lower", lower), ("upper", upper)):
            results = results.with_columns(pl.Series(f"mass_{side}[{text}]", values.tolist()))
    manifest = {**view.manifest, "config": {**view.config, "policies": list(SETTINGS[1:])}}
    return replace(view, manifest=manifest, results=results)


def test_every_rate_is_a_count_of_bounds_at_the_threshold(family: RunView) -> None:
    rates = setting_rates(family)
    assert [(one.setting, one.split) for one in rates] == [(name, split) for split in Split for name in SETTINGS]
    for one in rates:
        lower, upper = bounds_of(family)[one.setting]
        rows = split_rows(family.population, one.split)
        for rate, masses in ((one.verbatim, lower[:, 0]), (one.near, lower[:, -1]), (one.at_most, upper[:, -1])):
            assert rate.value == pytest.approx(np.mean(masses[rows] >= family.threshold))
        assert one.mean == pytest.approx(lower[rows, -1].mean())


def test_table_figure_and_rows_name_every_setting_and_the_worst(family: RunView) -> None:
    (cells,) = policy_cells(family)
    assert [row[0] for row in cells.rows] == [f"{name}, {split}" for split in Split for name in SETTINGS]
    assert cells.note.startswith("Worst setting: t=0.7+k=40, with 100 % of target windows")
    (drawing,) = policy_drawings(family)
    assert {label.get_text() for label in drawing.figure.axes[0].get_yticklabels()} == set(SETTINGS)
    assert "Worst setting: t=0.7+k=40" in drawing.caption
    rows = policy_rows([family])
    assert len(rows) == 2 * 3 * 3
    assert {row["criterion"] for row in rows} == {"verbatim", "near", "not_ruled_out"}


def test_without_further_policies_there_is_no_such_table(view: RunView) -> None:
    assert policy_cells(view) == policy_drawings(view) == policy_rows([view]) == []
