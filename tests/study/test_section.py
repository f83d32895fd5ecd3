"""What a study's tables say about themselves."""

from pathlib import Path
from types import SimpleNamespace
from typing import cast

from byrote.report.analysis.rates import rates_by_criterion
from byrote.report.view import load_view
from byrote.study.report import cells_table
from byrote.study.run import StudyView
from tests.report.synthetic_run import books, write_run

SAMPLED = {
    "mass_estimate": 0.0, "mass_standard_error": 1e-3, "mass_low": 0.0, "mass_high": 1e-3, "mass_limit": 1e-3,
    "mass_samples": 40_000, "mass_hits": 0, "mass_sampled": 0.5, "mass_base": 0.0, "sampled_verdict": "sampled_below",
}  # fmt: skip


def test_the_upper_column_says_what_it_rests_on(tmp_path: Path) -> None:
    view = load_view(write_run(tmp_path / "run", books(3000)[:1], stride=200))
    rates = rates_by_criterion(view.population, view.threshold)
    cell = SimpleNamespace(view=view, rates=rates, cell=None, evaluations=100.0)
    study = SimpleNamespace(cells=[cell], label_of=lambda _: "the only cell")
    assert cells_table(cast(StudyView, study)).note.startswith(
        "At most: at 95 % confidence, from bounds and sampled answers"
    )
