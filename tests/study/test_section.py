"""What a study's tables say about themselves."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from byrote.report.rates import rates_by_criterion
from byrote.report.view import load_view
from byrote.study.folder import StudyView
from byrote.study.report import cells_table
from tests.report.synthetic_run import books, write_run

SAMPLED = {
    "mass_estimate": 0.0, "mass_standard_error": 1e-3, "mass_low": 0.0, "mass_high": 1e-3, "mass_limit": 1e-3,
    "mass_samples": 40_000, "mass_hits": 0, "mass_sampled": 0.5, "mass_base": 0.0, "sampled_verdict": "sampled_below",
}  # fmt: skip


@pytest.mark.parametrize(
    ("estimate", "words"),
    [
        (None, "At most: certified, from bounds alone."),
        (SAMPLED, "At most: at 95 % confidence, from bounds and samples."),
    ],
)
def test_the_upper_column_says_what_it_rests_on(tmp_path: Path, estimate: dict[str, Any] | None, words: str) -> None:
    view = load_view(write_run(tmp_path / "run", books(3000)[:1], stride=200, estimate=estimate))
    rates = rates_by_criterion(view.population, view.threshold)
    cell = SimpleNamespace(view=view, rates=rates, cell=None, evaluations=100.0)
    study = SimpleNamespace(cells=[cell], label_of=lambda _: "the only cell")
    assert cells_table(cast(StudyView, study)).note == words
