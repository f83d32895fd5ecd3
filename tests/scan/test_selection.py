"""A part of the windows: both splits and every document keep their share, and every summary says which part it is."""

import json
from pathlib import Path

import polars as pl
import pytest

from tests.scan.scans import Command, TinyLab, scan_arguments


@pytest.mark.parametrize(
    ("option", "manner"), [("limit", "the first of every document"), ("sample", "sampled, seed 3")]
)
def test_a_part_holds_targets_and_controls_and_says_so(
    lab: TinyLab, byrote: Command, tmp_path: Path, option: str, manner: str
) -> None:
    options = {option: 8, "seed": 3, "measures": "verbatim", "control": lab.files.controls}
    assert byrote(*scan_arguments(lab, tmp_path / "run", **options)).code == 0
    rows = pl.read_parquet(tmp_path / "run" / "results.parquet")
    assert dict(rows["split"].value_counts().iter_rows()) == {"target": 4, "control": 4}
    assert rows["document"].n_unique() >= 6
    starts = json.loads((tmp_path / "run" / "manifest.json").read_text())["totals"]["selection"]["starts"]
    words = f"8 of {sum(starts.values())} windows, {manner}"
    assert words in " ".join(byrote("show", tmp_path / "run").out.split())
    assert byrote("report", tmp_path / "run").code == 0
    for name in ("index.html", "model_card.md"):
        assert words in (tmp_path / "run" / "report" / name).read_text(encoding="utf-8")


def test_one_window_for_two_splits_is_refused(lab: TinyLab, byrote: Command, tmp_path: Path) -> None:
    outcome = byrote(*scan_arguments(lab, tmp_path / "run", limit=1, control=lab.files.controls))
    assert outcome.code == 2
    assert "1 cannot hold both targets and controls; ask for at least 2" in outcome.err
