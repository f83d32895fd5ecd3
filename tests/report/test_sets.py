"""sets.csv against counting in plain Python, over two runs of the same windows."""

import math
import statistics
from pathlib import Path
from typing import Any

import pytest

from byrote.report.analysis.comparison import compare_runs, set_rows
from tests.report.test_compare import pair

TAU = 0.001


def test_sets_at_every_edit_are_those_of_counting(tmp_path: Path) -> None:
    small, large = views = pair(tmp_path)
    rows = set_rows(views, compare_runs(views).aligned)
    frames = [{row["window_id"]: row for row in view.results.iter_rows(named=True)} for view in (small, large)]
    targets = [name for name, row in frames[0].items() if row["split"] == "target"]
    assert [(row["run"], row["edits"]) for row in rows] == [(v.label, e) for v in views for e in range(6)]
    for row in rows:
        edits, own = row["edits"], frames[row["run"] == large.label]
        mass = {name: own[name]["mass_lower"][edits] for name in targets}
        exact = {name: own[name]["p_verbatim"] for name in targets}
        extractable = [name for name in targets if mass[name] >= TAU]
        unlocked = [name for name in extractable if exact[name] < TAU]
        fixed = [name for name in targets if all(frame[name]["mass_lower"][edits] >= TAU for frame in frames)]
        for name, members in (("extractable", extractable), ("unlocked", unlocked), ("fixed", fixed)):
            masses = [mass[member] for member in members]
            assert row[name] == len(members)
            assert row[f"{name}_mean_mass"] == approx(statistics.fmean(masses) if masses else None)
            assert row[f"{name}_median_mass"] == approx(statistics.median(masses) if masses else None)
            assert row[f"{name}_largest_mass"] == approx(max(masses, default=None))
        shares = [exact[name] / mass[name] for name in extractable]
        assert row["median_verbatim_share"] == approx(statistics.median(shares) if shares else None)
        assert row["unlocked_from_zero"] == sum(own[name]["log_p_verbatim"] == -math.inf for name in unlocked)
        promoted = sum(frames[1][name]["p_verbatim"] >= TAU for name in unlocked)
        assert row.get("exact_at_next") == (promoted if row["run"] == small.label else None)
    assert any(row["unlocked"] for row in rows), "sets that are empty everywhere would compare nothing"


def test_runs_over_other_windows_have_no_columns_across_them(tmp_path: Path) -> None:
    small, large = pair(tmp_path)
    rows = set_rows([small, large], None)
    assert len(rows) == 12
    assert all("fixed" not in row and "exact_at_next" not in row for row in rows)


def approx(value: float | None) -> Any:
    return None if value is None else pytest.approx(value)
