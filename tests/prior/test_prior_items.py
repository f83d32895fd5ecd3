"""What is scored: targets beside controls, sampled and limited without losing either."""

import json
from pathlib import Path

import pytest

from tests.prior.priors import REFERENCE, run, totals


@pytest.mark.parametrize("choice", [{"limit": 3}, {"sample": 3, "limit": None}, {"spans": "auto", "limit": 3}])
def test_controls_are_scored_and_counted_beside_the_texts(
    place: Path, tmp_path: Path, choice: dict[str, object]
) -> None:
    (tmp_path / "control.txt").write_text(REFERENCE + "Rhoda Stone, telephone 555-010-9999.", encoding="utf-8")
    rows = run(place, tmp_path / "out", control=(str(tmp_path / "control.txt"),), **choice)
    found = totals(tmp_path / "out")
    assert rows.height == 3
    assert list(found["by_split"]) == ["target", "control"]
    for split, part in found["by_split"].items():
        assert part["all"]["suffixes"] == (rows["split"] == split).sum() > 0
    assert found["available"] > 3


def test_pairs_may_be_controls(place: Path, tmp_path: Path) -> None:
    lines = [{"prefix": "The cat sat", "suffix": " on"}, {"prefix": "A dog", "suffix": " ran", "split": "control"}]
    pairs = tmp_path / "pairs.jsonl"
    pairs.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    rows = run(place, tmp_path / "out", text=(), pairs=str(pairs), limit=None)
    assert rows["split"].to_list() == ["target", "control"]


def test_a_file_of_records_has_the_same_controls_kinds_and_suffixes_as_in_a_scan(place: Path, tmp_path: Path) -> None:
    """Records with 0 copies are controls in both commands; a table and marks are read by both."""
    (tmp_path / "r.csv").write_text('prefix,suffix,kind,copies\nThe cat sat," on",verb,3\nA dog," ran",verb,0\n')
    (tmp_path / "marked.txt").write_text("The cat [[sat]] on the [[mat]].")
    records = run(place, tmp_path / "records", text=(), pairs=str(tmp_path / "r.csv"), limit=None)
    assert records["split"].to_list() == ["target", "control"]
    assert records["kind"].to_list() == ["verb", "verb"]
    marked = run(place, tmp_path / "marks", text=(), pairs=str(tmp_path / "marked.txt"), limit=None)
    assert marked["suffix_text"].to_list() == ["sat", "mat"]
